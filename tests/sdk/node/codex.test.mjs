// The Codex CLI against loopwright, with a scripted model that calls its shell.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile, mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import {
  ALICE, KEYED_RESPONSES_URL, MODEL, PLAIN_RESPONSES_URL, RESPONSES_URL, TICKET_STATE, modelCalls, unique,
} from './servers.mjs';

const codex = createRequire(import.meta.url).resolve('@openai/codex/bin/codex.js');
// The model is scripted, and what it runs is harmless: no sandbox, which a machine may lack.
const UNSANDBOXED = '--dangerously-bypass-approvals-and-sandbox';
let home;

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'loopwright-codex-'));
  await Promise.all(['work', 'open', 'plain', 'keyed'].map((name) => mkdir(join(home, name))));
  // The second one has no search.
  const servers = { open: [RESPONSES_URL, ''], plain: [PLAIN_RESPONSES_URL, 'web_search = "disabled"'], keyed: [KEYED_RESPONSES_URL, ''] };
  for (const [name, [url, more]] of Object.entries(servers)) {
    await writeFile(
      join(home, name, 'config.toml'),
      `model = "${MODEL}"
${more}
model_provider = "loopwright"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.loopwright]
name = "loopwright"
base_url = "${url}"
env_key = "ALICE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
`,
    );
  }
});
after(() => rm(home, { recursive: true, force: true }));

/** The events of one run of Codex against the server of this name. */
async function run(server, ...args) {
  const nowhere = 'http://127.0.0.1:9';
  const env = {
    PATH: process.env.PATH, HOME: home, CODEX_HOME: join(home, server), ALICE_KEY: ALICE,
    // Nothing here leaves the machine.
    HTTP_PROXY: nowhere, HTTPS_PROXY: nowhere, ALL_PROXY: nowhere, NO_PROXY: '127.0.0.1,localhost',
  };
  const options = ['exec', '--json', '--skip-git-repo-check', ...args];
  const running = promisify(execFile)(process.execPath, [codex, ...options], { env, cwd: join(home, 'work') });
  running.child.stdin.end();
  const { stdout } = await running.catch((failed) => failed);
  return stdout.trim().split('\n').map((line) => JSON.parse(line));
}

const completed = (events) => events.filter((event) => event.type === 'item.completed').map((event) => event.item);
const items = (events, type) => completed(events).filter((item) => item.type === type);
const said = (events) => items(events, 'agent_message').at(-1)?.text;

test('reasoning and text, from a server without search', async () => {
  const events = await run('open', unique('think'));
  assert.equal(items(events, 'reasoning')[0].text, 'Let me see. Six times seven.');
  assert.equal(said(events), 'Forty-two.');
  assert.equal(events.at(-1).type, 'turn.completed');
});

test('its shell, and a second turn', async () => {
  const [prompt, again] = [unique('shell'), unique('ticket')];
  const events = await run('keyed', UNSANDBOXED, prompt);
  const [command] = items(events, 'command_execution');
  assert.equal(command.exit_code, 0);
  assert.match(command.aggregated_output, /42 apples/);
  assert.match(said(events), /^It printed: [^]*42 apples/);
  assert.equal((await modelCalls(prompt)).length, 2);
  // A tool of the server in the second turn, which Codex does not take for one of its own.
  const { thread_id: thread } = events.find((event) => event.type === 'thread.started');
  const resumed = await run('keyed', 'resume', UNSANDBOXED, thread, again);
  assert.ok(said(resumed).includes(TICKET_STATE));
  const calls = await modelCalls(again);
  assert.equal(calls.length, 2);
  assert.ok(calls[0].messages.some((message) => message.role === 'tool'));
});

test('its shell, where a dispatch URL is set without patterns', async () => {
  const events = await run('plain', UNSANDBOXED, unique('shell'));
  const [command] = items(events, 'command_execution');
  assert.equal(command.exit_code, 0);
  assert.match(command.aggregated_output, /42 apples/);
});

test('a search of the server', async () => {
  const events = await run('keyed', UNSANDBOXED, unique('search'));
  assert.equal(items(events, 'web_search')[0].query, 'capital of Norway');
  assert.match(said(events), /^Åpenbart: Oslo/);
});

test('failures are shown, before and in the middle of an answer', async () => {
  const broken = await run('open', unique('break'));
  assert.equal(said(broken), 'The capital of Norway');
  assert.match(broken.at(-1).error.message, /the connection to the model server failed/);
  const refused = await run('open', unique('refuse'));
  assert.match(refused.at(-1).error.message, /temperature must be below 2/);
});
