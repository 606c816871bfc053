// JSON as people see it, without a digit lost: a long number keeps its text, as in the number of an account.

const LONG = /\d{16}/;

/** Parses JSON. A number that JavaScript would round is kept as it is written, where the browser can. */
export function parseJson(text) {
  return JSON.rawJSON && LONG.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

function exact(_key, value, { source }) {
  return typeof value === "number" && LONG.test(source) && String(value) !== source ? JSON.rawJSON(source) : value;
}

/** Pretty JSON of a value, or of a text if it is JSON; another text stays as it is. */
export function prettyJson(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  try {
    const parsed = parseJson(value);
    return parsed !== null && typeof parsed === "object" ? JSON.stringify(parsed, null, 2) : value;
  } catch {
    return value;
  }
}

/** A JSON object that a person has written; throws what is wrong with it. */
export function parseArguments(text) {
  const value = parseJson(text.trim() || "{}");
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new SyntaxError("The arguments must be a JSON object.");
  }
  return value;
}
