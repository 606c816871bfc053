// The same request as curl, Python and JavaScript, with the real address, ready to be run elsewhere.

import { apiKey, baseUrl } from "./api.js";
import { button, copyButton, fill, h } from "./dom.js";
import { codeBlock } from "./markdown.js";

const KEY_VARIABLE = "LOOPWRIGHT_API_KEY";

/** Members of a chat request that the OpenAI SDKs know; the others travel in `extra_body`. */
const OPENAI_MEMBERS = ["model", "messages", "stream", "stream_options", "tools", "tool_choice", "response_format"];

/** @returns {Array<{name: string, language: string, text: string}>} */
function snippetsOf({ method, path, body }) {
  const isChat = path === "/v1/chat/completions";
  return [
    { name: "curl", language: "bash", text: curl(method, path, body) },
    { name: "Python", language: "python", text: isChat ? openaiPython(body) : python(method, path, body) },
    {
      name: "JavaScript",
      language: "javascript",
      text: isChat ? openaiJavascript(body) : javascript(method, path, body),
    },
  ];
}

/** A word of a shell. */
function shell(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function curl(method, path, body) {
  const lines = [`curl ${body?.stream ? "-N " : ""}${shell(location.origin + path)}`];
  if (method !== "GET" && !(method === "POST" && body)) lines.push(`-X ${method}`);
  if (apiKey()) lines.push(`-H "authorization: Bearer $${KEY_VARIABLE}"`);
  if (body !== undefined)
    lines.push("-H 'content-type: application/json'", `-d ${shell(JSON.stringify(body, null, 2))}`);
  return lines.join(" \\\n  ");
}

/** A literal of Python. */
function literal(value, indent = "") {
  const inner = `${indent}    `;
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) {
    return value.length ? `[\n${value.map((one) => inner + literal(one, inner)).join(",\n")},\n${indent}]` : "[]";
  }
  if (typeof value === "object") {
    const members = Object.entries(value).map(([key, one]) => `${inner}${JSON.stringify(key)}: ${literal(one, inner)}`);
    return members.length ? `{\n${members.join(",\n")},\n${indent}}` : "{}";
  }
  return JSON.stringify(value);
}

function openaiPython(body) {
  const known = Object.entries(body).filter(([key]) => OPENAI_MEMBERS.includes(key));
  const others = Object.fromEntries(Object.entries(body).filter(([key]) => !OPENAI_MEMBERS.includes(key)));
  const members = known.map(([key, value]) => `    ${key}=${literal(value, "    ")},`);
  if (Object.keys(others).length) members.push(`    extra_body=${literal(others, "    ")},`);
  const key = apiKey() ? `os.environ["${KEY_VARIABLE}"]` : '"unused"';
  const end = body.stream
    ? `for chunk in answer:\n    for choice in chunk.choices:\n        print(choice.delta.content or "", end="", flush=True)`
    : "print(answer.choices[0].message.content)";
  return `${apiKey() ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(baseUrl)}, api_key=${key})
answer = client.chat.completions.create(
${members.join("\n")}
)
${end}
`;
}

function openaiJavascript(body) {
  const key = apiKey() ? `process.env.${KEY_VARIABLE}` : '"unused"';
  const end = body.stream
    ? `for await (const chunk of answer) {\n  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");\n}`
    : "console.log(answer.choices[0].message.content);";
  return `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl)}, apiKey: ${key} });
const answer = await client.chat.completions.create(${JSON.stringify(body, null, 2)});
${end}
`;
}

function python(method, path, body) {
  const headers = apiKey() ? `headers = {"authorization": "Bearer " + os.environ["${KEY_VARIABLE}"]}\n` : "";
  const members = [JSON.stringify(location.origin + path)];
  if (headers) members.push("headers=headers");
  if (body !== undefined) members.push(`json=${literal(body, "    ")}`);
  return `${headers ? "import os\n\n" : ""}import requests

${headers}answer = requests.${method.toLowerCase()}(
${members.map((member) => `    ${member},`).join("\n")}
)
print(answer.status_code, answer.json())
`;
}

function javascript(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const listed = Object.entries(headers).map(([name, value]) => `"${name}": "${value}"`);
  if (apiKey()) listed.push(`authorization: \`Bearer \${process.env.${KEY_VARIABLE}}\``);
  const members = [
    method !== "GET" && `method: "${method}"`,
    listed.length && `headers: { ${listed.join(", ")} }`,
    body !== undefined && `body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")})`,
  ];
  const options = members
    .filter(Boolean)
    .map((member) => `  ${member},`)
    .join("\n");
  return `const answer = await fetch(${JSON.stringify(location.origin + path)}${options ? `, {\n${options}\n}` : ""});
console.log(answer.status, await answer.json());
`;
}

/** Tabs with the request in each language. */
export function snippetTabs(request) {
  const snippets = snippetsOf(request);
  const panel = h("div.snippet", { role: "tabpanel", id: "snippet-panel" });
  const tabs = snippets.map((snippet, index) =>
    h(
      "button.tab",
      {
        type: "button",
        role: "tab",
        id: `snippet-tab-${index}`,
        "aria-controls": "snippet-panel",
        onclick: () => choose(index),
        onkeydown: (event) => {
          const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (step) choose((index + step + tabs.length) % tabs.length, true);
        },
      },
      snippet.name,
    ),
  );
  const choose = (chosen, focus = false) => {
    tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === chosen));
      tab.tabIndex = index === chosen ? 0 : -1;
    });
    if (focus) tabs[chosen].focus();
    panel.setAttribute("aria-labelledby", `snippet-tab-${chosen}`);
    fill(
      panel,
      codeBlock(snippets[chosen].text, snippets[chosen].language),
      copyButton(snippets[chosen].text, "Copy code"),
    );
  };
  choose(0);
  return h("div.snippets", null, h("div.tabs", { role: "tablist", "aria-label": "Language" }, tabs), panel);
}

/** Shows a request as code, in a dialog. */
export function showSnippets(title, request, note = null) {
  const dialog = h(
    "dialog.dialog.wide",
    { "aria-labelledby": "snippet-title", onclose: () => dialog.remove() },
    h(
      "header",
      null,
      h("h2", { id: "snippet-title" }, title),
      button("Close", "close", () => dialog.close(), { quiet: true }),
    ),
    note && h("p.muted", null, note),
    apiKey() ? h("p.muted", null, `The API key is read from the variable ${KEY_VARIABLE}.`) : null,
    snippetTabs(request),
  );
  document.body.append(dialog);
  dialog.showModal();
}
