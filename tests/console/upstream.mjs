// A scripted model server. The last message of the user says what it does; each request is checked, as a model server that
// reads strictly would check it. A stream can wait for a gate that a test opens.

import http from "node:http";

/** Fields of loopwright that a model server must never see. */
const FOREIGN = [
  "session_id",
  "agent",
  "enable_code_execution",
  "agent_permission",
  "max_tool_rounds",
  "files",
  "web_search_options",
];

export async function startUpstream() {
  const state = new Upstream();
  const server = http.createServer((request, response) => state.answer(request, response));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  state.url = `http://127.0.0.1:${server.address().port}/v1`;
  state.close = () => {
    for (const { open } of state.gates.values()) open();
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return state;
}

class Upstream {
  constructor() {
    this.problems = [];
    this.requests = [];
    this.gates = new Map();
    this.ids = 0;
  }

  /** A gate by its name: `reached` resolves when a stream waits at it, `open()` lets all go on. */
  gate(name) {
    if (!this.gates.has(name)) {
      const gate = {};
      gate.reached = new Promise((resolve) => (gate.arrive = resolve));
      gate.opened = new Promise((resolve) => (gate.open = resolve));
      this.gates.set(name, gate);
    }
    return this.gates.get(name);
  }

  async answer(request, response) {
    if (request.url === "/v1/models") {
      return json(response, 200, {
        object: "list",
        data: [
          { id: "scripted", object: "model", created: 0, owned_by: "test" },
          { id: "<b>hostile</b> model", object: "model", created: 0, owned_by: "test" },
        ],
      });
    }
    const text = await textOf(request);
    if (request.method !== "POST" || request.url !== "/v1/chat/completions")
      return json(response, 404, { error: { message: "not found" } });
    let body;
    try {
      body = JSON.parse(text);
    } catch (error) {
      this.problems.push(`a body that is not JSON: ${error.message}`);
      return json(response, 400, { error: { message: "not JSON" } });
    }
    this.requests.push(body);
    this.check(request, body);
    return this.reply(body, response);
  }

  check(request, body) {
    const problem = (words) => this.problems.push(`${words}: ${JSON.stringify(body).slice(0, 500)}`);
    if (!/^application\/json/.test(request.headers["content-type"] ?? ""))
      problem(`content-type ${request.headers["content-type"]}`);
    for (const field of FOREIGN) if (field in body) problem(`the field ${field}`);
    if (typeof body.model !== "string" || !body.model) problem("no model");
    if (!Array.isArray(body.messages) || !body.messages.length) return problem("no messages");
    const open = [];
    body.messages.forEach((message, index) => {
      if (!["system", "developer", "user", "assistant", "tool"].includes(message.role))
        problem(`messages[${index}].role`);
      if (message.role === "tool") {
        if (open.shift() !== message.tool_call_id)
          problem(`messages[${index}] answers no open call, or not in their order`);
      } else if (open.length) {
        problem(`messages[${index}] comes before the answers to ${open}`);
        open.length = 0;
      }
      for (const call of message.tool_calls ?? []) {
        open.push(call.id);
        if (typeof call.function?.arguments !== "string") problem(`messages[${index}] has a call without arguments`);
      }
      if (message.role === "user" && typeof message.content !== "string" && !Array.isArray(message.content))
        problem(`messages[${index}].content`);
    });
    if (open.length) problem(`calls without answers: ${open}`);
    return undefined;
  }

  async reply(body, response) {
    const last = body.messages.findLastIndex((message) => message.role === "user");
    const prompt = plain(body.messages[last]?.content);
    const results = body.messages
      .slice(last + 1)
      .filter((message) => message.role === "tool")
      .map((message) => plain(message.content));
    const steps = script(prompt, results);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const id = `up-${(this.ids += 1)}`;
    const send = (delta, finish = null, more = {}) =>
      response.write(
        `data: ${JSON.stringify({ id, object: "chat.completion.chunk", created: 1, model: body.model, choices: [{ index: 0, delta, finish_reason: finish }], ...more })}\n\n`,
      );
    send({ role: "assistant", content: "" });
    let hasCalls = false;
    for (const step of steps) {
      if (response.destroyed) return;
      if (step.gate) {
        const gate = this.gate(step.gate);
        gate.arrive();
        await Promise.race([gate.opened, new Promise((resolve) => response.once("close", resolve))]);
      } else if (step.call) {
        hasCalls = true;
        send({
          tool_calls: [
            {
              index: step.index ?? 0,
              id: `call_up_${(this.ids += 1)}`,
              type: "function",
              function: { name: step.call, arguments: step.arguments ?? "{}" },
            },
          ],
        });
      } else {
        const pieces = step.pieces ?? [step.text ?? step.reasoning];
        for (const piece of pieces) {
          const isTaken = send(step.reasoning ? { reasoning_content: piece } : { content: piece });
          if (!isTaken && !response.destroyed) await taken(response);
        }
      }
    }
    send({}, hasCalls ? "tool_calls" : "stop");
    response.write(
      `data: ${JSON.stringify({ id, object: "chat.completion.chunk", created: 1, model: body.model, choices: [], usage: { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 } })}\n\n`,
    );
    response.end("data: [DONE]\n\n");
  }
}

/** What does harm in a page that takes the text of a model for markup. */
export const MARKUP = [
  "<script>pwn()</script>",
  "<img src=x onerror=pwn()>",
  "<img src=http://evil.invalid/pixel.png>",
  "<svg onload=pwn()><script>pwn()</script></svg>",
  "<iframe src=javascript:pwn()></iframe>",
  "<a href=javascript:pwn()>html link</a>",
  "<form action=http://evil.invalid/><button>send</button></form>",
  "<style>body{display:none}</style>",
  "<link rel=stylesheet href=http://evil.invalid/x.css>",
  "<base href=http://evil.invalid/>",
  "<math><mtext><table><mglyph><style><img src=x onerror=pwn()>",
  "<details open ontoggle=pwn()>x</details>",
  "<meta http-equiv=refresh content='0;url=http://evil.invalid/'>",
].join("\n");

export const MARKDOWN = [
  "[script link](javascript:pwn())",
  "[tab link](java\tscript:pwn())",
  "[data link](data:text/html,<script>pwn()</script>)",
  "[vb link](vbscript:pwn())",
  '[good link](https://example.org/a?b=1&c=2 "a title")',
  "![remote picture](http://evil.invalid/pixel.png)",
  "![script picture](javascript:pwn())",
  "![data picture](data:image/svg+xml,<svg onload=pwn()>)",
  "<https://example.org/auto>",
  "<javascript:pwn()>",
  "[ref]\n\n[ref]: javascript:pwn()",
  '[quote](https://example.org/"onmouseover=pwn())',
  "```html\n<script>pwn()</script><img src=x onerror=pwn()>\n```",
  "`<img src=x onerror=pwn()>`",
  "| <img src=x onerror=pwn()> | b |\n|---|---|\n| <script>pwn()</script> | [x](javascript:pwn()) |",
  "- [ ] open\n- [x] done",
  "[1] [2, 3] [^1]",
].join("\n\n");

/** A line of a mebibyte. */
export const LINE = "0123456789abcdef".repeat(65_536);

function script(prompt, results) {
  const says = (word) => prompt.includes(word);
  if (says("markup")) return [{ text: `${MARKUP}\n\n${MARKDOWN}` }];
  if (says("reasoning"))
    return [
      { reasoning: `I think <img src=x onerror=pwn()>. ${"So it goes. ".repeat(50)}` },
      { text: "Thought about it." },
    ];
  if (says("gate:")) {
    const name = /gate:([\w-]+)/.exec(prompt)[1];
    return [{ text: "The first half. " }, { gate: name }, { text: "The second half." }];
  }
  if (says("long line")) {
    const pieces = [];
    for (let start = 0; start < LINE.length; start += 8192) pieces.push(LINE.slice(start, start + 8192));
    return [{ pieces }];
  }
  if (says("heavy"))
    return [{ text: "_a".repeat(40_000) }, { text: `\n\n${"> ".repeat(20_000)}deep\n\nthe end of it` }];
  if (says("two payments") && !results.length) {
    const pay = (to, index) => ({ call: "pay", index, arguments: JSON.stringify({ to, cents: index + 1 }) });
    return [{ text: "I make two payments." }, ...["Ada", "Bo"].map(pay)];
  }
  const call = /call (\w+)(?: (\{.*\}))?/s.exec(prompt);
  if (call && !results.length) {
    return [{ text: `I call ${call[1]}.` }, { call: call[1], arguments: call[2] ?? JSON.stringify({ text: prompt }) }];
  }
  if (results.length)
    return [
      {
        text: `The tool said ${results.map((result) => result.length).join(" and ")} characters: ${results[0].slice(0, 300)}`,
      },
    ];
  return [{ text: `You said: ${prompt.slice(0, 200)}` }];
}

/** Resolves when more can be written, or nobody reads any more. */
function taken(response) {
  return new Promise((resolve) => {
    const done = () => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.on("drain", done).on("close", done);
  });
}

function plain(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? "").join("");
}

async function textOf(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces).toString("utf8");
}

function json(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}
