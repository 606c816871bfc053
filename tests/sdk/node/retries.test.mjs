// OpenAI's Node SDK over a connection that breaks: with an `idempotency-key` of the caller, one effect.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';

import OpenAI from 'openai';

import { relayTo } from './relay.mjs';
import { MODEL, URL, charges, schema, unique, user } from './servers.mjs';

const chargeCard = {
  type: 'function',
  function: { name: 'charge_card', strict: true, parameters: schema({ reference: 'string' }) },
};

/** One request of the caller; the SDK retries it by itself where it sees that it may. */
async function pay(client, prompt, key, stream) {
  const body = { model: MODEL, messages: [user(prompt)], tools: [chargeCard], stream };
  const answer = await client.chat.completions.create(body, { headers: { 'idempotency-key': key } });
  if (!stream) return answer.choices[0].message.content;
  let text = '';
  for await (const chunk of answer) text += chunk.choices[0].delta.content || '';
  return text;
}

/** What a caller does whose answer breaks off where the SDK no longer retries: the same call, with the same key. */
async function persist(client, prompt, key, stream) {
  const failures = [];
  while (failures.length < 3) {
    try {
      return await pay(client, prompt, key, stream);
    } catch (error) {
      // A status is an answer, and no lost connection.
      if (error.status !== undefined) throw error;
      failures.push(error);
    }
  }
  throw new AggregateError(failures, 'the connection was cut once only');
}

const connectTo = (baseURL) => new OpenAI({ baseURL, apiKey: 'not-needed', maxRetries: 2 });

/** Runs something over a relay, and gives its result and what the relay saw. */
async function over(cut, work) {
  const relay = await relayTo(URL, cut);
  try {
    return { result: await work(connectTo(relay.url)), connections: relay.connections, passed: relay.passed };
  } finally {
    relay.close();
  }
}

for (const stream of [false, true]) {
  test(`a connection that is cut anywhere charges once (stream: ${stream})`, async () => {
    const whole = await over(null, (client) => pay(client, unique('pay'), randomUUID(), stream));
    // Right after the request, and after so many tenths of the answer.
    const tenths = Array.from({ length: 10 }, (_, place) => Math.max(1, Math.floor((whole.passed * place) / 10)));
    for (const cut of [-1, ...tenths]) {
      const prompt = unique('pay');
      const { result, connections } = await over(cut, (client) => persist(client, prompt, randomUUID(), stream));
      assert.equal(result, `Paid: ${prompt}.`, `cut at ${cut}`);
      assert.ok(connections >= 2, `cut at ${cut}: it was cut, and something asked again`);
      assert.equal((await charges(prompt)).length, 1, `cut at ${cut}`);
    }
  });
}

test('the SDK itself asks again while there is no answer', async () => {
  const prompt = unique('pay');
  const { result, connections } = await over(-1, (client) => pay(client, prompt, randomUUID(), false));
  assert.equal(result, `Paid: ${prompt}.`);
  assert.equal(connections, 2);
  assert.equal((await charges(prompt)).length, 1);
});

test('another request under the same key is refused', async () => {
  const [client, key] = [connectTo(URL), randomUUID()];
  await pay(client, unique('pay'), key, false);
  await assert.rejects(pay(client, unique('pay'), key, false), (error) => {
    assert.ok(error instanceof OpenAI.UnprocessableEntityError);
    assert.equal(error.code, 'idempotency_key_reused');
    return true;
  });
});
