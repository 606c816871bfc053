// Which rule decides about a call: a try-out, in which nothing is called.

import { post } from "./api.js";
import { button, errorBox, fill, h, notice } from "./dom.js";
import { SchemaForm } from "./schema-form.js";
import { tools } from "./server.js";
import { showSnippets } from "./snippets.js";

const PATH = "/v1/permissions/explain";
const EFFECTS = {
  allow: "The call runs.",
  ask: "The call waits for a person's decision.",
  deny: "The call is refused.",
};

export function permissionsView([chosen]) {
  const select = h("select", { id: "tool", onchange: () => draw() });
  const place = h("div", null);
  const result = h("div", { "aria-live": "polite" });
  let known = [];
  let form = null;
  const draw = () => {
    form = new SchemaForm(known.find((tool) => tool.name === select.value)?.parameters);
    fill(place, form.element);
    fill(result);
  };
  const request = () => ({ tool: select.value, arguments: form.value() });
  const guarded = (action) => {
    try {
      form.problem.textContent = "";
      return action(request());
    } catch (error) {
      form.problem.textContent = error.message;
      return undefined;
    }
  };
  const explain = async (body) => {
    try {
      fill(result, answer(body, await post(PATH, body)));
    } catch (error) {
      fill(result, errorBox(error));
    }
  };
  const body = h("div", null);
  const load = async () => {
    try {
      known = await tools();
      if (!known.length)
        return fill(
          body,
          notice("empty", h("p", null, "This server offers no tools, so there is nothing to decide about.")),
        );
      fill(
        select,
        known.map((tool) => h("option", { value: tool.name }, tool.name)),
      );
      if (known.some((tool) => tool.name === chosen)) select.value = chosen;
      draw();
      return fill(
        body,
        h(
          "form.panel",
          {
            onsubmit: (event) => {
              event.preventDefault();
              guarded(explain);
            },
            novalidate: true,
          },
          h("div.field", null, h("label", { for: "tool" }, "Tool"), select),
          place,
          h(
            "div.row",
            null,
            h("button.button.primary", { type: "submit" }, "Explain"),
            button("Show as code", "code", () =>
              guarded((shown) => showSnippets("Explain a decision", { method: "POST", path: PATH, body: shown })),
            ),
          ),
          result,
        ),
      );
    } catch (error) {
      return fill(body, errorBox(error, load));
    }
  };
  const element = h(
    "div.view",
    null,
    h("header.view-head", null, h("h1", { tabindex: "-1" }, "Permissions")),
    h(
      "p.muted",
      null,
      "Ask the server what it would do with a call. No call is made. The rules are in the settings: [[permissions]] for all, [[api_keys.permissions]] for a key. The strictest word counts.",
    ),
    body,
  );
  load();
  return { element };
}

function answer(request, { effect, rule, reason, levels = [] }) {
  return h(
    "section.decision",
    { "data-effect": effect, "aria-label": "Decision" },
    h("p.decision-effect", null, h("span.badge", { "data-permission": effect }, effect), ` ${EFFECTS[effect] ?? ""}`),
    reason && h("p", null, "Reason: ", String(reason)),
    h(
      "p",
      null,
      rule
        ? `Rule ${rule.index} of the ${rule.level} decides. Rules count from 0.`
        : "No rule matches: the default permission decides.",
    ),
    levels.length > 0 &&
      h(
        "table.table",
        null,
        h("caption.hidden", null, "What each level says"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ["Level", "Says", "Rule"].map((name) => h("th", { scope: "col" }, name)),
          ),
        ),
        h(
          "tbody",
          null,
          levels.map((level) =>
            h(
              "tr",
              null,
              h("td", null, level.level),
              h("td", null, level.effect ?? "nothing"),
              h("td", null, level.rule ?? "–"),
            ),
          ),
        ),
      ),
  );
}
