// Whether the server can answer, what is wrong if it cannot, and what helps.

import { look } from "./api.js";
import { h } from "./dom.js";

/** What helps where a model server is not ready. */
const UPSTREAM_REMEDIES = {
  unreachable: "Check that the model server runs, and that its address in the setting upstream is right.",
  server_error: "The model server answers with errors. It may still load a model: look at its log.",
  asks_for_key: "The model server wants a key. Set upstream_api_key_env, or send the key with each request.",
  refused_key: "The model server does not accept the key. Check the variable that upstream_api_key_env names.",
  no_models_endpoint: "GET /models is missing there. The address in the setting upstream may lack /v1.",
  refused: "The model server refuses GET /models. Look at its log.",
  no_model_list: "The answer to GET /models is no list of models. Check that the address leads to a model server.",
};

const STORE_REMEDIES = {
  session_store: "The session store is unreachable. Check the setting session_store, and the disk or the database.",
  file_store: "The storage of files is unreachable. Check the setting files_dir, and the disk or the bucket.",
};

/** Codes of errors whose cause is the model server. */
const UPSTREAM_CODES = ["upstream_unreachable", "upstream_timeout", "upstream_error"];

/** A model server with its address, which only operators are told. */
export function upstreamName(name, { url }) {
  return url ? `${name} at ${url}` : name;
}

/** What is wrong with the model servers, each with a remedy. */
function upstreamProblems(body) {
  return Object.entries(body.upstreams ?? {})
    .filter(([, one]) => one.state !== "ok")
    .map(([name, one]) => [`Model server ${upstreamName(name, one)}: ${one.state}`, UPSTREAM_REMEDIES[one.state]]);
}

/** All that an answer of `/readyz` says is wrong, each with a remedy. */
export function problemsOf(body) {
  return [
    ...upstreamProblems(body),
    ...Object.keys(STORE_REMEDIES)
      .filter((part) => body[part] === "unreachable")
      .map((part) => [part, STORE_REMEDIES[part]]),
    ...Object.entries(body.mcp_servers ?? {})
      .filter(([, one]) => one.state !== "ready")
      .map(([name, one]) => [`MCP server ${name}: ${one.state}`, one.reason ?? "Look at the log of loopwright."]),
    ...(body.code_execution?.problems ?? []).map((problem) => [
      "Code execution",
      typeof problem === "string" ? problem : JSON.stringify(problem),
    ]),
  ];
}

/** Asks the server whether it is ready. The light beside "Status" shows each answer. */
export async function askReadiness() {
  const answer = await look("/readyz", { quiet: true }).catch(() => ({ status: 0, body: {} }));
  document.dispatchEvent(new CustomEvent("readiness", { detail: answer }));
  return answer;
}

/** A light for an answer of `/readyz`: its colour, and what it means. */
export function lightOf({ status, body }) {
  const problems = problemsOf(body).map(([what]) => what);
  if (status === 200) return problems.length ? ["some", problems.join(". ")] : ["good", "ready"];
  return ["bad", problems.join(". ") || (status ? "not ready" : "the server cannot be reached")];
}

export function problemList(problems) {
  if (!problems.length) return null;
  return h(
    "ul.problems",
    null,
    problems.map(([what, remedy]) => h("li", null, h("strong", null, what), h("br"), remedy)),
  );
}

/** Whether the model server is the cause of an error. */
export function isOfUpstream({ code }) {
  return UPSTREAM_CODES.includes(code);
}

/** Adds to the box of an error which model server is the cause, what helps, and the way to Status. */
export async function explainUpstream(box) {
  const { body } = await askReadiness();
  const link = h("p", null, h("a", { href: "#/status" }, "Open Status"));
  const retry = box.querySelector(".button");
  for (const part of [problemList(upstreamProblems(body)), link]) if (part) box.insertBefore(part, retry);
}
