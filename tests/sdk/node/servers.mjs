// The servers that `run` has started, as the tests see them.

import { randomUUID } from 'node:crypto';

export const MODEL = 'scripted-model';
export const URL = process.env.LOOPWRIGHT_TEST_URL;
export const KEYED_URL = process.env.LOOPWRIGHT_TEST_KEYED_URL;
/** The two behind a proxy that checks the answers of the Responses API. */
export const RESPONSES_URL = process.env.LOOPWRIGHT_TEST_RESPONSES_URL;
export const PLAIN_RESPONSES_URL = process.env.LOOPWRIGHT_TEST_PLAIN_RESPONSES_URL;
export const KEYED_RESPONSES_URL = process.env.LOOPWRIGHT_TEST_KEYED_RESPONSES_URL;
export const ALICE = process.env.LOOPWRIGHT_TEST_ALICE_KEY;

/** What the scripted model says; the brace begins the webhook's result. */
export const TICKET_TEXT = 'Let me look. \n\nThe ticket says: {';
export const TICKET_STATE = 'open since Tuesday';

export const user = (content) => ({ role: 'user', content });
export const unique = (scenario) => `${scenario} ${randomUUID()}`;

/** JSON Schema of an object with these members, all of them required. */
export function schema(properties) {
  const entries = Object.entries(properties).map(([key, type]) => [key, { type }]);
  return {
    type: 'object',
    properties: Object.fromEntries(entries),
    required: Object.keys(properties),
    additionalProperties: false,
  };
}

/** Calls that the webhook got with this reference. */
export async function charges(reference) {
  const answer = await fetch(`${process.env.LOOPWRIGHT_TEST_WEBHOOK}/calls`);
  const calls = await answer.json();
  return calls.filter((call) => call.arguments.reference === reference);
}

/** The bodies of the model calls whose last user message holds this text. */
export async function modelCalls(text) {
  const answer = await fetch(`${process.env.LOOPWRIGHT_TEST_UPSTREAM}/calls`);
  const bodies = (await answer.json()).map((call) => call.body);
  return bodies.filter((body) => {
    const said = body.messages.filter((message) => message.role === 'user');
    return JSON.stringify(said.at(-1)?.content ?? '').includes(text);
  });
}
