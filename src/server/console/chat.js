// The chat: a conversation that the server keeps as a session, and the form for the next message.

import { ApiError, get, getStream, look, path, post, postStream } from "./api.js";
import { waitingApprovals } from "./approvals.js";
import { Composer } from "./composer.js";
import { announce, button, copyButton, errorBox, fill, freshId, h, icon, notice } from "./dom.js";
import { fileCard } from "./files.js";
import { indexOfQuestion, transcriptOf, turnsOf, viewOf } from "./history.js";
import { keepDraft, keepPending, pendingOf } from "./pending.js";
import { pause, runEvents } from "./run-stream.js";
import { exportSession, forkSession, removeSession } from "./sessions.js";
import { showSnippets } from "./snippets.js";
import { suggestions } from "./suggestions.js";
import { textOf } from "./calls.js";
import { TurnView, userMessage } from "./turn.js";

/** Characters of an answer that are read out when it is complete. */
const MAX_ANNOUNCED = 2000;
/** Checks of a run that goes on after a decision, one each second. */
const MAX_CHECKS = 600;

class Chat {
  constructor(session) {
    this.session = session;
    this.isNew = !session;
    this.left = new AbortController();
    this.questions = 0;
    /** The sources of the session, by number. */
    this.sources = new Map();
    /** The names of the files of the session, by id. */
    this.fileNames = new Map();
    this.title = h("h1", { tabindex: "-1" }, session ? "Chat" : "New chat");
    this.actions = h("div.view-actions", null);
    this.transcript = h("div.transcript", null);
    // Pictures and what comes into view change the height.
    this.sizes = new ResizeObserver(() => this.toEnd());
    this.sizes.observe(this.transcript);
    this.scroller = h("div.scroller", { tabindex: "0", role: "group", "aria-label": "Conversation" }, this.transcript);
    this.composer = new Composer({
      send: (message) => this.send(message),
      stop: () => this.stop(),
      session: () => this.sessionId(),
      known: session,
    });
    this.latest = button("Newest", null, () => this.toEnd(true), { class: "to-end" });
    this.latest.hidden = true;
    this.element = h(
      "div.view.chat",
      null,
      h("header.view-head", null, this.title, this.actions),
      h("div.chat-body", null, this.scroller, this.latest),
      this.composer.element,
    );
    document.addEventListener("keydown", (event) => this.stopOnEscape(event), { signal: this.left.signal });
    this.follows = true;
    this.scroller.addEventListener("scroll", () => {
      this.follows = this.scroller.scrollTop + this.scroller.clientHeight >= this.scroller.scrollHeight - 60;
      this.latest.hidden = this.follows;
    });
  }

  /** The id of the session; a new chat gets one with its first message or file. */
  sessionId() {
    if (!this.session) {
      this.session = freshId("chat-");
      this.composer.known = this.session;
      history.replaceState(null, "", `#/chat/${this.session}`);
      document.dispatchEvent(new CustomEvent("chat-opened", { detail: this.session }));
    }
    return this.session;
  }

  async start() {
    if (this.isNew) return this.welcome();
    fill(this.transcript, h("p.muted", { role: "status" }, "Loading the session …"));
    try {
      const session = await get(path`/v1/sessions/${this.session}`, { signal: this.left.signal });
      await this.show(session);
    } catch (error) {
      if (this.left.signal.aborted) return undefined;
      const pending = pendingOf(this.session);
      if (error.status === 404 && pending) return this.showUnsent(pending);
      fill(
        this.transcript,
        error.status === 404
          ? notice(
              "empty",
              h("p", null, "There is no session with this id."),
              h("p.muted", null, "The first message makes it."),
            )
          : errorBox(error, () => this.start()),
      );
    }
    return undefined;
  }

  async welcome() {
    const list = h("div.suggestions", null);
    fill(
      this.transcript,
      h(
        "div.welcome",
        null,
        h("p.welcome-title", null, "Ask something"),
        h(
          "p.muted",
          null,
          "The model can call the tools of this server. Each call appears in the answer, with its arguments, output and time.",
        ),
        list,
      ),
    );
    for (const { text, code } of await suggestions()) {
      list.append(
        h(
          "button.suggestion",
          {
            type: "button",
            onclick: () => this.send({ text, needsCode: code }),
          },
          text,
        ),
      );
    }
  }

  /** Shows a session, and follows the run that is going on in it. */
  async show(session) {
    this.setTitle(session);
    for (const { sources = [] } of session.agent?.message_meta ?? [])
      for (const source of sources) this.sources.set(source.number, source);
    const turns = turnsOf(session);
    const pending = pendingOf(this.session);
    this.nameFiles(session.files);
    this.nameFiles(pending?.files);
    const running = session.running;
    if (running) this.dropRunning(turns, pending);
    else keepPending(this.session, null);
    this.questions = 0;
    let question = null;
    for (const turn of turns) {
      if (turn.kind === "user") {
        turn.number = this.questions++;
        question = turn.entries[0].message.content;
      }
      turn.question = question;
    }
    let last = null;
    const element = transcriptOf(turns, (turn) => {
      const made = viewOf(turn, {
        actions: () => [this.forkButton(turn.number)],
        fileNames: this.fileNames,
        options: this.turnOptions(),
      });
      if (made.view) {
        made.view.code = this.codeFor(turn.question);
        made.view.finish({ elapsed: false });
        if (turn === turns.at(-1)) last = made.view;
      }
      return made.element;
    });
    fill(this.transcript, element);
    this.turns = element.querySelector(".turns");
    if (session.files?.length) element.prepend(filesOf(session.files));
    this.toEnd(true);
    if (running) return this.follow(running, question);
    await this.complete(session, last);
    return undefined;
  }

  /** Leaves out what the events of the run tell again, and adds the question if it is not stored yet. */
  dropRunning(turns, pending) {
    const stored = turns.filter((turn) => turn.kind === "user").length;
    const isStored = pending ? stored > pending.questions : turns.at(-1)?.kind === "user" || isOpen(turns.at(-1));
    if (isStored) {
      while (turns.length && turns.at(-1).kind === "answer") turns.pop();
    } else if (pending) {
      turns.push({
        kind: "user",
        entries: [{ message: { role: "user", content: pending.content }, meta: {}, index: -1 }],
      });
    }
  }

  /** What the answer of the last run tells besides: statuses, times, files; and what still waits for a decision. */
  async complete(session, last) {
    if (!last || !session.last_run) return;
    const signal = this.left.signal;
    const { status, body } = await look(path`/v1/chat/completions/${session.last_run}`, { signal }).catch(() => ({}));
    if (status === 200) {
      last.enrich(body);
      last.finish({ elapsed: false });
    }
    const waiting = await waitingApprovals({ signal, quiet: true }).catch(() => []);
    last.askAll(waiting.filter((one) => one.session_id === session.id));
    this.toEnd();
  }

  /** A first message whose turn has failed: the server has no session. */
  showUnsent({ content, files }) {
    this.nameFiles(files);
    const again = button("Send again", "refresh", () => {
      this.isNew = true;
      this.send({ content });
    });
    fill(
      this.transcript,
      userMessage(content, this.fileNames),
      notice("empty", h("p", null, "This message was not answered, and the server has not kept it."), again),
    );
  }

  setTitle({ title, messages }) {
    const first = (messages ?? []).find((message) => message.role === "user");
    const text = title ?? textOf(first?.content);
    this.title.textContent = (text || "Chat").slice(0, 120);
    document.title = `${this.title.textContent} – loopwright`;
    this.showActions();
  }

  showActions() {
    fill(
      this.actions,
      button("Fork", "fork", () => this.guard(async () => open((await forkSession(this.session)).id)), { quiet: true }),
      button("Export", "download", () => this.guard(() => exportSession(this.session)), { quiet: true }),
      button("Delete", "trash", () => this.guard(async () => (await removeSession(this.session)) && open("")), {
        quiet: true,
      }),
    );
  }

  async guard(action) {
    try {
      await action();
    } catch (error) {
      this.append(errorBox(error));
    }
  }

  forkButton(number) {
    return button("Edit in a fork", "fork", () => this.guard(() => this.forkAt(number)), { class: "small" });
  }

  /** Branches off before a message, and puts the message into the form. */
  async forkAt(number) {
    const session = await get(path`/v1/sessions/${this.session}`);
    const index = indexOfQuestion(session, number);
    if (index === undefined) throw new ApiError("This message is not stored, so the session cannot be forked here.");
    const fork = await forkSession(this.session, index);
    keepDraft(fork.id, textOf(session.messages[index].content));
    open(fork.id);
  }

  turnOptions() {
    return {
      sources: this.sources,
      onDrawn: () => this.toEnd(),
      onAsked: (tool) => announce(`${tool} waits for your decision.`),
      onDecided: (answer, approval, turn) => {
        if (answer.status === "queued") this.goOn(approval, turn);
      },
      actions: (turn) =>
        [
          turn.text && copyButton(turn.text, "Copy answer", { class: "small" }),
          turn.code && button("Show as code", "code", turn.code, { class: "small" }),
        ].filter(Boolean),
    };
  }

  nameFiles(files = []) {
    for (const { id, filename } of files) this.fileNames.set(id, filename);
  }

  /** Shows the request that was sent. */
  sentCode(body) {
    showSnippets("The request of this answer", { method: "POST", path: "/v1/chat/completions", body });
  }

  /** Shows a request for an answer whose own request this page has not sent. */
  codeFor(question) {
    if (question === null) return null;
    return async () => {
      await this.composer.loaded;
      const body = this.composer.plainRequest(this.session, [{ role: "user", content: question }]);
      const request = { method: "POST", path: "/v1/chat/completions", body };
      showSnippets("A plain request with this message", request, "What else was sent is no longer known here.");
    };
  }

  append(element) {
    this.turns ??= this.transcript.appendChild(h("div.turns", null));
    this.turns.append(element);
    this.toEnd();
  }

  toEnd(force = false) {
    if (!force && !this.follows) return;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** Sends a message and shows its answer. */
  async send({ text, content = text, files = [], needsCode = false }) {
    if (this.busy || this.sends) return;
    this.sends = true;
    const session = this.sessionId();
    this.nameFiles(files);
    if (files.length)
      content = [
        ...(text ? [{ type: "text", text }] : []),
        ...files.map((file) => ({ type: "file", file: { file_id: file.id } })),
      ];
    if (this.isNew) {
      this.isNew = false;
      fill(this.transcript);
      this.turns = null;
      this.setTitle({ messages: [{ role: "user", content }] });
    }
    const body = await this.composer.request(session, content, needsCode);
    this.sends = false;
    const number = this.questions++;
    this.append(userMessage(content, this.fileNames, [this.forkButton(number)]));
    keepPending(session, { content, questions: number, files: files.map(({ id, filename }) => ({ id, filename })) });
    this.follows = true;
    const turn = await this.read((signal) => postStream("/v1/chat/completions", body, { signal }), {
      code: () => this.sentCode(body),
    });
    if (turn.failed && !turn.runId) this.composer.restore(textOf(content));
  }

  /** Follows a run that was started before. */
  async follow(runId, question) {
    await this.read((signal) => getStream(`${path`/v1/chat/completions/${runId}/events`}?after=0`, { signal }), {
      runId,
      code: this.codeFor(question),
    });
  }

  /** Reads the events of a run into a new turn. */
  async read(start, { runId, code }) {
    const { signal } = this.left;
    const turn = new TurnView(this.turnOptions());
    turn.runId = runId;
    turn.code = code;
    this.append(turn.element);
    this.setBusy(turn);
    document.dispatchEvent(new CustomEvent("sessions-changed"));
    try {
      const options = { signal, runId, onLost: () => turn.say("The connection is lost. Connecting again") };
      for await (const event of runEvents(() => start(signal), options)) {
        const isFirst = !turn.runId;
        turn.apply(event);
        if (isFirst && turn.runId) this.remember(turn.runId);
      }
    } catch (error) {
      if (!signal.aborted) turn.fail(error);
    }
    if (signal.aborted) return turn;
    turn.finish({ elapsed: !runId });
    this.setBusy(null);
    keepPending(this.session, null);
    document.dispatchEvent(new CustomEvent("sessions-changed"));
    const text = turn.text.slice(0, MAX_ANNOUNCED);
    announce(turn.failed ? `The answer failed: ${turn.failed.message}` : `Answer: ${text}`);
    this.toEnd();
    return turn;
  }

  remember(runId) {
    const pending = pendingOf(this.session);
    if (pending) keepPending(this.session, { ...pending, runId });
  }

  setBusy(turn) {
    this.busy = turn;
    this.composer.setBusy(Boolean(turn));
  }

  /** Escape stops the answer, unless it belongs to a dialog, to the menu, to an open list or to a decision. */
  stopOnEscape({ key, target, isComposing }) {
    if (key !== "Escape" || isComposing || !this.busy) return;
    const isHere = target === document.body || this.element.contains(target);
    const isElsewhere = document.querySelector("dialog[open]") || this.element.closest("[inert]");
    if (isHere && !isElsewhere && !target.closest("select, .approval")) this.stop();
  }

  async stop() {
    const turn = this.busy;
    if (!turn) return;
    turn.say("Stopping");
    const target = turn.runId
      ? path`/v1/chat/completions/${turn.runId}/cancel`
      : path`/v1/sessions/${this.session}/cancel`;
    try {
      await post(target, { mode: "abort" });
    } catch (error) {
      if (error.code !== "not_running") turn.fail(error);
    }
  }

  /** After the last decision about a turn that has no stream: its run goes on by itself, or with an empty request. */
  async goOn({ run_id: run, session_id: session }, turn) {
    const { signal } = this.left;
    try {
      const waiting = await waitingApprovals({ signal });
      if (this.busy || waiting.some((one) => one.session_id === session)) return;
      const runId = run ?? (await get(path`/v1/sessions/${session}`, { signal })).last_run;
      for (let check = 0; check < MAX_CHECKS && !signal.aborted; check += 1) {
        const { status, body } = await look(path`/v1/chat/completions/${runId}`, { signal });
        const isParked = status !== 202 && (status !== 200 || body.agent?.stop_reason === "approval_required");
        if (isParked) {
          await this.composer.loaded;
          const body = { ...this.composer.plainRequest(session, []), agent: { on_disconnect: "finish" } };
          // The stream begins with what this turn shows.
          turn.element.remove();
          await this.read((abort) => postStream("/v1/chat/completions", body, { signal: abort }), {
            code: () => this.sentCode(body),
          });
          return;
        }
        const isOver = status === 200;
        if (isOver || (await get(path`/v1/sessions/${session}`, { signal })).running) {
          await this.start();
          // The events are those after the decision; the session has what came before, too.
          if (!isOver && !signal.aborted) await this.start();
          return;
        }
        await pause(1000, signal);
      }
    } catch (error) {
      if (!signal.aborted) this.append(errorBox(error));
    }
  }

  leave() {
    this.left.abort();
    this.sizes.disconnect();
    this.composer.leave();
  }
}

/** Whether the last message of a turn has calls without results. */
function isOpen(turn) {
  const last = turn?.entries.at(-1)?.message;
  return Boolean(last && (last.role === "tool" || last.tool_calls?.length));
}

function filesOf(files) {
  return h(
    "details.session-files",
    null,
    h("summary", null, icon("chevron"), `Files of this session (${files.length})`),
    h(
      "div.file-list",
      null,
      files.map((file) => fileCard(file, { show: false })),
    ),
  );
}

function open(session) {
  location.hash = session ? `#/chat/${encodeURIComponent(session)}` : "#/chat";
}

export function chatView([session]) {
  const chat = new Chat(session);
  chat.start();
  return { element: chat.element, leave: () => chat.leave(), focus: () => chat.composer.focus(), ownsScroll: true };
}
