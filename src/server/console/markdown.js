// Markdown of models as DOM, safely. Markup that a model writes is shown as text; what marked makes goes through
// DOMPurify with short lists of tags and attributes. This is the only place where HTML is parsed, and it yields nodes:
// no string is ever written into the page as markup.

import { Marked } from "/ui/vendor/marked.esm.js";
import DOMPurify from "/ui/vendor/purify.es.js";
import hljs from "/ui/vendor/highlight.js";
import { copyButton, h } from "./dom.js";

/** Longest code that is coloured. */
const MAX_COLOURED = 20_000;
/** Milliseconds after which a text is shown as it is, as a growing one is rendered again and again. */
const MAX_TIME = 400;
/** Most marks of emphasis in a paragraph: each is compared with those before it. */
const MAX_MARKS = 1500;
const SCHEMES = /^(?:https?|mailto):/i;

const TAGS =
  "p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong del a sup span table thead tbody tr th td";
const ALLOWED = {
  ALLOWED_TAGS: TAGS.split(" "),
  ALLOWED_ATTR: ["href", "title", "class", "start", "align"],
  ALLOWED_URI_REGEXP: SCHEMES,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A" && node.hasAttribute("href")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
});

/** The sources of the text that is being rendered, by number. */
let sources = new Map();

const marked = new Marked({
  gfm: true,
  breaks: false,
  extensions: [
    {
      // A mark such as [2] or [2, 5] that stands for sources.
      name: "citation",
      level: "inline",
      start: (text) => text.indexOf("["),
      tokenizer(text) {
        const mark = /^\[(\d{1,4}(?:, ?\d{1,4})*)\](?![[(])/.exec(text);
        const numbers = mark?.[1].split(",").map(Number) ?? [];
        if (!mark || !numbers.every((number) => sources.has(number))) return undefined;
        return { type: "citation", raw: mark[0], numbers };
      },
      renderer({ numbers }) {
        const links = numbers.map((number) => link(sources.get(number).url, `[${number}]`, sources.get(number).title));
        return `<sup class="citation">${links.join(" ")}</sup>`;
      },
    },
  ],
  renderer: {
    html: ({ text }) => escape(text),
    link({ href, title, tokens }) {
      return link(href, this.parser.parseInline(tokens), title, true);
    },
    // Nothing is fetched from another host: an image is a link.
    image: ({ href, title, text }) => link(href, `Image: ${text || href}`, title),
    code: ({ text, lang }) => `<pre><code class="hljs">${coloured(text, lang)}</code></pre>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

function escape(text) {
  return String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

function link(href, text, title, isMarkup = false) {
  const shown = isMarkup ? text : escape(text);
  if (!SCHEMES.test(href ?? "")) return isMarkup ? shown : `${shown} (${escape(href)})`;
  return `<a href="${escape(href)}"${title ? ` title="${escape(title)}"` : ""}>${shown}</a>`;
}

/** Markup of coloured code; it still has to be sanitised. */
function coloured(text, language) {
  const known = hljs.getLanguage((language ?? "").trim().split(/\s+/)[0]);
  if (!known || text.length > MAX_COLOURED) return escape(text);
  return hljs.highlight(text, { language: language.trim().split(/\s+/)[0], ignoreIllegals: true }).value;
}

function sanitised(markup) {
  const fragment = DOMPurify.sanitize(markup, ALLOWED);
  for (const pre of fragment.querySelectorAll("pre")) {
    const code = pre.textContent;
    pre.tabIndex = 0;
    const block = h("div.codeblock", null);
    pre.replaceWith(block);
    block.append(pre, copyButton(code));
  }
  for (const table of fragment.querySelectorAll("table")) {
    const scroll = h("div.scroll", { tabindex: "0", role: "group", "aria-label": "Table" });
    table.replaceWith(scroll);
    scroll.append(table);
  }
  return fragment;
}

function isHeavy(text) {
  return (
    text.length > MAX_MARKS && text.split(/\n[ \t]*\n/).some((part) => (part.match(/[*_~]/g)?.length ?? 0) > MAX_MARKS)
  );
}

/** Code with colours. */
export function codeBlock(text, language) {
  const pre = h("pre", { tabindex: "0" });
  const code = h("code.hljs", null);
  code.append(DOMPurify.sanitize(coloured(text, language), ALLOWED));
  pre.append(code);
  return pre;
}

/**
 * Renders a text that grows. Blocks that have not changed since the last time keep their nodes, so that a long answer
 * costs only its last block for each frame, and what is selected or scrolled above stays.
 */
export class MarkdownView {
  constructor() {
    this.element = h("div.prose", null);
    this.blocks = [];
  }

  /**
   * Returns whether the text could be rendered: a text that nests too deeply, or takes too long, is to be shown as it is.
   *
   * @param {Map<number, {url: string, title: string}>} [cited]
   */
  show(text, cited = new Map()) {
    if (isHeavy(text)) return false;
    sources = cited;
    const start = performance.now();
    try {
      const tokens = marked.lexer(text).filter((token) => token.type !== "space" && token.type !== "def");
      tokens.forEach((token, index) => this.block(token, index, cited.size));
      for (const { element } of this.blocks.splice(tokens.length)) element.remove();
    } catch {
      return false;
    }
    return performance.now() - start < MAX_TIME;
  }

  block(token, index, version) {
    const known = this.blocks[index];
    if (known && known.raw === token.raw && known.version === version) return;
    const element = known?.element ?? this.element.appendChild(h("div.block", null));
    element.replaceChildren(...sanitised(marked.parser([token])).childNodes);
    this.blocks[index] = { raw: token.raw, version, element };
  }
}
