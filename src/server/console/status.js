// What the server says of itself: readiness with remedies, address and examples, figures for an operator.

import { baseUrl, getText } from "./api.js";
import { button, copyButton, count, errorBox, fill, h, icon, notice, plainNumber } from "./dom.js";
import { jsonText } from "./output.js";
import { askReadiness, problemList, problemsOf, upstreamName } from "./readiness.js";
import { definition } from "./runs.js";
import { models } from "./server.js";
import { snippetTabs } from "./snippets.js";

export function statusView() {
  const ready = h("div", null);
  const examples = h("div", null);
  const usage = h("div", null);
  const load = async () => {
    fill(ready, h("p.muted", { role: "status" }, "Asking the server …"));
    const { status, body } = await askReadiness();
    fill(
      ready,
      status ? readiness(status, body) : errorBox(new Error("The server cannot be reached. Check that it runs."), load),
    );
    try {
      const [first] = await models();
      fill(
        examples,
        snippetTabs({
          method: "POST",
          path: "/v1/chat/completions",
          body: {
            model: first?.id ?? "MODEL",
            messages: [{ role: "user", content: "Hello" }],
            stream: true,
          },
        }),
      );
    } catch (error) {
      fill(examples, errorBox(error));
    }
    fill(usage, await figures());
  };
  const element = h(
    "div.view",
    null,
    h(
      "header.view-head",
      null,
      h("h1", { tabindex: "-1" }, "Status"),
      h("div.view-actions", null, button("Refresh", "refresh", load, { quiet: true })),
    ),
    ready,
    h(
      "section",
      { "aria-labelledby": "address-title" },
      h("h2", { id: "address-title" }, "Connect a client"),
      h("p", null, "Set this as ", h("code", null, "base_url"), " in any OpenAI client."),
      h("p.address", null, h("code", null, baseUrl), copyButton(baseUrl, "Copy address")),
      examples,
    ),
    h("section", { "aria-labelledby": "usage-title" }, h("h2", { id: "usage-title" }, "Usage since the start"), usage),
  );
  load();
  return { element };
}

function readiness(status, body) {
  const isReady = status === 200;
  return [
    h(
      "p.ready",
      { "data-ready": String(isReady) },
      h("span.ready-dot", { "aria-hidden": "true" }),
      isReady ? "Ready: the server can answer." : `Not ready: ${body.status ?? `HTTP ${status}`}.`,
    ),
    problemList(problemsOf(body)),
    definition({
      Version: body.version,
      "Model servers":
        body.upstreams &&
        h(
          "ul.plain",
          null,
          Object.entries(body.upstreams).map(([name, one]) =>
            h("li", null, `${upstreamName(name, one)}: ${one.state}${one.kind ? `, ${one.kind}` : ""}`),
          ),
        ),
      "Session store": body.session_store,
      "File store": body.file_store,
      "MCP servers":
        body.mcp_servers &&
        h(
          "ul.plain",
          null,
          Object.entries(body.mcp_servers).map(([name, one]) =>
            h("li", null, `${name}: ${one.state}${Number.isFinite(one.tools) ? `, ${count(one.tools, "tool")}` : ""}`),
          ),
        ),
      "Code execution":
        body.code_execution &&
        h(
          "ul.plain",
          null,
          [
            `isolation: ${body.code_execution.level}`,
            `Python ${body.code_execution.python}`,
            `${body.code_execution.busy} of ${body.code_execution.workers} interpreters busy`,
          ].map((one) => h("li", null, one)),
        ),
    }),
    h(
      "details.more",
      null,
      h("summary", null, icon("chevron"), "Everything that /readyz says"),
      jsonText(body, "Answer of /readyz"),
    ),
  ];
}

/** Figures of `/metrics` that say who uses how much. They are for operators. */
async function figures() {
  let text;
  try {
    text = await getText("/metrics");
  } catch (error) {
    return notice(
      "empty",
      h("p", null, error.status === 403 ? "The figures are for keys with operator = true." : error.message),
    );
  }
  const samples = parseMetrics(text);
  const rows = grouped(samples);
  const tools = samples.filter(({ name, value }) => name === "loopwright_tool_calls_total" && value > 0);
  return [
    rows.length
      ? h(
          "table.table",
          null,
          h("caption.hidden", null, "Tokens and requests by key and model"),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["Key", "Model", "Requests", "Tokens in", "Tokens out"].map((name, index) =>
                h("th", { scope: "col", class: index > 1 ? "number" : "" }, name),
              ),
            ),
          ),
          h(
            "tbody",
            null,
            rows.map((row) =>
              h(
                "tr",
                null,
                h("td", null, row.key || "–"),
                h("td", null, row.model),
                [row.requests, row.input, row.output].map((value) => h("td.number", null, plainNumber(value))),
              ),
            ),
          ),
        )
      : notice("empty", h("p", null, "No model has been asked yet.")),
    tools.length > 0 &&
      h(
        "table.table",
        null,
        h("caption.hidden", null, "Calls by tool"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, "Tool"),
            h("th", { scope: "col" }, "Status"),
            h("th.number", { scope: "col" }, "Calls"),
          ),
        ),
        h(
          "tbody",
          null,
          tools.map(({ labels, value }) =>
            h(
              "tr",
              null,
              h("td.mono", null, labels.tool),
              h("td", null, labels.status ?? ""),
              h("td.number", null, plainNumber(value)),
            ),
          ),
        ),
      ),
  ];
}

/** Samples of the Prometheus text format. */
function parseMetrics(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const parts = /^(loopwright_\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts) continue;
    const labels = {};
    for (const [, name, value] of (parts[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
      labels[name] = value.replace(/\\(.)/g, (_, one) => (one === "n" ? "\n" : one));
    samples.push({ name: parts[1], labels, value: Number(parts[3]) });
  }
  return samples;
}

function grouped(samples) {
  const rows = new Map();
  for (const { name, labels, value } of samples) {
    if (!["loopwright_tokens_total", "loopwright_model_requests_total"].includes(name)) continue;
    const id = JSON.stringify([labels.key, labels.model]);
    const row = rows.get(id) ?? { key: labels.key, model: labels.model ?? "", requests: 0, input: 0, output: 0 };
    rows.set(id, row);
    if (name === "loopwright_model_requests_total") row.requests += value;
    else if (/out|completion/.test(labels.kind ?? labels.type ?? labels.direction ?? "")) row.output += value;
    else row.input += value;
  }
  return [...rows.values()].filter((row) => row.requests + row.input + row.output > 0);
}
