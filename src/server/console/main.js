// The frame of the console: which view the address names, the navigation beside it, and what all views share.

import { apiKey, onKeyNeeded, setApiKey } from "./api.js";
import { approvalsView, callsWait, sessionMark, waitingApprovals } from "./approvals.js";
import { chatView } from "./chat.js";
import { askForKey } from "./dialog.js";
import { announce, button, fill, h, icon, onChanges } from "./dom.js";
import { permissionsView } from "./permissions.js";
import { askReadiness, lightOf } from "./readiness.js";
import { runsView } from "./runs.js";
import { forget } from "./server.js";
import { listSessions, sessionsView } from "./sessions.js";
import { statusView } from "./status.js";
import { themeButton } from "./theme.js";
import { toolsView } from "./tools.js";

const VIEWS = {
  chat: { title: "Chat", make: chatView },
  sessions: { title: "Sessions", make: sessionsView },
  runs: { title: "Runs", make: runsView },
  approvals: { title: "Approvals", make: approvalsView },
  tools: { title: "Tools", make: toolsView },
  permissions: { title: "Permissions", make: permissionsView },
  status: { title: "Status", make: statusView },
};

/** Sessions of the list beside the views. */
const RECENT = 12;
/** Milliseconds between two looks at what others may have changed. */
const LOOK_EVERY = 15_000;

const main = document.getElementById("main");
const side = document.getElementById("side");
const menu = document.getElementById("menu");
const shade = document.getElementById("shade");
const badge = h("span.badge.count", { hidden: true });
const light = h("span.light", { role: "img", hidden: true });

let current = null;
/** What is drawn beside the views. */
let drawn = null;

/** The view and its parts, as in #/chat/SESSION. */
function address() {
  const [name, ...parts] = location.hash.replace(/^#\/?/, "").split("/");
  const decoded = parts.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return [VIEWS[name] ? name : "chat", decoded];
}

function show() {
  const [name, parts] = address();
  const isFirst = current === null;
  current?.leave?.();
  closeMenu();
  current = VIEWS[name].make(parts);
  main.classList.toggle("fixed", Boolean(current.ownsScroll));
  fill(main, current.element);
  main.scrollTop = 0;
  document.title = `${VIEWS[name].title} – loopwright`;
  mark(name, parts[0]);
  if (!isFirst) main.querySelector("h1")?.focus({ preventScroll: true });
  current.focus?.();
}

function mark(name, part) {
  for (const link of document.querySelectorAll("#nav a, #recent a")) {
    const isHere = link.dataset.view === name && (link.dataset.part ?? "") === (name === "chat" ? (part ?? "") : "");
    isHere ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
}

function navigation() {
  const links = Object.entries(VIEWS).map(([name, { title }]) =>
    h(
      "li",
      null,
      h(
        "a",
        { href: `#/${name}`, "data-view": name },
        icon(name === "chat" ? "plus" : name),
        name === "chat" ? "New chat" : title,
        { approvals: badge, status: light }[name],
      ),
    ),
  );
  fill(document.getElementById("nav"), h("ul", null, links));
  for (const link of document.querySelectorAll('a[href="#/chat"]')) {
    // A second click on it begins anew, too.
    link.addEventListener("click", () => location.hash === "#/chat" && show());
  }
}

/** Shows how many calls wait, and the recent sessions with what they do. Returns whether this has changed. */
async function drawSide({ says = false } = {}) {
  try {
    const [waiting, { data }] = await Promise.all([
      waitingApprovals({ quiet: true }),
      listSessions(RECENT, null, { quiet: true }),
    ]);
    const state = JSON.stringify([
      waiting.map((approval) => approval.approval_id),
      data.map(({ id, title, running }) => [id, title, running]),
    ]);
    if (state === drawn) return false;
    drawn = state;
    drawBadge(waiting.length, says);
    drawRecent(data, new Set(waiting.map((approval) => approval.session_id)));
    return true;
  } catch {
    // The views say what is wrong.
    badge.hidden = true;
    drawn = null;
    return false;
  }
}

/** New calls are read out unless the chat has done so. */
function drawBadge(number, says) {
  if (says && number > Number(badge.textContent)) announce(callsWait(number));
  badge.textContent = number;
  badge.hidden = number === 0;
  badge.setAttribute("aria-label", `${number} waiting`);
}

function drawRecent(sessions, waiting) {
  fill(
    document.getElementById("recent"),
    sessions.map((session) =>
      h(
        "li",
        null,
        h(
          "a",
          { href: `#/chat/${encodeURIComponent(session.id)}`, "data-view": "chat", "data-part": session.id },
          h("span.cut", null, session.title || session.id),
          waiting.has(session.id)
            ? sessionMark(session, waiting)
            : session.running && h("span.running-dot", { role: "img", "aria-label": "running" }),
        ),
      ),
    ),
  );
  const [name, parts] = address();
  mark(name, parts[0]);
}

/** What others may have changed: the calls that wait, the sessions, and whether the server is ready. */
async function lookAround() {
  askReadiness();
  const isFirst = drawn === null;
  if ((await drawSide({ says: true })) && !isFirst) document.dispatchEvent(new CustomEvent("sessions-changed"));
}

function closeMenu() {
  side.classList.remove("open");
  shade.hidden = true;
  main.inert = false;
  menu.setAttribute("aria-expanded", "false");
}

menu.addEventListener("click", () => {
  const opens = menu.getAttribute("aria-expanded") !== "true";
  side.classList.toggle("open", opens);
  shade.hidden = !opens;
  main.inert = opens;
  menu.setAttribute("aria-expanded", String(opens));
  if (opens) side.querySelector("nav a").focus();
});
shade.addEventListener("click", closeMenu);
document.querySelector(".skip").addEventListener("click", (event) => {
  // The address names the view, not a place in it.
  event.preventDefault();
  main.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !side.classList.contains("open")) return;
  closeMenu();
  menu.focus();
});

function footer() {
  const forgetKey = button("Forget the key", "key", () => {
    setApiKey(null);
    forget();
    footer();
    announce("The API key is forgotten.");
  });
  fill(document.getElementById("side-footer"), themeButton(), apiKey() && forgetKey);
}

onKeyNeeded(async () => {
  const isGiven = await askForKey();
  if (isGiven) {
    forget();
    footer();
    lookAround();
  }
  return isGiven;
});

onChanges(drawSide);
document.addEventListener("readiness", ({ detail }) => {
  const [level, words] = lightOf(detail);
  light.hidden = false;
  light.dataset.level = level;
  light.title = words;
  light.setAttribute("aria-label", words);
});
document.addEventListener("chat-opened", (event) => mark("chat", event.detail));
document.addEventListener("visibilitychange", () => !document.hidden && lookAround());
window.addEventListener("hashchange", show);
setInterval(() => !document.hidden && lookAround(), LOOK_EVERY);

navigation();
footer();
show();
lookAround();
