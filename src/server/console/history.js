// A session as the turns of a conversation: what was asked, and what the model and its tools made of it.

import { button, h } from "./dom.js";
import { systemMessage, TurnView, userMessage } from "./turn.js";

/**
 * Groups the messages of an exported session.
 *
 * @returns {Array<{kind: "system"|"user"|"answer", entries: Array<{message: object, meta: object, index: number}>}>}
 */
export function turnsOf(session) {
  const metas = new Map((session.agent?.message_meta ?? []).map((meta) => [meta.index, meta]));
  const turns = [];
  (session.messages ?? []).forEach((message, index) => {
    const entry = { message, meta: metas.get(index) ?? {}, index };
    const isQuestion = message.role === "user" && !entry.meta.hidden;
    const kind = isQuestion ? "user" : ["system", "developer"].includes(message.role) ? "system" : "answer";
    if (kind === "answer" && turns.at(-1)?.kind === "answer") turns.at(-1).entries.push(entry);
    else turns.push({ kind, entries: [entry] });
  });
  return turns;
}

/** The index in the export of the user message with this number, from 0. */
export function indexOfQuestion(session, number) {
  return turnsOf(session).filter((turn) => turn.kind === "user")[number]?.entries[0].index;
}

/** The view of a turn. An answer brings its `TurnView` along as `view`. */
export function viewOf(turn, { actions, fileNames, options }) {
  const [{ message }] = turn.entries;
  if (turn.kind === "system") return { element: systemMessage(message.content) };
  if (turn.kind === "user") return { element: userMessage(message.content, fileNames, actions(turn)) };
  const view = new TurnView(options);
  for (const entry of turn.entries) {
    // What the server has told the model besides, such as a reminder, is for the model.
    if (entry.message.role !== "user") view.past(entry.message, entry.meta);
  }
  return { element: view.element, view };
}

/**
 * The end of a long conversation, with a button that brings earlier turns.
 *
 * @param {number} shown how many turns are made at once
 */
export function transcriptOf(turns, makeElement, shown = 60) {
  const list = h("div.turns", null);
  let first = Math.max(0, turns.length - shown);
  list.append(...turns.slice(first).map(makeElement));
  const earlier = h("div.earlier", null);
  const bring = (howMany) => {
    const from = Math.max(0, first - howMany);
    const before = list.scrollHeight;
    list.prepend(...turns.slice(from, first).map(makeElement));
    first = from;
    draw();
    // What was in view stays in view.
    const scroller = list.closest(".scroller");
    if (scroller) scroller.scrollTop += list.scrollHeight - before;
  };
  const draw = () => {
    earlier.hidden = first === 0;
    earlier.replaceChildren(
      h("span.muted", null, `${first} earlier messages and answers`),
      button("Show more", null, () => bring(shown)),
      button("Show all", null, () => bring(first)),
    );
  };
  draw();
  return h("div.history", null, earlier, list);
}
