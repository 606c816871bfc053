// All requests of the console: to the server that the page came from, with the API key of this tab if it needs one.

import { parseJson } from "./json.js";
import { events } from "./sse.js";

const KEY = "loopwright.key";

/** The address that a client uses as `base_url`. */
export const baseUrl = `${location.origin}/v1`;

/** Asks a person for the key. Resolves to whether there is one that the server accepts. */
let askForKey = async () => false;
let asking = null;
/** How often a person has declined to give a key. */
let declined = 0;

export function onKeyNeeded(ask) {
  askForKey = ask;
}

export function apiKey() {
  return sessionStorage.getItem(KEY);
}

export function setApiKey(key) {
  key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY);
}

/** An answer that is no success, in the words of the server. */
export class ApiError extends Error {
  constructor(message, { status = 0, code = null, param = null, decision = null } = {}) {
    super(message);
    Object.assign(this, { status, code, param, decision });
  }

  static async of(response) {
    const text = await response.text().catch(() => "");
    let error = {};
    try {
      error = JSON.parse(text).error ?? {};
    } catch {
      // Not the server's own form: the status has to do.
    }
    const message =
      typeof error.message === "string"
        ? error.message
        : `The server answered ${response.status} ${response.statusText}.`;
    return new ApiError(message, { ...error, status: response.status });
  }
}

async function request(method, path, key, { body, signal }) {
  const form = body instanceof FormData;
  try {
    return await fetch(path, {
      method,
      signal,
      cache: "no-store",
      headers: {
        ...(key && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && !form && { "content-type": "application/json" }),
      },
      body: body === undefined || form ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. Check that it runs, and that the network is up.");
  }
}

/** Whether the server accepts a key. */
export async function isAccepted(key) {
  // A header holds no other characters.
  if (!/^[\x21-\x7e]+$/.test(key)) return false;
  return (await request("GET", "/v1/agent/tools", key, {})).status !== 401;
}

/**
 * Sends a request, and asks for an API key when the server wants one. Answers that are no success are thrown.
 *
 * `quiet` requests are those that nobody has asked for: they never ask for a key. With `any` every status but 401 is an answer.
 */
async function send(method, path, { body, signal, quiet = false, any = false } = {}) {
  const declinedBefore = declined;
  for (;;) {
    const key = apiKey();
    const response = await request(method, path, key, { body, signal });
    if (response.ok || (any && response.status !== 401)) return response;
    const error = await ApiError.of(response);
    if (response.status !== 401 || quiet) throw error;
    // Another request may have brought a key meanwhile.
    if (apiKey() !== key) continue;
    // One question for all requests that were on their way.
    if (declined !== declinedBefore) throw error;
    asking ??= askForKey().finally(() => (asking = null));
    if (!(await asking)) {
      declined += 1;
      throw error;
    }
  }
}

export async function get(path, options) {
  return parseJson(await (await send("GET", path, options)).text());
}

export async function post(path, body, options) {
  return parseJson(await (await send("POST", path, { ...options, body })).text());
}

export async function put(path, body, options) {
  return parseJson(await (await send("PUT", path, { ...options, body })).text());
}

export async function remove(path, options) {
  return parseJson(await (await send("DELETE", path, options)).text());
}

export async function getText(path, options) {
  return (await send("GET", path, options)).text();
}

export async function getBlob(path, options) {
  return (await send("GET", path, options)).blob();
}

/** The status and the body of an answer whose status is what is asked for, such as 202 or 503. */
export async function look(path, options) {
  const response = await send("GET", path, { ...options, any: true });
  return { status: response.status, body: await response.json().catch(() => ({})) };
}

/** Posts a request whose answer is a stream, and yields its events. */
export async function* postStream(path, body, options) {
  const response = await send("POST", path, { ...options, body });
  yield* events(response.body);
}

export async function* getStream(path, options) {
  const response = await send("GET", path, options);
  yield* events(response.body);
}

/** A path with encoded parts: path`/v1/sessions/${id}/fork`. */
export function path(texts, ...values) {
  return texts.reduce((text, next, index) => text + encodeURIComponent(values[index - 1]) + next);
}
