// The AI SDK (Vercel) with its OpenAI-compatible provider against loopwright.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, Output, embed, generateText, isStepCount, jsonSchema, streamText, tool } from 'ai';

import { KEYED_URL, MODEL, TICKET_STATE, TICKET_TEXT, URL, charges, schema, unique } from './servers.mjs';

const loopwright = createOpenAICompatible({
  name: 'loopwright',
  baseURL: URL,
  apiKey: 'not-needed',
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = loopwright(MODEL);

// Without `execute` the AI SDK itself cannot run a tool: what comes back has been run by the webhook.
const getTicket = tool({ inputSchema: jsonSchema(schema({ id: 'integer' })) });
const chargeCard = tool({ inputSchema: jsonSchema(schema({ reference: 'string' })) });
const getLocalTime = (asked) =>
  tool({
    inputSchema: jsonSchema(schema({ city: 'string' })),
    execute: async ({ city }) => {
      asked.push(city);
      return 'half past nine';
    },
  });

/** All parts of a stream; an error part fails the test. */
async function partsOf(result) {
  const parts = [];
  for await (const part of result.fullStream) {
    if (part.type === 'error') throw part.error;
    parts.push(part);
  }
  return parts;
}

const textOf = (parts) => parts.filter((part) => part.type === 'text-delta').map((part) => part.text).join('');

test('plain text, whole and streamed', async () => {
  const { text, finishReason } = await generateText({ model, prompt: 'plain question' });
  assert.equal(text, 'The capital of Norway is Oslo.');
  assert.equal(finishReason, 'stop');
  assert.equal(textOf(await partsOf(streamText({ model, prompt: 'plain question' }))), text);
});

test('generateText with a tool of the server', async () => {
  const result = await generateText({ model, prompt: 'ticket please', tools: { get_ticket: getTicket } });
  assert.ok(result.text.startsWith(TICKET_TEXT) && result.text.includes(TICKET_STATE), result.text);
  assert.equal(result.finishReason, 'stop');
  assert.deepEqual(result.toolCalls, []);
  assert.equal(result.steps.length, 1);
  assert.equal(result.usage.totalTokens, 52);
});

test('streamText with a tool of the server', async () => {
  const options = { model, prompt: 'ticket please', tools: { get_ticket: getTicket } };
  const result = streamText(options);
  const parts = await partsOf(result);
  assert.equal(textOf(parts), (await generateText(options)).text);
  assert.ok(!parts.some((part) => part.type.startsWith('tool-')));
  const finish = parts.at(-1);
  assert.deepEqual([finish.type, finish.finishReason], ['finish', 'stop']);
  assert.equal(finish.totalUsage.totalTokens, 52);
});

test('five rounds are one step', async () => {
  const result = streamText({ model, prompt: 'five tickets', tools: { get_ticket: getTicket } });
  assert.ok(textOf(await partsOf(result)).startsWith('Step 1.\n\nStep 2.'));
  assert.equal((await result.steps).length, 1);
});

test('reasoning comes as reasoning', async () => {
  const options = { model, prompt: 'think hard', tools: { get_ticket: getTicket } };
  const whole = await generateText(options);
  assert.deepEqual([whole.reasoningText, whole.text], ['Let me see. Six times seven.', 'Forty-two.']);
  const result = streamText(options);
  await partsOf(result);
  assert.deepEqual([await result.reasoningText, await result.text], [whole.reasoningText, whole.text]);
});

for (const streamed of [false, true]) {
  test(`a tool of the client beside one of the server (streamed: ${streamed})`, async () => {
    const asked = [];
    const options = {
      model,
      prompt: unique('client tools'),
      tools: { get_ticket: getTicket, get_local_time: getLocalTime(asked) },
      stopWhen: isStepCount(5),
    };
    const result = streamed ? streamText(options) : await generateText(options);
    if (streamed) await partsOf(result);
    const [text, steps] = [await result.text, await result.steps];
    assert.deepEqual(asked, ['Oslo']);
    assert.ok(text.includes(TICKET_STATE) && text.includes('It is half past nine.'), text);
    assert.deepEqual(steps.map((step) => step.finishReason), ['tool-calls', 'stop']);
    assert.deepEqual(steps[0].toolCalls.map((call) => call.toolName), ['get_local_time']);
  });
}

test('extensions travel as provider options', async () => {
  const session = { providerOptions: { loopwright: { session_id: unique('ai').replace(' ', '-') } } };
  await generateText({ model, prompt: 'ticket please', tools: { get_ticket: getTicket }, ...session });
  const { text } = await generateText({ model, prompt: 'recall it', ...session });
  assert.ok(text.startsWith('Roles: user assistant tool assistant user.'), text);
  const final = { providerOptions: { loopwright: { agent: { text: 'final', progress: 'none' } } } };
  const result = streamText({ model, prompt: 'ticket please', tools: { get_ticket: getTicket }, ...final });
  assert.ok(textOf(await partsOf(result)).startsWith('The ticket says: {'));
});

test('structured output after a tool round', async () => {
  const { output } = await generateText({
    model,
    prompt: 'json please',
    tools: { get_ticket: getTicket },
    output: Output.object({ schema: jsonSchema(schema({ id: 'integer', summary: 'string' })) }),
  });
  assert.equal(output.id, 42);
  assert.ok(output.summary.includes(TICKET_STATE));
});

test('errors keep their status', async () => {
  const stranger = createOpenAICompatible({ name: 'loopwright', baseURL: KEYED_URL, apiKey: 'wrong' });
  await assert.rejects(generateText({ model: stranger(MODEL), prompt: 'plain' }), (error) => {
    assert.ok(APICallError.isInstance(error), String(error));
    assert.equal(error.statusCode, 401);
    assert.equal(error.data.error.code, 'invalid_api_key');
    return true;
  });
});

test('a stream that fails after a tool has an error part', async () => {
  const prompt = unique('charge');
  const result = streamText({ model, prompt, tools: { charge_card: chargeCard }, onError: () => {} });
  await assert.rejects(partsOf(result), /engine died/);
  assert.equal((await charges(prompt)).length, 1);
});

test('embeddings pass through', async () => {
  const { embedding } = await embed({ model: loopwright.embeddingModel(MODEL), value: 'abc' });
  assert.deepEqual(embedding, [3, 0.25, -0.5]);
});
