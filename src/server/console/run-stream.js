// Follows a run: reads its stream, and after a lost connection goes on where it was, as the server keeps the events.

import { ApiError, getStream, path } from "./api.js";
import { parseJson } from "./json.js";

/** Waits before the stream of a run is opened again. */
const WAITS = [300, 1000, 2000, 4000, 8000];

/**
 * Yields the JSON of each event of a run up to its end.
 *
 * @param {function} start opens the first stream, and yields its events
 * @param {{signal: AbortSignal, runId?: string, onLost?: function}} options
 */
export async function* runEvents(start, { signal, runId, onLost }) {
  let seen = 0;
  let failures = 0;
  let open = start;
  for (;;) {
    try {
      for await (const { data } of open()) {
        seen += 1;
        failures = 0;
        if (data === "[DONE]") return;
        const event = parseJson(data);
        runId ??= event.id;
        yield event;
      }
    } catch (error) {
      // The server's own word is final; what broke on the way is not.
      if (signal.aborted || (error instanceof ApiError && error.status)) throw error;
    }
    if (signal.aborted) return;
    if (!runId || failures >= WAITS.length)
      throw new ApiError("The connection to the answer is lost. Open the session again to see how far it came.");
    onLost?.();
    await pause(WAITS[failures], signal);
    failures += 1;
    const after = seen;
    open = () => getStream(`${path`/v1/chat/completions/${runId}/events`}?after=${after}`, { signal });
  }
}

/** Waits, unless the signal ends the wait. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
