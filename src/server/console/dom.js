// Small helpers over the DOM: elements, texts for people, the clipboard, announcements for screen readers.

/**
 * Makes an element. Children that are strings become text, never markup.
 *
 * @param {string} tag name, with classes: "button.primary"
 * @param {object|null} attributes attributes; `on*` functions become listeners; `false` and `null` leave one out
 * @param {...(Node|string|number|null|false|Array)} children
 */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.classList.add(...String(value).split(" ").filter(Boolean));
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Replaces all children. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Shapes of icons on a grid of 16 by 16, drawn as lines. */
const ICONS = {
  chat: "M2.5 3.5h11v7.5h-6l-3 2.5v-2.5h-2z",
  sessions: "M2.5 4h11M2.5 8h11M2.5 12h7",
  runs: "M3 12.5V8.5M6.3 12.5v-9M9.6 12.5V6M13 12.5V9.5",
  approvals: "M8 1.8l5 2v4c0 3-2 5.3-5 6.4-3-1.1-5-3.4-5-6.4v-4zM5.7 7.8l1.7 1.7 3-3.2",
  tools: "M9.8 6.2a3.2 3.2 0 0 1-4.1 4.1L3.6 12.4a1 1 0 0 1-1.4-1.4M9.8 6.2l2.6-2.6a3.2 3.2 0 0 0-4.3 4.1l-5.9 3.3",
  permissions: "M4.5 7V5.2a3.5 3.5 0 0 1 7 0V7M3 7h10v6.5H3zM8 9.5v1.6",
  status: "M1.5 8.5h3l2-5 3 9 2-4h3",
  plus: "M8 3v10M3 8h10",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  code: "M5.5 4.5L2 8l3.5 3.5M10.5 4.5L14 8l-3.5 3.5",
  send: "M8 13V3.5M4 7.5l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  download: "M8 2.5v7.5M4.8 7L8 10.2 11.2 7M3 13.2h10",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  fork: "M4.5 4.8v6.4M4.5 4.8a1.4 1.4 0 1 0 0-.1M4.5 12.7a1.4 1.4 0 1 0 0-.1M11.5 5.6v.6c0 2-7 1.4-7 3.6M11.5 4.8a1.4 1.4 0 1 0 0-.1",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.3 4.5l.6 9h6.2l.6-9",
  refresh: "M13 8a5 5 0 1 1-1.5-3.6M13 2.5v3h-3",
  attach: "M12.8 7.4l-5 5a3 3 0 0 1-4.3-4.2l5.6-5.6a2 2 0 0 1 2.9 2.8l-5.5 5.5a1 1 0 0 1-1.5-1.4l4.8-4.8",
  sun: "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6M8 1.5v1.4M8 13.1v1.4M1.5 8h1.4M13.1 8h1.4M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  moon: "M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6z",
  auto: "M8 2.5a5.5 5.5 0 1 1 0 11zM8 2.5a5.5 5.5 0 1 0 0 11z",
  check: "M3.5 8.5l3 3 6-7",
  external: "M9.5 2.5h4v4M13.5 2.5L7.5 8.5M11.5 9.5v4h-9v-9h4",
  key: "M6.8 9.2a3 3 0 1 1 1-1l5.2 5.3M10.8 11.2l1.2-1.2",
  chevron: "M6 4l4 4-4 4",
};

/** An icon; it says nothing to screen readers. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name] ?? "");
  svg.append(path);
  return svg;
}

/** A button with an icon; the label is seen unless `quiet`. */
export function button(label, name, onclick, { quiet = false, ...attributes } = {}) {
  return h(
    "button.button",
    {
      type: "button",
      onclick,
      title: quiet ? label : null,
      ...attributes,
      class: `${quiet ? "quiet" : ""} ${attributes.class ?? ""}`,
    },
    name && icon(name),
    h("span", { class: quiet ? "hidden" : "" }, label),
  );
}

/** A button that copies a text and says so. */
export function copyButton(text, label = "Copy", attributes = { quiet: label === "Copy" }) {
  const copy = button(
    label,
    "copy",
    async () => {
      const copied = await copyText(text);
      announce(copied ? "Copied." : "The browser does not allow this page to copy.");
      const shown = copy.querySelector("span");
      shown.textContent = copied ? "Copied" : "Not copied";
      setTimeout(() => (shown.textContent = label), 1500);
    },
    attributes,
  );
  return copy;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without HTTPS there is no clipboard API on other hosts than this machine.
    const area = h("textarea.offscreen", { "aria-hidden": "true", value: text });
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

/** Says a text to screen readers, once. */
export function announce(text) {
  const region = document.getElementById("announcer");
  region.textContent = "";
  requestAnimationFrame(() => (region.textContent = text));
}

/** Calls a function when sessions, their runs or the calls that wait may have changed, until the signal. */
export function onChanges(callback, signal) {
  for (const name of ["sessions-changed", "approvals-changed"])
    document.addEventListener(name, () => callback(), { signal });
}

/** An error or a hint in a box. */
export function notice(kind, ...children) {
  return h("div.notice", { class: kind, role: kind === "error" ? "alert" : null }, ...children);
}

/** The box of what went wrong: the server's message names field, problem and remedy. */
export function errorBox(error, retry) {
  const detail = [error.status && `HTTP ${error.status}`, error.code].filter(Boolean).join(", ");
  return notice(
    "error",
    h("p", null, error.message || "Something went wrong."),
    detail && h("p.muted", null, detail),
    retry && button("Try again", "refresh", retry),
  );
}

/** Calls a function at most once for each frame that is drawn. */
export function perFrame(callback) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    const run = () => {
      due = false;
      callback();
    };
    // A tab in the background draws no frames.
    document.hidden ? setTimeout(run, 100) : requestAnimationFrame(run);
  };
}

const number = new Intl.NumberFormat("en");

export function count(value, one, many = `${one}s`) {
  return `${number.format(value)} ${value === 1 ? one : many}`;
}

export function plainNumber(value) {
  return number.format(value);
}

export function bytes(value) {
  if (!Number.isFinite(value)) return "";
  if (value < 1024) return count(value, "byte");
  const power = Math.min(3, Math.floor(Math.log2(value) / 10));
  return `${(value / 1024 ** power).toFixed(value / 1024 ** power < 10 ? 1 : 0)} ${["", "KiB", "MiB", "GiB"][power]}`;
}

export function duration(ms) {
  if (!Number.isFinite(ms)) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function dollars(value) {
  if (!Number.isFinite(value)) return "";
  return `$${value.toFixed(value !== 0 && value < 0.01 ? 5 : 2)}`;
}

/** A time as "5 min ago" or "in 3 h"; the whole time is its title. */
export function when(seconds) {
  const date = new Date(seconds * 1000);
  const distance = seconds - Date.now() / 1000;
  return h("time", { datetime: date.toISOString(), title: date.toLocaleString() }, relative(distance));
}

function relative(seconds) {
  const size = Math.abs(seconds);
  const [value, unit] =
    size < 45 ? [0, ""] : size < 3600 ? [size / 60, "min"] : size < 86_400 ? [size / 3600, "h"] : [size / 86_400, "d"];
  if (!unit) return seconds > 5 ? "in a moment" : "now";
  return seconds > 0 ? `in ${Math.round(value)} ${unit}` : `${Math.round(value)} ${unit} ago`;
}

// The characters that Unicode lets a program ignore, which are not seen, and blanks that look like no character at all.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\ufff9-\ufffb]/gu;

/**
 * Writes characters that cannot be seen, or that turn the direction of a text, as JSON escapes them. The text of a model must
 * not look like another one where a person decides.
 */
export function visible(text) {
  return text.replace(UNSEEN, (character) =>
    character === "\n"
      ? character
      : [...Array(character.length).keys()]
          .map((at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`)
          .join(""),
  );
}

/** An id that nobody else has. */
export function freshId(prefix) {
  const random = crypto.getRandomValues(new Uint8Array(12));
  return prefix + Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
