// Starts the binary, and before it a scripted model server and tools, and ends what was started.

import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { startTools } from "./hostile-tools.mjs";
import { startUpstream } from "./upstream.mjs";

/** Milliseconds for a server to come up, and to end after SIGTERM. */
const READY_TIME = 60_000;
const END_TIME = 45_000;

const running = new Set();

/** Ends all that is left, at the latest by force. */
export async function endAll() {
  await Promise.all([...running].map((server) => server.stop().catch(() => {})));
}

export class Server {
  constructor(child, parts) {
    this.child = child;
    Object.assign(this, parts);
    this.ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
    running.add(this);
  }

  /** The demo, once its tour is over. */
  static demo(binary, work) {
    return launch(binary, ["demo", "--listen", "127.0.0.1:0"], /^Still serving at (http:\/\/[\d.:]+)\/v1/m, work, {});
  }

  /** A server with a scripted model and tools; with `keys` also with Python and web search. */
  static async serve(binary, work, { keys = false }) {
    const upstream = await startUpstream();
    const tools = await startTools();
    const directory = mkdtempSync(join(work, "serve-"));
    const settings = join(directory, "loopwright.toml");
    writeFileSync(settings, configuration(upstream.url, tools, keys));
    const environment = keys
      ? { CONSOLE_TEST_KEY: "key-of-the-console-test", CONSOLE_OTHER_KEY: "key-of-another-person" }
      : {};
    const options = [
      "serve",
      "--config",
      settings,
      "--listen",
      "127.0.0.1:0",
      "--session-store",
      `sqlite:${join(directory, "store.db")}`,
    ];
    return launch(binary, options, /ready on (http:\/\/[\d.:]+)/, work, environment, { upstream, tools });
  }

  problems() {
    return [...(this.upstream?.problems ?? []), ...(this.tools?.problems ?? [])];
  }

  async stop() {
    if (!running.delete(this)) return;
    this.child.kill("SIGTERM");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), END_TIME);
    const { code, signal } = await this.ended;
    clearTimeout(timer);
    await this.upstream?.close();
    await this.tools?.close();
    if (code !== 0)
      throw new Error(`the server ended with ${signal ?? `status ${code}`}:\n${this.output().slice(-4000)}`);
  }
}

function launch(binary, options, ready, work, environment, parts = {}) {
  const child = spawn(binary, options, {
    // Nothing of this machine's settings.
    env: { PATH: process.env.PATH, HOME: work, TMPDIR: work, ...environment },
    cwd: work,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const server = new Server(child, { ...parts, output: () => output });
  return new Promise((resolve, reject) => {
    const fail = (reason) => {
      clearTimeout(timer);
      reject(new Error(`${options[0]} ${reason}:\n${output.slice(-4000)}`));
    };
    const timer = setTimeout(() => fail("did not become ready"), READY_TIME);
    const read = (chunk) => {
      output = (output + chunk).slice(-1_000_000);
      const url = ready.exec(output)?.[1];
      if (!url || server.url) return;
      clearTimeout(timer);
      server.url = url;
      resolve(server);
    };
    child.stdout.setEncoding("utf8").on("data", read);
    child.stderr.setEncoding("utf8").on("data", read);
    child.once("error", (error) => fail(`could not be started (${error.message})`));
    server.ended.then(({ code }) => !server.url && fail(`ended with status ${code}`));
  });
}

function configuration(upstream, tools, keys) {
  const tool = (name, description, parameters, more = "") => `
[[tools]]
name = "${name}"
description = "${description}"
url = "${tools.url}/${name}"
parameters = ${parameters}
${more}`;
  const text = '{ type = "object", properties = { text = { type = "string" } } }';
  return `
upstream = "${upstream}"
max_result_chars = 12000
${keys ? "enable_code_execution = true" : ""}
${tool("echo", "Repeats a text.", '{ type = "object", properties = { text = { type = "string" }, times = { type = "integer", minimum = 1 } }, required = ["text"], additionalProperties = false }', "read_only = true")}
${tool("pay", "Moves money.", '{ type = "object", properties = { to = { type = "string" }, cents = { type = "integer" } }, required = ["to", "cents"] }')}
${tool("nasty", "<img src=x onerror=pwn()> **bold** <script>pwn()</script>", text)}
${tool("flood", "Answers with very long lines.", text)}

[[permissions]]
tool = "pay"
effect = "ask"
reason = "<b onclick=pwn()>This moves money.</b>"

[[permissions]]
tool = "echo"
argument = "/text"
match = "prefix"
patterns = ["forbidden"]
effect = "deny"
reason = "This word is forbidden."
${
  keys
    ? `
# Both on request only.
[search]
on_request = true

[sandbox]
require = "weak"

[[api_keys]]
name = "console"
env = "CONSOLE_TEST_KEY"
operator = true

[[api_keys]]
name = "other"
env = "CONSOLE_OTHER_KEY"
`
    : ""
}`;
}
