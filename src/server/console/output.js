// Long texts from tools: a part is shown at once, the rest on request, so that a line of a megabyte does not stop the page.

import { button, bytes, copyButton, count, fill, h } from "./dom.js";
import { prettyJson } from "./json.js";
import { codeBlock } from "./markdown.js";

/** Characters that are shown at once. */
const SHOWN = 12_000;
/** Characters of an element of a long text: the browser lays out only those that are in view. */
const PIECE = 20_000;
/** Characters of live output that are kept. */
const KEPT = 200_000;

/** A text of any length, as it stands. */
export function longText(text, label) {
  const box = h("div.output", null);
  const pre = (content) => h("pre", { tabindex: "0", "aria-label": label }, content);
  const bar = (...actions) => h("div.output-bar", null, ...actions, copyButton(text));
  if (text.length <= SHOWN) return fill(box, pre(text), bar());
  const all = button(`Show all (${count(text.length, "character")})`, null, () => {
    const pieces = [];
    for (let start = 0; start < text.length; start += PIECE) {
      pieces.push(h("span.piece", null, text.slice(start, start + PIECE)));
    }
    fill(box, pre(pieces), bar());
    box.querySelector("pre").focus();
  });
  return fill(
    box,
    pre(text.slice(0, SHOWN)),
    bar(h("span.muted", null, `The first ${count(SHOWN, "character")} are shown.`), all),
  );
}

/** A JSON value, or the text of one. */
export function jsonText(value, label) {
  const text = prettyJson(value);
  return text.length <= SHOWN && /^[[{]/.test(text) ? colouredText(text, "json", label) : longText(text, label);
}

/** Code with colours, if it is not too long. */
export function colouredText(text, language, label) {
  if (text.length > SHOWN) return longText(text, label);
  const pre = codeBlock(text, language);
  pre.setAttribute("aria-label", label);
  return h("div.output", null, pre, h("div.output-bar", null, copyButton(text)));
}

/** Output that arrives while a tool runs. Its end is shown. */
export class LiveOutput {
  constructor(label) {
    this.text = "";
    this.total = 0;
    this.pre = h("pre.live", { tabindex: "0", "aria-label": label });
    this.note = h("p.muted", { hidden: true });
    this.element = h("div.output", null, this.note, this.pre);
  }

  append(text) {
    this.total += text.length;
    this.text = (this.text + text).slice(-KEPT);
  }

  draw() {
    const follows = this.pre.scrollTop + this.pre.clientHeight >= this.pre.scrollHeight - 30;
    this.pre.textContent = this.text.slice(-SHOWN);
    this.note.hidden = this.total <= SHOWN;
    this.note.textContent = `The end of ${bytes(this.total)} is shown.`;
    if (follows) this.pre.scrollTop = this.pre.scrollHeight;
  }
}
