// Runs: those of the sessions that were used last, and one run with its answer and its events.

import { get, getStream, look, path, post, remove } from "./api.js";
import { sessionMark, waitingApprovals, waitingSessions } from "./approvals.js";
import { confirmed } from "./dialog.js";
import { button, count, errorBox, fill, h, notice, onChanges, perFrame, when } from "./dom.js";
import { parseJson } from "./json.js";
import { jsonText } from "./output.js";
import { pendingSessions } from "./pending.js";
import { listSessions } from "./sessions.js";
import { showSnippets } from "./snippets.js";
import { TurnView } from "./turn.js";

/** Sessions whose runs are listed. */
const LISTED = 50;
/** Lines of events that are shown. */
const MAX_LINES = 500;

export function runsView([id]) {
  return id ? runView(id) : runList();
}

function runList() {
  const list = h("div", null);
  const find = h("input", {
    id: "run-id",
    type: "text",
    placeholder: "chatcmpl-…",
    autocomplete: "off",
    spellcheck: "false",
  });
  const refresh = async () => {
    try {
      const { data } = await listSessions(LISTED);
      // The first run of a session is not listed before its first round is stored.
      const isListed = (id) => data.some((session) => session.id === id);
      const others = pendingSessions().filter(({ id }) => !isListed(id));
      const states = await Promise.all(others.map(({ runId }) => look(path`/v1/chat/completions/${runId}`)));
      const first = others
        .filter((_, index) => states[index].status === 202)
        .map(({ id, runId }) => ({ id, running: runId }));
      const runs = [...first, ...data].filter((session) => session.running || session.last_run);
      const waiting = await waitingSessions();
      fill(
        list,
        runs.length
          ? table(runs, waiting)
          : notice(
              "empty",
              h("p", null, "There are no runs."),
              h("p.muted", null, "Every answer of the tool loop is a run."),
            ),
      );
    } catch (error) {
      fill(list, errorBox(error, refresh));
    }
  };
  const element = h(
    "div.view",
    null,
    h(
      "header.view-head",
      null,
      h("h1", { tabindex: "-1" }, "Runs"),
      h("div.view-actions", null, button("Refresh", "refresh", refresh, { quiet: true })),
    ),
    h(
      "p.muted",
      null,
      "The running and the last run of each session, the newest first. A run can be read for 24 hours, its events for ten minutes after its end.",
    ),
    h(
      "form.row",
      {
        onsubmit: (event) => {
          event.preventDefault();
          if (find.value.trim()) location.hash = `#/runs/${encodeURIComponent(find.value.trim())}`;
        },
      },
      h("label", { for: "run-id" }, "Run by its id"),
      find,
      h("button.button", { type: "submit" }, "Open"),
    ),
    list,
  );
  refresh();
  const left = new AbortController();
  onChanges(refresh, left.signal);
  return { element, leave: () => left.abort() };
}

function table(sessions, waiting) {
  return h(
    "table.table.cards.even",
    null,
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        ["Run", "Session", "State", "Changed"].map((name) => h("th", { scope: "col" }, name)),
      ),
    ),
    h(
      "tbody",
      null,
      sessions.map((session) => {
        const id = session.running ?? session.last_run;
        return h(
          "tr",
          null,
          h("td.main", null, h("a.mono.cut", { href: `#/runs/${encodeURIComponent(id)}` }, id)),
          h(
            "td",
            { "data-label": "Session" },
            h("a", { href: `#/chat/${encodeURIComponent(session.id)}` }, session.title || session.id),
          ),
          h("td", { "data-label": "State" }, sessionMark(session, waiting) ?? "ended"),
          h("td", { "data-label": "Changed" }, session.updated_at && when(session.updated_at)),
        );
      }),
    ),
  );
}

function runView(id) {
  const left = new AbortController();
  const { signal } = left;
  const facts = h("div", null);
  const answer = h("div.run-answer", null);
  const log = h("ol.events", { tabindex: "0", "aria-label": "Events" });
  const lines = h("div", null, log);
  const problem = h("div", null);
  const stop = button(
    "Stop",
    "stop",
    async () => {
      try {
        await post(path`/v1/chat/completions/${id}/cancel`, { mode: "abort" });
        // A run that waited has ended by now.
        await load();
      } catch (error) {
        fill(problem, errorBox(error));
      }
    },
    { class: "danger" },
  );
  stop.hidden = true;

  const forget = button(
    "Delete",
    "trash",
    async () => {
      if (!(await confirmed("Delete the answer of this run?", "The session keeps its messages.", "Delete"))) return;
      try {
        await remove(path`/v1/chat/completions/${id}`);
        location.hash = "#/runs";
      } catch (error) {
        fill(problem, errorBox(error));
      }
    },
    { quiet: true },
  );
  forget.hidden = true;

  const load = async () => {
    const { status, body } = await look(path`/v1/chat/completions/${id}`, { signal });
    const isRunning = status === 202;
    stop.hidden = !isRunning;
    forget.hidden = status !== 200;
    fill(
      facts,
      definition({
        State: isRunning
          ? body.approvals?.length
            ? `waits for ${count(body.approvals.length, "decision")}`
            : "running"
          : status === 200
            ? "ended"
            : `HTTP ${status}`,
        Session: body.session_id && h("a", { href: `#/chat/${encodeURIComponent(body.session_id)}` }, body.session_id),
        Model: body.model,
        Started: body.created && when(body.created),
        End: body.agent?.stop_reason,
        Rounds: body.agent?.rounds,
        "Model calls": body.agent?.model_calls,
        Tokens: body.usage && `${body.usage.prompt_tokens} + ${body.usage.completion_tokens}`,
      }),
    );
    if (status >= 400 && body.error)
      fill(problem, errorBox({ message: body.error.message, code: body.error.code, status }));
    return status;
  };

  const line = (number, data, name) => {
    const type = data === "[DONE]" ? "end" : name || "chunk";
    const brief = data === "[DONE]" ? "[DONE]" : briefOf(parseJson(data));
    const item = h(
      "li",
      { value: number },
      h("details", null, h("summary", null, h("span.event-type", null, type), h("span.event-brief", null, brief))),
    );
    const fold = item.firstChild;
    fold.addEventListener(
      "toggle",
      () => fold.open && fold.children.length === 1 && fold.append(jsonText(data, "Event")),
    );
    return item;
  };

  const follow = async () => {
    const turn = new TurnView();
    fill(answer, turn.element);
    let waiting = [];
    let number = 0;
    const draw = perFrame(() => {
      log.append(...waiting);
      waiting = [];
      while (log.children.length > MAX_LINES) log.firstChild.remove();
    });
    try {
      for await (const { data, event } of getStream(path`/v1/chat/completions/${id}/events`, { signal })) {
        number += 1;
        waiting.push(line(number, data, event));
        draw();
        if (data !== "[DONE]") turn.apply(parseJson(data));
      }
      turn.finish({ elapsed: false });
      await load();
    } catch (error) {
      if (signal.aborted) return;
      fill(lines, notice("empty", h("p", null, error.message)));
      await stored(turn);
    }
  };

  const stored = async (turn) => {
    try {
      const completion = await get(path`/v1/chat/completions/${id}`, { signal });
      const message = completion.choices?.[0]?.message ?? {};
      for (const call of completion.agentic_tool_calls ?? []) {
        const view = turn.call({ tool_call_id: call.tool_call_id, tool_name: call.name, round: call.round });
        view.setArguments(call.arguments);
        view.past(call.result_content);
      }
      turn.past({ role: "assistant", ...message });
      turn.enrich(completion);
      const waiting = await waitingApprovals({ signal, quiet: true }).catch(() => []);
      turn.askAll(waiting.filter((one) => one.run_id === id));
      turn.finish({ elapsed: false });
    } catch {
      fill(answer);
    }
  };

  const element = h(
    "div.view",
    null,
    h(
      "header.view-head",
      null,
      h("h1", { tabindex: "-1" }, "Run"),
      h(
        "div.view-actions",
        null,
        stop,
        forget,
        button(
          "Show as code",
          "code",
          () => showSnippets("Read this run", { method: "GET", path: path`/v1/chat/completions/${id}` }),
          { quiet: true },
        ),
      ),
    ),
    h("p.mono.muted.wrap", null, id),
    problem,
    facts,
    h("h2", null, "Answer"),
    answer,
    h("h2", null, "Events"),
    lines,
  );
  onChanges(() => load().catch(() => {}), signal);
  load()
    .then((status) => {
      if (status === 200 || status === 202) return follow();
      fill(lines, notice("empty", h("p", null, "There are no events.")));
      return undefined;
    })
    .catch((error) => !signal.aborted && fill(problem, errorBox(error)));
  return { element, leave: () => left.abort() };
}

function briefOf(event) {
  if (event.error) return String(event.error.message);
  const delta = event.choices?.[0]?.delta ?? {};
  const parts = [
    event.phase && `${event.tool_name} ${event.phase}`,
    event.status,
    event.text ?? delta.content ?? delta.reasoning_content ?? delta.reasoning,
    event.file?.filename,
    event.notice?.message,
    event.tool?.label,
    event.choices?.[0]?.finish_reason,
    event.usage && "usage",
  ];
  return parts.filter(Boolean).join(" ").replace(/\s+/g, " ").slice(0, 160);
}

/** Facts as a list of terms; those without a value are left out. */
export function definition(entries) {
  const known = Object.entries(entries).filter(
    ([, value]) => value !== undefined && value !== null && value !== "" && value !== false,
  );
  return h(
    "dl.facts",
    null,
    known.map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))),
  );
}
