// OpenAI's Node SDK against loopwright: code that knows nothing of loopwright must work as it stands.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { KEYED_URL, MODEL, TICKET_STATE, TICKET_TEXT, URL, charges, schema, unique, user } from './servers.mjs';

const client = new OpenAI({ baseURL: URL, apiKey: 'not-needed' });

const declare = (name, properties) => ({
  type: 'function',
  function: { name, strict: true, parameters: schema(properties) },
});
const getTicket = declare('get_ticket', { id: 'integer' });
const chargeCard = declare('charge_card', { reference: 'string' });
const getLocalTime = declare('get_local_time', { city: 'string' });

const body = (prompt, tools, more) => ({ model: MODEL, messages: [user(prompt)], ...(tools && { tools }), ...more });
const ask = (prompt, tools, more) => client.chat.completions.create(body(prompt, tools, more));

/** The loop of every example on the web: no guards. */
async function collect(stream) {
  let text = '';
  for await (const chunk of stream) text += chunk.choices[0].delta.content || '';
  return text;
}

test('a plain answer, whole and streamed', async () => {
  const whole = await ask('plain question');
  assert.equal(whole.choices[0].message.content, 'The capital of Norway is Oslo.');
  assert.equal(await collect(await ask('plain question', undefined, { stream: true })), whole.choices[0].message.content);
});

test('a tool round ends in one clean answer', async () => {
  const whole = await ask('ticket please', [getTicket]);
  const [choice] = whole.choices;
  assert.ok(choice.message.content.startsWith(TICKET_TEXT), choice.message.content);
  assert.ok(choice.message.content.includes(TICKET_STATE));
  assert.equal(choice.message.tool_calls, undefined);
  assert.equal(choice.finish_reason, 'stop');
  assert.equal(whole.agentic_tool_calls.length, 1);
  assert.equal(whole.usage.total_tokens, 52);
  assert.equal(await collect(await ask('ticket please', [getTicket], { stream: true })), choice.message.content);
});

test('every chunk of a stream is an ordinary one', async () => {
  const chunks = [];
  const more = { stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await ask('ticket please', [getTicket], more)) chunks.push(chunk);
  assert.equal(new Set(chunks.map((chunk) => [chunk.id, chunk.created, chunk.model, chunk.object].join())).size, 1);
  const usage = chunks.pop();
  assert.deepEqual(usage.choices, []);
  assert.equal(usage.usage.total_tokens, 52);
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.ok(chunks.every((chunk) => chunk.choices.length === 1 && !chunk.choices[0].delta.tool_calls));
  assert.equal(chunks.pop().choices[0].finish_reason, 'stop');
  assert.ok(chunks.every((chunk) => chunk.choices[0].finish_reason === null));
  const phases = chunks.filter((chunk) => chunk.type === 'agentic_tool_call_progress').map((chunk) => chunk.phase);
  assert.deepEqual(phases, ['calling', 'complete']);
});

test('five rounds', async () => {
  const whole = await ask('five tickets', [getTicket]);
  assert.ok(whole.choices[0].message.content.startsWith('Step 1.\n\nStep 2.\n\nStep 3.\n\nStep 4.\n\nStep 5.\n\nFive results: {'));
  assert.equal(await collect(await ask('five tickets', [getTicket], { stream: true })), whole.choices[0].message.content);
});

test('the stream helper', async () => {
  const stream = client.chat.completions.stream(body('ticket please', [getTicket]));
  let said = '';
  stream.on('content', (delta) => (said += delta));
  stream.on('tool_calls.function.arguments.delta', () => assert.fail('a tool call of the server'));
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, said);
  assert.equal(await stream.finalContent(), said);
  assert.ok(said.startsWith(TICKET_TEXT), said);
});

test('the stream helper for a browser and back', async () => {
  const stream = client.chat.completions.stream(body('ticket please', [getTicket]));
  const { ChatCompletionStream } = await import('openai/lib/ChatCompletionStream');
  const again = ChatCompletionStream.fromReadableStream(stream.toReadableStream());
  assert.ok((await again.finalContent()).startsWith(TICKET_TEXT));
});

test('the parse helper', async () => {
  const ticket = z.object({ id: z.number(), summary: z.string() });
  const response_format = zodResponseFormat(ticket, 'ticket');
  const parsed = await client.chat.completions.parse(body('json please', [getTicket], { response_format }));
  assert.equal(parsed.choices[0].message.parsed.id, 42);
  assert.ok(parsed.choices[0].message.parsed.summary.includes(TICKET_STATE));
});

for (const stream of [false, true]) {
  test(`the tool runner runs the client's tool and no other (stream: ${stream})`, async () => {
    const asked = [];
    const tools = [
      zodFunction({
        name: 'get_ticket',
        parameters: z.object({ id: z.number() }),
        function: () => assert.fail('a tool of the server ran in the client'),
      }),
      zodFunction({
        name: 'get_local_time',
        parameters: z.object({ city: z.string() }),
        function: ({ city }) => {
          asked.push(city);
          return 'half past nine';
        },
      }),
    ];
    const runner = client.chat.completions.runTools(body(unique('client tools'), tools, { stream }));
    const text = await runner.finalContent();
    assert.deepEqual(asked, ['Oslo']);
    assert.ok(text.includes(TICKET_STATE) && text.includes('It is half past nine.'), text);
  });
}

test('a tool of the client by hand, streamed, without a session id', async () => {
  const messages = [user(unique('client tools'))];
  const tools = [getTicket, getLocalTime];
  const turn = () => client.chat.completions.stream({ model: MODEL, messages, tools }).finalMessage();
  const message = await turn();
  assert.deepEqual(message.tool_calls.map((call) => call.function.name), ['get_local_time']);
  messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'noon' });
  const { content } = await turn();
  assert.ok(content.includes(TICKET_STATE) && content.includes('It is noon.'), content);
});

test('a session remembers what the client never saw', async () => {
  const session_id = unique('sdk').replace(' ', '-');
  const first = await ask('ticket please', [getTicket], { session_id });
  assert.equal(first.session_id, session_id);
  const second = await ask('recall it', undefined, { session_id });
  assert.ok(second.choices[0].message.content.startsWith('Roles: user assistant tool assistant user.'));
});

test('errors are those of the SDK', async () => {
  const stranger = new OpenAI({ baseURL: KEYED_URL, apiKey: 'wrong' });
  await assert.rejects(stranger.chat.completions.create(body('plain')), (error) => {
    assert.ok(error instanceof OpenAI.AuthenticationError);
    assert.equal(error.code, 'invalid_api_key');
    return true;
  });
  await assert.rejects(ask('plain', undefined, { agent: { on_limits: 'stop' } }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'agent.on_limits');
    assert.ok(error.requestID);
    return true;
  });
  await assert.rejects(client.models.retrieve('no-such-model'), OpenAI.NotFoundError);
});

test('the SDK does not run a charge twice', async () => {
  const prompt = unique('charge');
  await assert.rejects(ask(prompt, [chargeCard]), OpenAI.InternalServerError);
  assert.equal((await charges(prompt)).length, 1);
});

test('a stream that fails after a tool throws', async () => {
  const prompt = unique('charge');
  await assert.rejects(async () => collect(await ask(prompt, [chargeCard], { stream: true })), OpenAI.APIError);
  assert.equal((await charges(prompt)).length, 1);
});

test('models and embeddings', async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.deepEqual(models, [MODEL]);
  const { data } = await client.embeddings.create({ model: MODEL, input: 'abc', encoding_format: 'float' });
  assert.deepEqual(data[0].embedding, [3, 0.25, -0.5]);
});

const searching = new OpenAI({ baseURL: KEYED_URL, apiKey: process.env.LOOPWRIGHT_TEST_ALICE_KEY });
const search = () => body('search it', undefined, { web_search_options: { search_context_size: 'low' } });

/** Places count characters, which are not JavaScript's units. */
function assertCitesOslo({ content, annotations }) {
  assert.equal(content, 'Åpenbart: Oslo [1], not [9].');
  assert.equal(annotations.length, 1);
  assert.equal(annotations[0].type, 'url_citation');
  const { start_index: start, end_index: end, title, url } = annotations[0].url_citation;
  assert.equal([...content].slice(start, end).join(''), '[1]');
  assert.equal(title, 'Oslo');
  assert.ok(url.endsWith('/oslo'), url);
}

test('a search answer has annotations', async () => {
  const whole = await searching.chat.completions.create(search());
  assertCitesOslo(whole.choices[0].message);
});

test('a streamed search answer has annotations, chunk by chunk and in the end', async () => {
  const annotated = [];
  const stream = searching.chat.completions.stream(search());
  for await (const chunk of stream) annotated.push(...(chunk.choices[0].delta.annotations ?? []));
  assert.equal(annotated.length, 1);
  const { content } = await stream.finalMessage();
  assertCitesOslo({ content, annotations: annotated });
  assertCitesOslo((await stream.finalChatCompletion()).choices[0].message);
});
