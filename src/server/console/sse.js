// Reads a stream of server-sent events, as a response body of `fetch` brings it.

/**
 * Yields `{event, data, id}` for each event that has data. Comments are left out.
 *
 * @param {ReadableStream<Uint8Array>} body
 */
export async function* events(body) {
  let current = { event: "", data: [], id: "" };
  for await (const line of lines(body)) {
    if (line === "") {
      if (current.data.length) yield { ...current, data: current.data.join("\n") };
      current = { event: "", data: [], id: current.id };
      continue;
    }
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") current.data.push(value);
    else if (field === "event" || field === "id") current[field] = value;
  }
}

/** The lines of a body. A long line is joined once, whatever the number of its pieces. */
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pieces = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      let start = 0;
      for (let end = value.indexOf("\n"); end >= 0; end = value.indexOf("\n", start)) {
        pieces.push(value.slice(start, end));
        const line = pieces.join("");
        pieces = [];
        start = end + 1;
        yield line.endsWith("\r") ? line.slice(0, -1) : line;
      }
      if (start < value.length) pieces.push(value.slice(start));
    }
  } finally {
    // Ends the request if the reader of the events has stopped early.
    reader.cancel().catch(() => {});
  }
}
