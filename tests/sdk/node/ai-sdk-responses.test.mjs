// The AI SDK (Vercel) with its default model, `openai(...)`, against loopwright: the current major and the two before.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ALICE, KEYED_RESPONSES_URL, MODEL, RESPONSES_URL, TICKET_STATE, modelCalls, schema, unique } from './servers.mjs';

const PLAIN_TEXT = 'The capital of Norway is Oslo.';
const MAJORS = { 5: ['ai-5', '@ai-sdk/openai-5'], 6: ['ai-6', '@ai-sdk/openai-6'], 7: ['ai', '@ai-sdk/openai'] };

for (const [major, [core, provider]] of Object.entries(MAJORS)) {
  const { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } = await import(core);
  const { createOpenAI } = await import(provider);
  const open = createOpenAI({ baseURL: RESPONSES_URL, apiKey: 'not-needed' });
  const alice = createOpenAI({ baseURL: KEYED_RESPONSES_URL, apiKey: ALICE });
  const base = { maxRetries: 0, stopWhen: stepCountIs(4) };
  // Without `execute` the AI SDK itself cannot run a tool: what comes back has been run by the webhook.
  const getTicket = tool({ inputSchema: jsonSchema(schema({ id: 'integer' })) });
  const getLocalTime = tool({ inputSchema: jsonSchema(schema({ city: 'string' })), execute: async () => 'half past nine' });

  const ways = {
    generateText: (options) => generateText({ ...base, ...options }),
    streamText: async (options) => {
      const result = streamText({ ...base, ...options, onError: () => {} });
      for await (const part of result.fullStream) if (part.type === 'error') throw part.error;
      const names = ['text', 'reasoningText', 'finishReason', 'steps', 'totalUsage', 'response', 'responseMessages', 'sources'];
      return Object.fromEntries(await Promise.all(names.map(async (each) => [each, await result[each]])));
    },
  };

  for (const [name, ask] of Object.entries(ways)) {
    test(`AI SDK ${major}, ${name}: plain text`, async () => {
      const result = await ask({ model: open(MODEL), prompt: 'plain question' });
      assert.deepEqual([result.text, result.finishReason], [PLAIN_TEXT, 'stop']);
      assert.equal(result.totalUsage.totalTokens, 15);
    });

    test(`AI SDK ${major}, ${name}: a tool of the server that the client declares`, async () => {
      const result = await ask({ model: open(MODEL), prompt: 'ticket please', tools: { get_ticket: getTicket } });
      assert.ok(result.text.includes(TICKET_STATE), result.text);
      assert.deepEqual([result.finishReason, result.steps.length], ['stop', 1]);
    });

    test(`AI SDK ${major}, ${name}: a tool of the server that nobody declares`, async () => {
      const result = await ask({ model: alice(MODEL), prompt: 'ticket please' });
      assert.ok(result.text.includes(TICKET_STATE), result.text);
      assert.deepEqual([result.finishReason, result.steps.length], ['stop', 1]);
    });

    for (const store of [true, false]) {
      test(`AI SDK ${major}, ${name}: a client tool beside it, then a question, store ${store}`, async () => {
        const [prompt, again] = [unique('client'), unique('plain')];
        const providerOptions = { openai: { store } };
        const options = { model: open(MODEL), tools: { get_ticket: getTicket, get_local_time: getLocalTime }, providerOptions };
        const messages = [{ role: 'user', content: prompt }];
        const result = await ask({ ...options, messages });
        const text = result.steps.map((step) => step.text).join('');
        assert.ok(text.includes(TICKET_STATE) && text.includes('It is half past nine.'), text);
        assert.equal((await modelCalls(prompt)).length, 2);
        const said = result.responseMessages ?? result.response.messages;
        const next = await ask({ ...options, messages: [...messages, ...said, { role: 'user', content: again }] });
        assert.equal(next.text, PLAIN_TEXT);
        const [call] = await modelCalls(again);
        assert.ok(call.messages.map((message) => message.role).includes('tool'));
      });
    }

    test(`AI SDK ${major}, ${name}: a second turn by previousResponseId`, async () => {
      const options = { model: open(MODEL), tools: { get_ticket: getTicket } };
      const result = await ask({ ...options, prompt: 'ticket please' });
      const { responseId } = result.steps.at(-1).providerMetadata.openai;
      const again = unique('plain');
      const next = await ask({ ...options, prompt: again, providerOptions: { openai: { previousResponseId: responseId } } });
      assert.equal(next.text, PLAIN_TEXT);
      const [call] = await modelCalls(again);
      const roles = call.messages.map((message) => message.role);
      assert.deepEqual(roles, ['user', 'assistant', 'tool', 'assistant', 'user']);
    });

    test(`AI SDK ${major}, ${name}: search`, async () => {
      const tools = { web_search: alice.tools.webSearch({}) };
      const result = await ask({ model: alice(MODEL), prompt: 'search please', tools });
      assert.match(result.text, /^Åpenbart: Oslo/);
      assert.equal(result.steps.length, 1);
      assert.ok(result.sources.some((source) => source.url.endsWith('/oslo')), JSON.stringify(result.sources));
    });

    test(`AI SDK ${major}, ${name}: code`, async () => {
      const tools = { code_interpreter: alice.tools.codeInterpreter({}) };
      const result = await ask({ model: alice(MODEL), prompt: 'code please', tools });
      assert.match(result.text, /It says:/);
    });

    test(`AI SDK ${major}, ${name}: reasoning`, async () => {
      // It asks for a summary only where it takes the model for one that thinks, by its name.
      const providerOptions = { openai: { reasoningSummary: 'auto' } };
      const result = await ask({ model: alice('gpt-5'), prompt: 'think hard', providerOptions });
      assert.deepEqual([result.reasoningText, result.text], ['Let me see. Six times seven.', 'Forty-two.']);
    });

    test(`AI SDK ${major}, ${name}: an error before the answer`, async () => {
      await assert.rejects(ask({ model: open(MODEL), prompt: 'refuse this' }), /temperature must be below 2/);
    });
  }

  test(`AI SDK ${major}: an answer that breaks off is an error`, async () => {
    await assert.rejects(ways.streamText({ model: open(MODEL), prompt: 'break off' }));
  });

  test(`AI SDK ${major}: generateObject`, async () => {
    const wanted = jsonSchema(schema({ id: 'integer', summary: 'string' }));
    const { object } = await generateObject({ ...base, model: alice(MODEL), schema: wanted, prompt: 'json please' });
    assert.equal(object.id, 42);
    assert.ok(object.summary.includes(TICKET_STATE));
  });
}
