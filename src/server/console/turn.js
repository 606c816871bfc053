// The answer to one message: text, reasoning, calls, questions, files, sources and usage, in the order in which they come.
// It is fed by the events of a stream (live or read again) or by what a session keeps.

import { ApprovalCard } from "./approvals.js";
import { CallView, sourceList, textOf } from "./calls.js";
import { count, dollars, duration, errorBox, fill, h, icon, perFrame, plainNumber } from "./dom.js";
import { fileCard } from "./files.js";
import { MarkdownView } from "./markdown.js";
import { longText } from "./output.js";
import { explainUpstream, isOfUpstream } from "./readiness.js";

/** Longest text that is shown as Markdown. A longer one is shown as it is. */
const MAX_MARKDOWN = 100_000;

/** Why a turn ended, where that is not plain. */
const STOPS = {
  client_tools: "The model called a tool of the client. The console declares none.",
  approval_required: "The answer waits for a decision.",
  max_tool_rounds: "The limit of rounds was reached.",
  max_tool_calls: "The limit of calls was reached.",
  max_seconds: "The time limit was reached.",
  max_total_tokens: "The token limit was reached.",
  max_cost: "The cost limit was reached.",
  repeated_calls: "The model repeated the same calls.",
  terminated_by_tool: "A tool ended the turn.",
  cancelled: "The run was stopped.",
  content_filter: "The content filter of the model server ended the answer.",
  length: "The answer is cut off: the token limit of the model was reached.",
};

/** A growing text that is shown as it is: drawn again when it has grown by a fifth, and at its end. */
class PlainText {
  constructor(label) {
    this.label = label;
    this.element = h("div", null);
    this.drawn = -1;
  }

  draw(text, isWhole) {
    if (text.length === this.drawn || (text.length < this.drawn * 1.2 && !isWhole)) return;
    this.drawn = text.length;
    this.element.replaceChildren(longText(text, this.label));
  }
}

/** A text that grows. */
class TextItem {
  constructor() {
    this.text = "";
    this.view = new MarkdownView();
    this.element = h("div.text", null, this.view.element);
  }

  draw(sources) {
    if (!this.plain && this.text.length <= MAX_MARKDOWN && this.view.show(this.text, sources)) return;
    if (!this.plain) {
      this.plain = new PlainText("Long answer");
      this.element.replaceChildren(this.plain.element);
    }
    this.plain.draw(this.text, this.isWhole);
  }
}

/** What the model thought. */
class ReasoningItem {
  constructor() {
    this.text = "";
    this.plain = new PlainText("Reasoning");
    this.element = h("details.reasoning", null, h("summary", null, icon("chevron"), "Reasoning"), this.plain.element);
    this.element.addEventListener("toggle", () => this.draw());
  }

  draw() {
    if (this.element.open) this.plain.draw(this.text, this.isWhole || this.text.length < 4000);
  }
}

export class TurnView {
  /**
   * @param {{sources?: Map, onDecided?: function, onAsked?: function, onDrawn?: function, actions?: function}} [options]
   *   `sources` are those of the whole session, by number, as a later answer may cite an earlier one
   */
  constructor(options = {}) {
    this.options = options;
    this.calls = new Map();
    this.approvals = new Map();
    this.sources = options.sources ?? new Map();
    this.cited = new Map();
    this.files = new Set();
    this.notices = new Set();
    this.started = performance.now();
    this.items = h("div.turn-items", null);
    this.footer = h("footer.turn-footer", { hidden: true });
    this.working = h(
      "p.working",
      null,
      h("span.pulse", { "aria-hidden": "true" }),
      h("span.working-text", null, "Waiting for the model"),
    );
    this.element = h("article.turn.answer", { "aria-label": "Answer" }, this.items, this.working, this.footer);
    this.schedule = perFrame(() => this.draw());
    this.dirty = new Set();
    /** The texts and the reasoning. */
    this.growing = [];
  }

  /** The whole text, as a client gets it. */
  get text() {
    const texts = this.growing.filter((item) => item instanceof TextItem);
    return texts
      .map((item) => item.text.trim())
      .filter(Boolean)
      .join("\n\n");
  }

  /** One event of a stream: the JSON of a `data:` line. */
  apply(data) {
    if (data.id && !this.runId) this.runId = data.id;
    if (data.error) return this.fail({ message: textOf(data.error.message), code: data.error.code });
    switch (data.type) {
      case "agentic_tool_call_progress":
        return this.progress(data);
      case "agentic_tool_output":
        return this.call(data).output(String(data.text ?? ""));
      case "agentic_tool_approval_required":
        return this.ask(data);
      case "file_produced":
        return this.produced(data.file ?? {}, data.tool_call_id);
      case "agentic_notice":
        return this.notice(data.notice ?? data);
      default:
        return this.chunk(data);
    }
  }

  chunk(data) {
    const choice = data.choices?.[0];
    const delta = choice?.delta ?? {};
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? delta.reasoning_text;
    if (typeof reasoning === "string" && reasoning) this.addReasoning(reasoning);
    if (typeof delta.content === "string") this.addText(delta.content);
    if (typeof delta.refusal === "string") this.addText(delta.refusal);
    for (const annotation of delta.annotations ?? []) this.cite(annotation);
    if (data.usage) this.usage = data.usage;
    if (choice?.finish_reason) this.finishReason = choice.finish_reason;
    if (data.agent) this.summary(data.agent);
    if (data.session_id) this.sessionId = data.session_id;
  }

  addText(text) {
    if (!(this.last instanceof TextItem)) {
      // Blank lines between rounds.
      if (!text.trim()) return;
      text = text.replace(/^(?:[ \t]*\n)+/, "");
      this.last = this.put(new TextItem());
      this.growing.push(this.last);
    }
    this.last.text += text;
    this.say("Writing");
    this.redraw(this.last);
  }

  addReasoning(text) {
    if (!(this.last instanceof ReasoningItem)) {
      this.last = this.put(new ReasoningItem());
      this.growing.push(this.last);
    }
    this.last.text += text;
    this.say("Thinking");
    this.redraw(this.last);
  }

  put(item) {
    this.items.append(item.element);
    return item;
  }

  redraw(item) {
    this.dirty.add(item);
    this.schedule();
  }

  draw() {
    for (const item of this.dirty) item.draw(this.sources);
    this.dirty.clear();
    this.options.onDrawn?.();
  }

  /** The view of a call, made if it is new. */
  call({ tool_call_id: id, tool_name: name, round = 0 }) {
    const known = this.calls.get(id);
    if (known) return known;
    const call = new CallView({ id, name: String(name ?? "tool"), round });
    this.calls.set(id, call);
    if (!this.list || this.last !== this.list) {
      this.list = h("ol.calls", null);
      this.items.append(this.list);
      this.last = this.list;
    }
    this.list.append(call.element);
    return call;
  }

  progress(data) {
    const call = this.call(data);
    if (data.phase === "complete") {
      call.complete(data);
      this.closeApproval(data.tool_call_id);
      for (const result of data.data?.results ?? []) this.addSource(result);
    } else {
      call.calling(data.data);
    }
    this.sayCalls();
    this.options.onDrawn?.();
  }

  /** A call that waits for a person. */
  ask(data) {
    const name = typeof data.tool === "string" ? data.tool : data.tool?.label;
    const call = this.call({ ...data, tool_name: name });
    if (this.approvals.has(data.approval_id)) return;
    if (!call.arguments) call.setArguments(data.arguments);
    call.setStatus("waiting");
    const card = new ApprovalCard({ ...data, tool: name }, (answer, { decision }) => {
      call.decided(decision, answer.status === "resolved");
      this.sayCalls();
      this.options.onDecided?.(answer, data, this);
    });
    this.approvals.set(data.approval_id, { card, callId: data.tool_call_id });
    call.shown.append(card.element);
    this.sayCalls();
    this.options.onAsked?.(name);
    document.dispatchEvent(new CustomEvent("approvals-changed"));
  }

  /** Asks about the calls that wait now. A call of their batch that has no result is decided. */
  askAll(waiting) {
    for (const approval of waiting) this.ask(approval);
    if (!waiting.length) return;
    for (const call of this.calls.values()) {
      if (call.status === "past" && !call.hasResult) call.setStatus("decided");
    }
  }

  closeApproval(callId) {
    for (const [id, { card, callId: of }] of this.approvals) {
      if (of !== callId) continue;
      card.element.remove();
      this.approvals.delete(id);
    }
  }

  produced(file, callId) {
    if (!file.id || this.files.has(file.id)) return;
    this.files.add(file.id);
    const call = this.calls.get(callId) ?? [...this.calls.values()].pop();
    call ? call.addFile(file) : this.put({ element: fileCard(file) });
  }

  notice({ kind, message }) {
    const text = String(message ?? kind ?? "");
    if (!text || this.notices.has(text)) return;
    this.notices.add(text);
    this.put({ element: h("p.turn-notice", null, text) });
    this.last = null;
  }

  cite(annotation) {
    const { url, title, start_index: start, end_index: end } = annotation.url_citation ?? {};
    if (!url) return;
    const mark = Array.from(this.text).slice(start, end).join("");
    const number = Number(/^\[(\d+)\]$/.exec(mark)?.[1] ?? NaN);
    this.cited.set(url, { number, url, title });
    this.addSource({ number, url, title });
  }

  addSource({ number, url, title }) {
    if (Number.isFinite(number))
      this.sources.set(number, { number, url: String(url ?? ""), title: String(title ?? "") });
  }

  /** The sources that the text names by their numbers, and those of annotations. */
  citedSources() {
    for (const [, numbers] of this.text.matchAll(/\[(\d{1,4}(?:, ?\d{1,4})*)\]/g)) {
      for (const number of numbers.split(",").map(Number)) {
        const source = this.sources.get(number);
        if (source) this.cited.set(source.url, source);
      }
    }
    return [...this.cited.values()].sort((one, other) => one.number - other.number);
  }

  summary(agent) {
    this.agent = agent;
    for (const one of agent.notices ?? []) this.notice(one);
    for (const approval of agent.approvals ?? []) this.ask(approval);
  }

  /** Says what the calls do, or that the model is next. */
  sayCalls() {
    const names = (status) => [...this.calls.values()].filter((one) => one.status === status).map((one) => one.name);
    const running = names("running");
    const isWaiting = names("waiting").length > 0;
    this.working.classList.toggle("waits", isWaiting);
    if (isWaiting) this.say("Waiting for your decision");
    else this.say(running.length ? `Running ${running.join(", ")}` : "Waiting for the model");
  }

  say(text) {
    this.working.lastChild.textContent = text;
  }

  fail(error) {
    this.failed = error;
    const box = errorBox(error);
    this.put({ element: box });
    if (isOfUpstream(error)) explainUpstream(box);
    this.last = null;
  }

  /** The end of the stream: sources, usage, and a word about an early end. */
  finish({ elapsed = true } = {}) {
    this.working.remove();
    for (const item of this.growing) {
      item.isWhole = true;
      this.dirty.add(item);
    }
    this.draw();
    for (const call of this.calls.values()) {
      if (call.status !== "running") continue;
      const isCancelled = this.agent?.stop_reason === "cancelled";
      call.setStatus(isCancelled ? "cancelled" : this.failed ? "interrupted" : "past");
    }
    const stop = STOPS[this.agent?.stop_reason] ?? (this.finishReason === "length" ? STOPS.length : null);
    if (stop) this.notice({ message: stop });
    this.items.querySelector(".cited")?.remove();
    const cited = this.citedSources();
    if (cited.length) {
      this.items.append(h("section.cited", { "aria-label": "Sources" }, h("h4", null, "Sources"), sourceList(cited)));
    }
    const facts = this.facts(elapsed ? performance.now() - this.started : NaN);
    this.footer.hidden = false;
    fill(this.footer, facts.length > 0 && h("span.usage", null, facts.join(" · ")), this.options.actions?.(this));
  }

  facts(elapsed) {
    const { usage, agent } = this;
    const cost = agent?.cost_usd ?? usage?.cost;
    return [
      usage && `${plainNumber(usage.prompt_tokens ?? 0)} tokens in`,
      usage && `${plainNumber(usage.completion_tokens ?? 0)} out`,
      agent?.rounds ? count(agent.rounds, "round") : null,
      agent?.model_calls ? count(agent.model_calls, "model call") : null,
      Number.isFinite(cost) && dollars(cost),
      Number.isFinite(elapsed) && duration(elapsed),
    ].filter(Boolean);
  }

  /** Adds messages of a session: of the model and of its tools. */
  past(message, meta = {}) {
    if (message.role === "assistant") {
      const reasoning = message.reasoning_content ?? message.reasoning ?? message.reasoning_text;
      if (typeof reasoning === "string" && reasoning) this.addReasoning(reasoning);
      const text = textOf(message.content) || textOf(message.refusal);
      this.last = null;
      if (text) this.addText(text);
      for (const annotation of message.annotations ?? []) this.cite(annotation);
      for (const call of message.tool_calls ?? []) {
        const view = this.call({ tool_call_id: call.id, tool_name: call.function?.name ?? call.custom?.name });
        view.setArguments(call.function?.arguments ?? call.custom?.input);
        view.setStatus("past");
      }
    } else if (message.role === "tool") {
      this.calls.get(message.tool_call_id)?.past(message.content, { fullText: meta.full_text, sources: meta.sources });
      for (const source of meta.sources ?? []) this.addSource(source);
    }
  }

  /** Adds to what a session keeps what the answer of the run tells besides. Its approvals may be decided by now. */
  enrich(completion) {
    const entries = completion.agentic_tool_calls ?? [];
    for (const file of completion.files ?? []) {
      this.produced(file, entries.find((entry) => entry.file_ids?.includes(file.id))?.tool_call_id);
    }
    for (const entry of entries) this.calls.get(entry.tool_call_id)?.enrich(entry);
    this.usage = completion.usage;
    this.summary({ ...completion.agent, approvals: [] });
  }
}

/**
 * A message of the user.
 *
 * @param {Map<string, string>} fileNames the names of the files that are known, by their ids
 */
export function userMessage(content, fileNames, actions = []) {
  const text = textOf(content);
  const others = (Array.isArray(content) ? content : []).filter((part) => part?.type && part.type !== "text");
  return h(
    "article.turn.question",
    { "aria-label": "Your message" },
    text.length > 20_000 ? longText(text, "Your message") : h("div.question-text", null, text),
    others.map(({ type, file = {} }) =>
      h("p.muted", null, icon("attach"), ` ${fileNames.get(file.file_id) ?? file.filename ?? file.file_id ?? type}`),
    ),
    actions.length ? h("div.turn-actions", null, actions) : null,
  );
}

export function systemMessage(content) {
  return h(
    "details.instructions",
    null,
    h("summary", null, icon("chevron"), "Instructions"),
    longText(textOf(content), "Instructions"),
  );
}
