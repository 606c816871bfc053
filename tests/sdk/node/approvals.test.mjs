// Calls that wait for a person: OpenAI's Node SDKs see a finished answer, and go on with their own means once it is decided.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Agent, Runner, OpenAIProvider, hostedMcpTool } from '@openai/agents';
import OpenAI from 'openai';

import { ALICE, KEYED_RESPONSES_URL, MODEL, URL, charges, schema, unique, user } from './servers.mjs';

const client = new OpenAI({ baseURL: URL, apiKey: 'not-needed' });
const alice = new OpenAI({ baseURL: KEYED_RESPONSES_URL, apiKey: ALICE, maxRetries: 0 });
const chargeCard = {
  type: 'function',
  function: { name: 'charge_card', strict: true, parameters: schema({ reference: 'string' }) },
};
const HOURS = 'nine to five on Monday';
const server = {
  server_label: 'desk',
  server_url: `${process.env.LOOPWRIGHT_TEST_DESK}/mcp`,
  authorization: 'token-of-the-desk',
};

const ask = (messages, more) =>
  client.chat.completions.create({ model: MODEL, messages, tools: [chargeCard], ...more });
const decide = (id, decision) => client.post(`/agent/approvals/${id}`, { body: { decision } });

test('a chat goes on with the messages that the client has', async () => {
  const prompt = unique('pay approval');
  const session = { session_id: unique('session').replaceAll(' ', '-') };
  const waiting = await ask([user(prompt)], session);
  const [choice] = waiting.choices;
  assert.equal(choice.finish_reason, 'stop');
  assert.equal(choice.message.tool_calls, undefined);
  assert.match(choice.message.content, /^This answer waits for a person's decision about: charge_card\./);
  assert.deepEqual(await charges(prompt), []);
  const [approval] = waiting.agent.approvals;
  assert.deepEqual(await decide(approval.approval_id, 'approve'), { status: 'queued' });
  const done = await ask([user(prompt), choice.message], session);
  assert.equal(done.choices[0].message.content, `Paid: ${prompt}.`);
  assert.equal((await charges(prompt)).length, 1);
});

test('a stream goes on once it is decided', async () => {
  const prompt = unique('pay approval');
  let text = '';
  for await (const chunk of await ask([user(prompt)], { stream: true })) {
    if (chunk.type === 'agentic_tool_approval_required') {
      assert.deepEqual(await decide(chunk.approval_id, 'approve'), { status: 'resolved' });
    }
    text += chunk.choices[0].delta.content || '';
  }
  assert.equal(text, `Paid: ${prompt}.`);
  assert.equal((await charges(prompt)).length, 1);
});

for (const approve of [true, false]) {
  test(`a response asks and is answered: ${approve}`, async () => {
    const tools = [{ type: 'mcp', require_approval: 'always', ...server }];
    const first = await alice.responses.create({ model: MODEL, input: 'hours Monday', tools });
    const request = first.output.find((item) => item.type === 'mcp_approval_request');
    assert.equal(request.name, 'get_hours');
    const input = [{ type: 'mcp_approval_response', approval_request_id: request.id, approve }];
    const second = await alice.responses.create({ model: MODEL, previous_response_id: first.id, input, tools });
    assert.equal(second.output_text.includes(HOURS), approve);
  });

  test(`the Agents SDK asks its callback: ${approve}`, async () => {
    const asked = [];
    const hosted = hostedMcpTool({
      serverLabel: server.server_label,
      serverUrl: server.server_url,
      authorization: server.authorization,
      requireApproval: 'always',
      onApproval: async (_context, item) => {
        asked.push(item.rawItem.name);
        return { approve, reason: 'not today' };
      },
    });
    const agent = new Agent({ name: 'a', model: MODEL, instructions: 'Be short.', tools: [hosted] });
    const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: alice }), tracingDisabled: true });
    const result = await runner.run(agent, 'hours Monday', { maxTurns: 4 });
    assert.deepEqual(asked, ['get_hours']);
    assert.equal(result.finalOutput.includes(HOURS), approve);
  });
}
