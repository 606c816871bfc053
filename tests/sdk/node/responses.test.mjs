// The Responses API in OpenAI's Node SDK against loopwright. What comes is checked besides by ../recorder.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { ALICE, KEYED_RESPONSES_URL, MODEL, RESPONSES_URL, TICKET_STATE, modelCalls, schema, unique, user } from './servers.mjs';

const PLAIN_TEXT = 'The capital of Norway is Oslo.';
const client = new OpenAI({ baseURL: RESPONSES_URL, apiKey: 'not-needed', maxRetries: 0 });
const alice = new OpenAI({ baseURL: KEYED_RESPONSES_URL, apiKey: ALICE, maxRetries: 0 });

const declare = (name, properties) => ({ type: 'function', name, strict: true, parameters: schema(properties) });
const getTicket = declare('get_ticket', { id: 'integer' });
const getLocalTime = declare('get_local_time', { city: 'string' });
const chargeCard = declare('charge_card', { reference: 'string' });
const kinds = (response) => response.output.map((item) => item.type);

// The three ways to ask, which come to the same answer.
const ways = {
  create: (from, body) => from.responses.create({ model: MODEL, ...body }),
  streamed: async (from, body) => {
    let last;
    for await (const event of await from.responses.create({ model: MODEL, ...body, stream: true })) last = event;
    assert.match(last.type, /^response\.(completed|incomplete)$/);
    // The helper of the whole form is not there on a stream.
    const texts = last.response.output.flatMap((item) => (item.type === 'message' ? item.content : []));
    return { ...last.response, output_text: texts.map((part) => part.text).join('') };
  },
  stream: (from, body) => from.responses.stream({ model: MODEL, ...body }).finalResponse(),
};

for (const [name, way] of Object.entries(ways)) {
  test(`${name}: plain text`, async () => {
    const response = await way(client, { input: 'plain question' });
    assert.equal(response.output_text, PLAIN_TEXT);
    assert.deepEqual([response.status, response.usage.total_tokens], ['completed', 15]);
  });

  test(`${name}: a tool of the server`, async () => {
    const response = await way(client, { input: 'ticket please', tools: [getTicket] });
    assert.deepEqual(kinds(response), ['message', 'mcp_call', 'message']);
    assert.ok(response.output_text.includes(TICKET_STATE));
    assert.deepEqual(JSON.parse(response.output[1].output), { ticket: 42, state: TICKET_STATE });
  });

  test(`${name}: search and code`, async () => {
    const found = await way(alice, { input: 'search please', tools: [{ type: 'web_search' }] });
    assert.deepEqual(kinds(found), ['web_search_call', 'message']);
    assert.equal(found.output[1].content[0].annotations[0].type, 'url_citation');
    const tools = [{ type: 'code_interpreter', container: { type: 'auto' } }];
    const run = await way(alice, { input: 'code please', tools, include: ['code_interpreter_call.outputs'] });
    assert.deepEqual(kinds(run), ['message', 'code_interpreter_call', 'message']);
  });

  for (const second of ['previous_response_id', 'items', 'conversation']) {
    test(`${name}: a client tool beside it, then its result by ${second}`, async () => {
      const prompt = unique('client');
      const tools = [getTicket, getLocalTime];
      const conversation = second === 'conversation' ? (await client.conversations.create()).id : undefined;
      const first = await way(client, { input: [user(prompt)], tools, conversation });
      assert.deepEqual(kinds(first).sort(), ['function_call', 'mcp_call', 'message']);
      const call = first.output.find((item) => item.type === 'function_call');
      const result = { type: 'function_call_output', call_id: call.call_id, output: 'half past nine' };
      const more = {
        previous_response_id: { input: [result], previous_response_id: first.id },
        items: { input: [user(prompt), ...first.output, result] },
        conversation: { input: [result], conversation },
      }[second];
      const response = await way(client, { tools, ...more });
      assert.ok(response.output_text.includes(TICKET_STATE), response.output_text);
      assert.ok(response.output_text.includes('It is half past nine.'), response.output_text);
      const calls = await modelCalls(prompt);
      assert.equal(calls.length, 2);
      const roles = calls[1].messages.map((message) => message.role);
      assert.deepEqual(roles, ['user', 'assistant', 'tool', 'tool']);
    });
  }
}

test('parse, whole and streamed', async () => {
  const Ticket = z.object({ id: z.number(), summary: z.string() });
  const body = { model: MODEL, input: 'json please', tools: [getTicket], text: { format: zodTextFormat(Ticket, 'ticket') } };
  const response = await client.responses.parse(body);
  assert.equal(response.output_parsed.id, 42);
  assert.ok(response.output_parsed.summary.includes(TICKET_STATE));
  const streamed = await client.responses.stream(body).finalResponse();
  assert.deepEqual(streamed.output_parsed, response.output_parsed);
});

test('the helper emits what it is known to emit', async () => {
  const stream = client.responses.stream({ model: MODEL, input: 'think hard', reasoning: { summary: 'auto' } });
  let text = '';
  let reasoning = '';
  stream.on('response.output_text.delta', (event) => (text += event.delta));
  stream.on('response.reasoning_summary_text.delta', (event) => (reasoning += event.delta));
  await stream.finalResponse();
  assert.deepEqual([reasoning, text], ['Let me see. Six times seven.', 'Forty-two.']);
});

test('a stream in the background goes on where it broke off', async () => {
  const body = { model: MODEL, input: 'five tickets', tools: [getTicket], background: true, stream: true };
  const stream = await client.responses.create(body);
  let last;
  for await (const event of stream) {
    last = { id: event.response?.id ?? last.id, at: event.sequence_number };
    if (last.at === 15) break;
  }
  const rest = [];
  const again = await client.responses.retrieve(last.id, { stream: true, starting_after: last.at });
  for await (const event of again) rest.push(event);
  assert.equal(rest[0].sequence_number, 16);
  assert.equal(rest.at(-1).type, 'response.completed');
  assert.equal(kinds(rest.at(-1).response).length, 11);
});

test('a stored response is read, and gone once deleted', async () => {
  const response = await client.responses.create({ model: MODEL, input: 'plain question' });
  assert.equal((await client.responses.retrieve(response.id)).output_text, PLAIN_TEXT);
  const { data } = await client.responses.inputItems.list(response.id);
  assert.deepEqual(data.map((item) => item.content[0].text), ['plain question']);
  await client.responses.delete(response.id);
  await assert.rejects(client.responses.retrieve(response.id), OpenAI.NotFoundError);
});

test('errors, before and in the middle of an answer', async () => {
  for (const way of Object.values(ways)) {
    await assert.rejects(way(client, { input: 'refuse this', tools: [getTicket] }), /temperature must be below 2/);
    await assert.rejects(way(client, { input: unique('charge'), tools: [chargeCard] }), OpenAI.APIError);
  }
  await assert.rejects(ways.streamed(client, { input: 'break off' }), OpenAI.APIError);
  await assert.rejects(ways.stream(client, { input: 'break off' }), OpenAI.APIError);
  const unknown = client.responses.create({ model: MODEL, input: 'plain', previous_response_id: 'resp_unknown' });
  await assert.rejects(unknown, { code: 'previous_response_not_found', param: 'previous_response_id' });
});
