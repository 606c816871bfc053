// The tools of the server with their JSON Schemas, and a form that calls one.

import { path, post } from "./api.js";
import { CallView } from "./calls.js";
import { button, count, errorBox, fill, freshId, h, icon, notice } from "./dom.js";
import { jsonText } from "./output.js";
import { SchemaForm } from "./schema-form.js";
import { forget, mcpServers, tools } from "./server.js";
import { showSnippets } from "./snippets.js";

const PERMISSIONS = { auto: "runs", ask: "asks", deny: "refused" };

export function toolsView([chosen]) {
  return chosen ? toolView(chosen) : toolList();
}

function toolList() {
  const list = h("div", null);
  const state = h("span.muted", { role: "status" });
  const load = async () => {
    try {
      const [offered, servers] = [await tools(), await mcpServers()];
      const down = servers.filter((server) => server.state !== "ready");
      state.textContent = count(offered.length, "tool");
      fill(
        list,
        down.map((server) =>
          notice("error", h("p", null, `The MCP server ${server.name} is ${server.state}. ${server.reason ?? ""}`)),
        ),
        offered.length
          ? h("ul.tool-list", null, offered.map(entry))
          : notice(
              "empty",
              h("p", null, "This server offers no tools."),
              h(
                "p.muted",
                null,
                "Add [[tools]], an MCP server, --enable-search, --enable-code-execution or --tool-dispatch-url to its settings.",
              ),
            ),
      );
    } catch (error) {
      fill(list, errorBox(error, load));
    }
  };
  const element = h(
    "div.view",
    null,
    h(
      "header.view-head",
      null,
      h("h1", { tabindex: "-1" }, "Tools"),
      state,
      h(
        "div.view-actions",
        null,
        button(
          "Show as code",
          "code",
          () => showSnippets("List the tools", { method: "GET", path: "/v1/agent/tools" }),
          { quiet: true },
        ),
        button("Refresh", "refresh", () => (forget(), load()), { quiet: true }),
      ),
    ),
    list,
  );
  load();
  return { element };
}

function entry(tool) {
  return h(
    "li",
    null,
    h(
      "a.tool-link",
      { href: `#/tools/${encodeURIComponent(tool.name)}` },
      h("span.tool-name", null, tool.name),
      h("span.tool-about", null, firstSentence(tool.description)),
    ),
    marks(tool),
  );
}

function marks(tool) {
  return h(
    "span.marks",
    null,
    h("span.badge.plain", null, tool.source),
    h("span.badge", { "data-permission": tool.permission }, PERMISSIONS[tool.permission] ?? tool.permission),
    tool.state !== "ready" && h("span.badge.bad", null, tool.state),
  );
}

function firstSentence(text) {
  return String(text ?? "")
    .split(/(?<=\.)\s|\n/)[0]
    .slice(0, 200);
}

function toolView(name) {
  const body = h("div.stack", null);
  const load = async () => {
    try {
      const tool = (await tools()).find((one) => one.name === name);
      fill(body, tool ? details(tool) : notice("error", h("p", null, "This server offers no tool with this name.")));
    } catch (error) {
      fill(body, errorBox(error, load));
    }
  };
  const element = h(
    "div.view",
    null,
    h("nav.crumbs", { "aria-label": "Tools" }, h("a", { href: "#/tools" }, "Tools")),
    h("header.view-head", null, h("h1.mono", { tabindex: "-1" }, name)),
    body,
  );
  load();
  return { element };
}

function details(tool) {
  const form = new SchemaForm(tool.parameters);
  const session = h("input", {
    id: "call-session",
    type: "text",
    placeholder: "none",
    autocomplete: "off",
    spellcheck: "false",
  });
  const result = h("div", { "aria-live": "polite" });
  const target = path`/v1/agent/tools/${tool.name}/call`;
  const body = () => ({ arguments: form.value(), ...(session.value.trim() && { session_id: session.value.trim() }) });
  const guarded = (action) => {
    try {
      form.problem.textContent = "";
      return action(body());
    } catch (error) {
      form.problem.textContent = error.message;
      return undefined;
    }
  };
  const run = (request) => callTool(tool, target, request, result, submit);
  const submit = h("button.button.primary", { type: "submit" }, "Call the tool");
  return [
    h("div.row", null, marks(tool)),
    h("p.pre", null, String(tool.description ?? "")),
    h(
      "section.panel",
      { "aria-labelledby": "call-title" },
      h("h2", { id: "call-title" }, "Call it"),
      h(
        "form",
        {
          onsubmit: (event) => {
            event.preventDefault();
            guarded(run);
          },
        },
        form.element,
        h(
          "div.field",
          null,
          h("label", { for: "call-session" }, "Session, for tools that keep something in one"),
          session,
        ),
        h(
          "div.row",
          null,
          submit,
          button("Show as code", "code", () =>
            guarded((request) => showSnippets(`Call ${tool.name}`, { method: "POST", path: target, body: request })),
          ),
        ),
      ),
      result,
    ),
    h(
      "section",
      null,
      h("h2", null, "JSON Schema of the arguments"),
      jsonText(tool.parameters ?? {}, "JSON Schema"),
      h(
        "p",
        null,
        h(
          "a",
          { href: `#/permissions/${encodeURIComponent(tool.name)}` },
          icon("permissions"),
          " Which rules decide about it?",
        ),
      ),
    ),
  ];
}

async function callTool(tool, target, request, result, submit) {
  const view = new CallView({ id: freshId("call-"), name: tool.name, round: 0 });
  view.setArguments(request.arguments);
  view.fold.open = true;
  fill(result, h("ol.calls", null, view.element));
  submit.disabled = true;
  try {
    const entry = await post(target, request);
    view.past(entry.result_content);
    view.enrich({ round: 0, ...entry });
    if (!entry.result_images_base64?.length) view.addFiles(entry.file_ids ?? []);
  } catch (error) {
    view.stopTicking();
    const isMissing = error.status === 404 && !(error.message ?? "").includes(tool.name);
    fill(
      result,
      isMissing
        ? notice(
            "error",
            h(
              "p",
              null,
              "This server cannot call tools directly. Its version has no POST /v1/agent/tools/{name}/call. Ask the model to call the tool in a chat.",
            ),
            h("p.muted", null, error.message),
          )
        : errorBox(error),
    );
  } finally {
    submit.disabled = false;
  }
}
