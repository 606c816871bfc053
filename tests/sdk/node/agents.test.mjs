// OpenAI's Agents SDK for JavaScript with its default model class against loopwright.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Agent, Runner, OpenAIProvider, codeInterpreterTool, tool, webSearchTool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';

import { ALICE, KEYED_RESPONSES_URL, MODEL, TICKET_STATE, modelCalls, unique, user } from './servers.mjs';

const PLAIN_TEXT = 'The capital of Norway is Oslo.';
const client = new OpenAI({ baseURL: KEYED_RESPONSES_URL, apiKey: ALICE, maxRetries: 0 });
const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client }), tracingDisabled: true });
const getLocalTime = tool({
  name: 'get_local_time',
  description: 'Tells the time of a city.',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => (city === 'Oslo' ? 'half past nine' : 'unknown'),
});
const agentOf = (more = {}) => new Agent({ name: 'a', model: MODEL, instructions: 'Be short.', ...more });

const ways = {
  whole: (agent, input, options) => runner.run(agent, input, { maxTurns: 4, ...options }),
  streamed: async (agent, input, options) => {
    const result = await runner.run(agent, input, { maxTurns: 4, ...options, stream: true });
    for await (const _ of result);
    await result.completed;
    if (result.error) throw result.error;
    return result;
  },
};
const kinds = (result) => result.newItems.map((item) => item.type);
const afterwards = ['system', 'user', 'assistant', 'tool', 'tool', 'assistant', 'user'];
const rolesOf = async (prompt) => {
  const calls = await modelCalls(prompt);
  assert.equal(calls.length, 1);
  return calls[0].messages.map((message) => message.role);
};

for (const [name, run] of Object.entries(ways)) {
  test(`${name}: plain text`, async () => {
    assert.equal((await run(agentOf(), 'plain question')).finalOutput, PLAIN_TEXT);
  });

  test(`${name}: a tool of the server`, async () => {
    const result = await run(agentOf(), 'ticket please');
    assert.ok(result.finalOutput.includes(TICKET_STATE));
    assert.deepEqual(kinds(result), ['message_output_item', 'tool_call_item', 'message_output_item']);
  });

  test(`${name}: hosted tools`, async () => {
    const found = await run(agentOf({ tools: [webSearchTool()] }), 'search please');
    assert.match(found.finalOutput, /^Åpenbart: Oslo/);
    const result = await run(agentOf({ tools: [codeInterpreterTool({ container: { type: 'auto' } })] }), 'code please');
    assert.match(result.finalOutput, /It says:/);
  });

  test(`${name}: a tool of the agent beside it, then a question, by items sent back`, async () => {
    const agent = agentOf({ tools: [getLocalTime] });
    const [prompt, again] = [unique('client'), unique('plain')];
    const first = await run(agent, prompt);
    assert.ok(first.finalOutput.includes(TICKET_STATE) && first.finalOutput.includes('It is half past nine.'));
    assert.equal((await modelCalls(prompt)).length, 2);
    assert.equal((await run(agent, [...first.history, user(again)])).finalOutput, PLAIN_TEXT);
    assert.deepEqual(await rolesOf(again), afterwards);
  });

  test(`${name}: the same by previousResponseId`, async () => {
    const agent = agentOf({ tools: [getLocalTime] });
    const again = unique('plain');
    const first = await run(agent, unique('client'));
    const result = await run(agent, again, { previousResponseId: first.lastResponseId });
    assert.equal(result.finalOutput, PLAIN_TEXT);
    assert.deepEqual(await rolesOf(again), afterwards);
  });

  test(`${name}: the same in a conversation`, async () => {
    const agent = agentOf({ tools: [getLocalTime] });
    const again = unique('plain');
    const conversationId = (await client.conversations.create()).id;
    const first = await run(agent, unique('client'), { conversationId });
    assert.ok(first.finalOutput.includes('It is half past nine.'));
    assert.equal((await run(agent, again, { conversationId })).finalOutput, PLAIN_TEXT);
    assert.deepEqual(await rolesOf(again), afterwards);
  });

  test(`${name}: an output type`, async () => {
    const outputType = z.object({ id: z.number(), summary: z.string() });
    const result = await run(agentOf({ outputType }), 'json please');
    assert.equal(result.finalOutput.id, 42);
  });

  test(`${name}: an answer that breaks off is an error`, async () => {
    await assert.rejects(run(agentOf(), 'break off'));
  });
}
