// Sessions: the list, and what can be done with one.

import { get, getBlob, path, post, put, remove } from "./api.js";
import { sessionMark, waitingSessions } from "./approvals.js";
import { announce, button, count, errorBox, fill, freshId, h, icon, notice, onChanges, when } from "./dom.js";
import { saveBlob } from "./files.js";
import { confirmed } from "./dialog.js";
import { showSnippets } from "./snippets.js";

const PAGE = 50;

export function listSessions(limit = PAGE, after = null, options = {}) {
  return get(`/v1/sessions?limit=${limit}${after ? `&after=${encodeURIComponent(after)}` : ""}`, options);
}

/** Copies a session, up to a message or whole. */
export async function forkSession(id, beforeMessage) {
  const fork = await post(
    path`/v1/sessions/${id}/fork`,
    beforeMessage === undefined ? {} : { before_message: beforeMessage },
  );
  document.dispatchEvent(new CustomEvent("sessions-changed"));
  announce("Forked.");
  return fork;
}

export async function exportSession(id) {
  saveBlob(await getBlob(path`/v1/sessions/${id}`), `${id.replace(/[^\w.-]/g, "_")}.json`);
}

/** Deletes a session after a question. Returns whether it is gone. */
export async function removeSession(id) {
  const sure = await confirmed("Delete this session?", "Its messages and files are deleted for good.", "Delete");
  if (!sure) return false;
  await remove(path`/v1/sessions/${id}`);
  document.dispatchEvent(new CustomEvent("sessions-changed"));
  announce("Deleted.");
  return true;
}

/** The view of all sessions. */
export function sessionsView() {
  const list = h("div", null);
  const problem = h("div", null);
  const more = h("div.row", null);
  const rows = h("tbody", null);
  const table = h(
    "table.table.cards",
    null,
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        ["Session", "Messages", "Changed", "Actions"].map((name) => h("th", { scope: "col" }, name)),
      ),
    ),
    rows,
  );
  const guard = async (action) => {
    try {
      fill(problem);
      await action();
    } catch (error) {
      fill(problem, errorBox(error));
    }
  };
  /** The places of the marks, by the id of the session. */
  const marks = new Map();
  const row = (session, waiting) => {
    const name = session.title || session.id;
    const mark = h("span", null, sessionMark(session, waiting));
    marks.set(session.id, mark);
    const element = h(
      "tr",
      null,
      h(
        "td.main",
        null,
        h("a", { href: `#/chat/${encodeURIComponent(session.id)}` }, name),
        mark,
        h("div.muted.mono.cut", null, session.id),
      ),
      h("td", { "data-label": "Messages" }, session.message_count),
      h("td", { "data-label": "Changed" }, when(session.updated_at)),
      h(
        "td.actions",
        null,
        session.last_run &&
          h(
            "a.button.quiet",
            {
              href: `#/runs/${encodeURIComponent(session.running ?? session.last_run)}`,
              title: "Run",
              "aria-label": `Run of ${name}`,
            },
            icon("runs"),
          ),
        button(
          "Fork",
          "fork",
          () =>
            guard(async () => {
              const fork = await forkSession(session.id);
              location.hash = `#/chat/${encodeURIComponent(fork.id)}`;
            }),
          { quiet: true, "aria-label": `Fork ${name}` },
        ),
        button("Export", "download", () => guard(() => exportSession(session.id)), {
          quiet: true,
          "aria-label": `Export ${name}`,
        }),
        button(
          "Delete",
          "trash",
          () =>
            guard(async () => {
              if (await removeSession(session.id)) element.remove();
            }),
          { quiet: true, "aria-label": `Delete ${name}` },
        ),
      ),
    );
    return element;
  };
  const load = async (after) => {
    try {
      const page = await listSessions(PAGE, after);
      const waiting = await waitingSessions();
      if (!after) {
        rows.replaceChildren();
        marks.clear();
        fill(
          list,
          page.data.length
            ? table
            : notice(
                "empty",
                h("p", null, "There are no sessions."),
                h("p.muted", null, "A chat makes one. So does a request with a session_id."),
              ),
        );
      }
      rows.append(...page.data.map((session) => row(session, waiting)));
      fill(more, page.has_more && button("Show more", null, () => load(page.data.at(-1).id)));
      state.textContent = `${count(rows.children.length, "session")}${page.has_more ? " shown" : ""}`;
    } catch (error) {
      fill(
        list,
        errorBox(error, () => load()),
      );
    }
  };
  /** Draws the marks again. The rows stay, with the focus in them; only sessions that are new need another list. */
  const update = async () => {
    const [page, waiting] = await Promise.all([listSessions(PAGE, null, { quiet: true }), waitingSessions()]);
    if (page.data.some((session) => !marks.has(session.id))) return load();
    for (const session of page.data) fill(marks.get(session.id), sessionMark(session, waiting));
    return undefined;
  };
  const picker = h("input", {
    type: "file",
    accept: "application/json,.json",
    hidden: true,
    tabindex: "-1",
    "aria-hidden": "true",
    onchange: () =>
      guard(async () => {
        const session = JSON.parse(await picker.files[0].text());
        picker.value = "";
        const id = freshId("import-");
        await put(path`/v1/sessions/${id}`, session);
        announce("Imported.");
        location.hash = `#/chat/${id}`;
      }),
  });
  const state = h("span.muted", { role: "status" });
  const element = h(
    "div.view",
    null,
    h(
      "header.view-head",
      null,
      h("h1", { tabindex: "-1" }, "Sessions"),
      state,
      h(
        "div.view-actions",
        null,
        button("Import", null, () => picker.click()),
        picker,
        button(
          "Show as code",
          "code",
          () => showSnippets("List the sessions", { method: "GET", path: `/v1/sessions?limit=${PAGE}` }),
          { quiet: true },
        ),
        button("Refresh", "refresh", () => load(), { quiet: true }),
      ),
    ),
    problem,
    list,
    more,
  );
  load();
  const left = new AbortController();
  // The list stays as it is while the server cannot be asked.
  onChanges(() => update().catch(() => {}), left.signal);
  return { element, leave: () => left.abort() };
}
