// A call of a tool as a fold: its head says tool, arguments, status and time; its body has everything that is known.

import { get, path } from "./api.js";
import { colouredText, jsonText, LiveOutput, longText } from "./output.js";
import { count, dollars, duration, fill, h, icon, perFrame } from "./dom.js";
import { parseJson } from "./json.js";
import { fileCard, pngImage, showImage } from "./files.js";

/** The tool whose argument is code, and that has output of its own. */
const CODE_TOOL = "execute_python";

/** What a status is called, and the mark beside it. */
const STATUS = {
  running: ["running", "…"],
  waiting: ["waits for you", "?"],
  allowed: ["allowed", "✓"],
  decided: ["decided", "·"],
  ok: ["done", "✓"],
  error: ["error", "!"],
  denied: ["denied", "✕"],
  timeout: ["timed out", "!"],
  cancelled: ["cancelled", "✕"],
  suppressed: ["held back", "✕"],
  interrupted: ["interrupted", "!"],
  past: ["", "·"],
};

export class CallView {
  constructor({ id, name, round }) {
    this.id = id;
    this.name = name;
    this.round = round;
    this.status = "running";
    this.started = performance.now();
    this.files = new Map();
    this.images = new Set();
    this.mark = h("span.call-mark", { "aria-hidden": "true" });
    this.brief = h("span.call-brief", null);
    this.state = h("span.call-state", null);
    this.summary = h(
      "summary",
      null,
      this.mark,
      h("span.call-name", null, name),
      this.brief,
      this.state,
      icon("chevron"),
    );
    this.body = h("div.call-body", null);
    /** Beside the fold, so that plots, files and questions are seen while it is closed. */
    this.shown = h("div.call-shown", null);
    this.fold = h("details.call", null, this.summary, this.body);
    this.element = h("li.call-item", null, this.fold, this.shown);
    this.sections = new Map();
    this.drawOutput = perFrame(() => this.live?.draw());
    // The body is made when it is first opened: most folds stay closed.
    this.fold.addEventListener("toggle", () => this.fold.open && this.fillBody());
    this.setStatus("running");
    this.ticking = setInterval(() => (this.element.isConnected ? this.drawState() : this.stopTicking()), 1000);
  }

  stopTicking() {
    clearInterval(this.ticking);
  }

  setStatus(status) {
    this.status = STATUS[status] ? status : "error";
    this.fold.dataset.status = this.status;
    this.mark.textContent = STATUS[this.status][1];
    if (!["running", "waiting"].includes(this.status)) this.stopTicking();
    this.drawState();
  }

  drawState() {
    const words = STATUS[this.status][0];
    const elapsed =
      this.status === "running" && performance.now() - this.started >= 1000 ? performance.now() - this.started : NaN;
    const time = duration(this.durationMs ?? elapsed);
    const cost = dollars(this.cost);
    this.state.textContent = [words, time, cost].filter(Boolean).join(" · ");
  }

  /** A person has decided. The events of the run may have told more by now. */
  decided(decision, isResumed) {
    if (this.status !== "waiting") return;
    this.started = performance.now();
    const status = { approve: isResumed ? "running" : "allowed", deny: "denied", expired: "denied" }[decision];
    this.setStatus(status ?? "decided");
  }

  section(title, make) {
    this.sections.set(title, make);
    if (this.fold.open) this.fillBody();
  }

  fillBody() {
    const parts = [];
    for (const [title, make] of this.sections) {
      const content = make();
      if (content) parts.push(h("section", null, h("h4", null, title), content));
    }
    parts.push(h("p.call-id.muted", null, `${this.id}, round ${this.round + 1}`));
    fill(this.body, parts);
    this.live?.draw();
  }

  /** What the model asked for: an object, or the text of one. */
  setArguments(value) {
    const object = parsed(value);
    this.arguments = object;
    this.brief.textContent = brief(object);
    if (this.name === CODE_TOOL && typeof object?.code === "string") {
      this.brief.textContent = briefOfCode(object.code);
      this.section("Code", () => colouredText(object.code, "python", "Code"));
    } else {
      this.section("Arguments", () => jsonText(value ?? {}, "Arguments"));
    }
  }

  calling(data = {}) {
    const { tool_type: _, arguments: given, ...others } = data;
    this.setArguments(given ?? others);
  }

  output(text) {
    if (!this.live) {
      this.live = new LiveOutput("Output so far");
      this.section("Output", () => this.live.element);
    }
    this.live.append(text);
    this.brief.textContent = lastLine(this.live.text) || this.brief.textContent;
    this.drawOutput();
  }

  /** The event `complete`. */
  complete(event) {
    const data = event.data ?? {};
    this.durationMs = event.duration_ms;
    this.cost = event.cost_usd ?? data.cost_usd;
    if (data.arguments !== undefined || data.code !== undefined) this.calling(data);
    else if (this.arguments) this.setArguments(this.arguments);
    this.results(data);
    this.setStatus(event.status ?? "ok");
    // The images of code are files as well, and are shown already.
    if (!data.images_base64?.length) this.addFiles(event.file_ids ?? []);
  }

  results(data) {
    const texts = { Output: data.stdout, Errors: data.stderr, Result: data.result, Exception: data.exception };
    if (data.stdout) this.live = null;
    for (const [title, text] of Object.entries(texts)) {
      if (typeof text === "string" && text) this.section(title, () => longText(text, title));
    }
    if (data.content !== undefined && data.content !== null && data.content !== "") {
      this.section("Result", () => jsonText(textOf(data.content), "Result"));
    }
    if (Array.isArray(data.results) && data.results.length) {
      this.section("Results", () => sourceList(data.results));
      this.brief.textContent = `${this.brief.textContent} — ${count(data.results.length, "result")}`;
    }
    for (const image of data.images_base64 ?? []) this.addPng(image);
  }

  addPng(base64) {
    // A figure is often saved as a file, too, and would be seen twice.
    if (typeof base64 !== "string" || this.images.has(base64)) return;
    this.images.add(base64);
    const image = pngImage(base64, `Image of ${this.name}`);
    if (image) this.shown.append(image);
  }

  addFile(file) {
    if (this.files.has(file.id)) return;
    const isShown = this.images.has(file.data);
    if (file.data && file.mime_type === "image/png") this.images.add(file.data);
    const card = fileCard(file, { show: !isShown });
    this.files.set(file.id, card);
    this.shown.append(card);
  }

  /** Files of which only the ids are known, such as the images of a webhook. */
  async addFiles(ids) {
    for (const id of ids.filter((one) => !this.files.has(one))) {
      try {
        this.addFile(await get(path`/v1/files/${id}`, { quiet: true }));
      } catch {
        this.section("Files", () => h("p.mono", null, ids.join("\n")));
      }
    }
  }

  /** The result as a session has it: a text, or parts. */
  past(content, { fullText, sources = [] } = {}) {
    this.hasResult = true;
    const text = fullText ?? textOf(content);
    if (text) this.section("Result", () => jsonText(text, "Result"));
    if (sources.length) this.section("Sources", () => sourceList(sources));
    for (const part of Array.isArray(content) ? content : []) {
      const id = part?.image_file?.file_id;
      if (typeof id !== "string") continue;
      this.hasStoredImages = true;
      showImage(this.shown, id, `Image of ${this.name}`);
    }
    this.setStatus("past");
  }

  /** What an entry of `agentic_tool_calls` tells besides. */
  enrich(entry) {
    this.durationMs = entry.duration_ms;
    this.cost = entry.cost_usd;
    this.round = entry.round;
    if (!this.hasStoredImages) for (const image of entry.result_images_base64 ?? []) this.addPng(image);
    this.setStatus(entry.status);
  }
}

function parsed(value) {
  if (typeof value !== "string") return value;
  try {
    return parseJson(value);
  } catch {
    return value;
  }
}

/** One line about arguments. */
function brief(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "object") return String(value).slice(0, 200);
  const parts = Object.entries(value).map(([key, member]) => {
    const text = typeof member === "string" ? member.slice(0, 120) : JSON.stringify(member)?.slice(0, 120);
    return Object.keys(value).length === 1 && typeof member === "string" ? text : `${key}: ${text}`;
  });
  return parts.join(", ").replace(/\s+/g, " ").slice(0, 200);
}

/** The code if it is one line, else how many lines it has. */
function briefOfCode(code) {
  const lines = code.trim().split("\n");
  return lines.length === 1 ? lines[0].slice(0, 200) : `${lines.length} lines of Python`;
}

function lastLine(text) {
  return text.slice(-400).trimEnd().split("\n").pop().slice(-160);
}

/** The text of a content that may be parts. */
export function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content === null || content === undefined ? "" : JSON.stringify(content);
  return content
    .map((part) => (typeof part?.text === "string" ? part.text : ""))
    .filter(Boolean)
    .join("\n");
}

/** Sources with number, title and host. */
export function sourceList(sources) {
  return h(
    "ol.sources",
    null,
    sources.map((source) => {
      const url = String(source.url ?? "");
      const title = String(source.title || url);
      const isWeb = /^https?:/i.test(url);
      return h(
        "li",
        { value: Number.isFinite(source.number) ? source.number : null },
        isWeb ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, title) : title,
        isWeb && h("span.muted", null, ` ${hostOf(url)}`),
      );
    }),
  );
}

function hostOf(url) {
  try {
    return new URL(url).host;
  } catch {
    return "";
  }
}
