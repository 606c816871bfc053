// What this tab keeps of a session besides the server: the question of a run that may not be stored yet, so that a reload comes
// back to it, and a message that is not sent yet.

const PREFIX = "loopwright.pending.";
const DRAFT = "loopwright.draft.";

/** @returns {{content: any, questions: number, files?: Array<{id: string, filename: string}>, runId?: string}|null} */
export function pendingOf(session) {
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + session));
  } catch {
    return null;
  }
}

/** @param {ReturnType<typeof pendingOf>} pending `null` when all of it is stored */
export function keepPending(session, pending) {
  if (!pending) return sessionStorage.removeItem(PREFIX + session);
  try {
    return sessionStorage.setItem(PREFIX + session, JSON.stringify(pending));
  } catch {
    // The message is larger than what a browser keeps: a reload shows it once it is stored.
    return sessionStorage.removeItem(PREFIX + session);
  }
}

/** The sessions of this tab with a run that may not be stored yet. */
export function pendingSessions() {
  const sessions = Object.keys(sessionStorage)
    .filter((key) => key.startsWith(PREFIX))
    .map((key) => key.slice(PREFIX.length));
  return sessions.map((id) => ({ id, ...pendingOf(id) })).filter((session) => session.runId);
}

/** Keeps a message that is not sent yet; without a session it belongs to the next new chat. */
export function keepDraft(session, text) {
  try {
    sessionStorage.setItem(DRAFT + (session ?? ""), text);
  } catch {
    // It is larger than what a browser keeps.
  }
}

export function takeDraft(session) {
  const text = sessionStorage.getItem(DRAFT + (session ?? "")) ?? "";
  sessionStorage.removeItem(DRAFT + (session ?? ""));
  return text;
}
