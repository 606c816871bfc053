//! Models, tools, the endpoints of operators, and what is forwarded.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::chat::OF_CALL;
use super::errors;
use super::headers::HeaderKind::{Number, OptionalText, Text};
use super::operation::Operation;
use crate::dialects::chat::encode::DirectCallAnswer;
use crate::http::approvals::{ApprovalList, DecisionAnswer, DecisionRequest};
use crate::http::models::{Model, ModelList, OfferedTools};
use crate::http::permissions::ExplainRequest;
use crate::http::tool_call::CallBody;
use agent::metrics;
use policy::rules::RuleDecision;
use tools::source::Health;
use upstream::look::UpstreamState;

const MODELS: &str = "Models";
const OPERATIONS: &str = "Operations";

pub(in crate::http) fn models(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(MODELS, "listModels", "The models of all model servers")
        .answers::<ModelList>(200, "The models, each once.")
        .fails(errors::UPSTREAM)
        .passes_on_answers()
}

pub(in crate::http) fn model(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(MODELS, "getModel", "A model")
        .path("id", "The name of the model, which may hold slashes.")
        .answers::<Model>(200, "The model.")
        .fails(errors::MODEL)
        .fails(errors::NOT_FOUND)
        .fails(errors::UPSTREAM)
        .passes_on_answers()
}

pub(in crate::http) fn forwarded_model(operation: Operation<'_>) -> Operation<'_> {
    let operation = operation
        .named(MODELS, "forwardModel", "Forwarded to the model server")
        .described(
            "Fine-tuned models, for example, are deleted at the model server. With API keys, only if `forward` has the \
             path.",
        )
        .of_each_method()
        .path("id", "The name of the model, which may hold slashes.");
    forwarding(operation)
}

pub(in crate::http) fn forwarded(operation: Operation<'_>) -> Operation<'_> {
    let operation = operation
        .named("Forwarded", "forward", "Forwarded to the model server, byte for byte")
        .described(
            "Every path below `/v1` that this document does not describe is forwarded with all methods: `embeddings`, \
             `completions`, `audio/…`, `images/…`, `moderations`, `rerank`, `responses` and so on; with API keys, only \
             what `forward` lists. The request goes to a model server that has its `model`, or to the first one if it \
             names none. Answers are streamed, and so are bodies that are no JSON.",
        )
        .of_each_method()
        .path("path", "The path below `/v1`, which may hold slashes.");
    forwarding(operation)
}

fn forwarding(operation: Operation<'_>) -> Operation<'_> {
    operation
        .forwards()
        .fails(errors::FORWARDED)
        .fails(errors::BODY)
        .fails(errors::MODEL)
        .fails(errors::DRAINING)
        .fails(errors::UPSTREAM)
        .passes_on_answers()
}

pub(in crate::http) fn tools(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("Tools", "listTools", "The server-side tools")
        .answers::<OfferedTools>(200, "The tools, with the JSON Schemas of their arguments.")
}

pub(in crate::http) fn call(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("Tools", "callTool", "Calls a server-side tool")
        .described(
            "No model takes part. The call takes the path of a call of the model: repair, validation, hooks, permissions, \
             redaction, the cap of its result. How it ended is in `status`; an error of the request means that no tool was \
             called.",
        )
        .path("name", "The name of the tool, as `GET /v1/agent/tools` lists it, or of a function of the dispatch URL.")
        .header(
            "idempotency-key",
            json!({"type": "string", "pattern": "^[!-~]{1,255}$"}),
            "A request that is sent again under the same key gets the same answer, and the call is made once.",
        )
        .header(
            "x-session-id",
            json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}),
            "The same as `session_id` of the body, which counts more.",
        )
        .reads::<CallBody>(true)
        .answers::<DirectCallAnswer<'_>>(200, "The call, with its files and notices.")
        .with_headers(200, &OF_CALL)
        .with_error_headers(&OF_CALL)
        .fails(errors::NOT_FOUND)
        .fails(errors::CALL)
        .fails(errors::SESSION_BUSY)
        .fails(errors::SESSION_STORE)
        .fails(errors::DRAINING)
}

pub(in crate::http) fn mcp(operation: Operation<'_>) -> Operation<'_> {
    let message = json!({
        "type": "object",
        "required": ["jsonrpc"],
        "properties": {"jsonrpc": {"const": "2.0"}},
        "description": "A JSON-RPC message of the Model Context Protocol.",
    });
    operation
        .named("Tools", "mcp", "The tools as an MCP server")
        .described(
            "Streamable HTTP of the Model Context Protocol, versions 2025-03-26 and later, without sessions. Clients are to \
             use an SDK. What is wrong with a message can also be a JSON-RPC error with the status 400.",
        )
        .reads_as("application/json", message.clone(), true)
        .answers_as(200, "application/json", message, "The answer to a request.")
        .answers_as(
            200,
            "text/event-stream",
            json!({"type": "string"}),
            "The answer to a request with a `progressToken`, after its progress.",
        )
        .answers_nothing(202, "A notification was taken.")
        .fails(errors::INVALID)
        .fails(errors::NOT_ACCEPTED)
        .fails(errors::BODY)
        .fails(errors::MEDIA_TYPE)
        .fails(errors::PAGE)
        .fails(errors::DRAINING)
}

pub(in crate::http) fn approvals(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("Tools", "listApprovals", "The calls that wait for a person's decision")
        .described("Those of the caller's key; with the key of an operator, those of all keys. The oldest come first.")
        .answers::<ApprovalList>(200, "The calls.")
        .fails(errors::READS)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn decide(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("Tools", "decideApproval", "Decides about a call that waits")
        .path("id", "The id of the approval.")
        .reads::<DecisionRequest>(true)
        .answers::<DecisionAnswer>(200, "The decision is stored.")
        .fails(errors::NOT_FOUND)
        .fails(errors::DECIDED)
        .fails(errors::STORAGE)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn explain(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("Tools", "explainPermission", "Which rule decides about a call")
        .described(
            "The decision about the first call of a turn whose request has no rules of its own. No call is made.",
        )
        .reads::<ExplainRequest>(true)
        .answers::<RuleDecision>(200, "The decision, and what each level says.")
        .fails(errors::NOT_FOUND)
}

/// Whether the server can work.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Liveness {
    #[schemars(extend("const" = "ok"))]
    status: String,
}

/// Whether the server can work. A caller without a key gets the status only, and so does one of a host that is not allowed.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Readiness {
    #[schemars(extend("enum" = ["ok", "unavailable", "shutting_down"]))]
    status: String,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The commit that the program was built from, if the build was given it.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[schemars(with = "String", extend("enum" = ["ok", "unreachable"]), skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    /// The model servers, by name.
    #[schemars(
        with = "BTreeMap<String, UpstreamFacts>",
        skip_serializing_if = "Option::is_none"
    )]
    upstreams: Option<BTreeMap<String, UpstreamFacts>>,
    #[schemars(with = "String", extend("enum" = ["ok", "unreachable"]), skip_serializing_if = "Option::is_none")]
    session_store: Option<String>,
    /// Where the contents of files are kept.
    #[schemars(with = "String", extend("enum" = ["ok", "unreachable"]), skip_serializing_if = "Option::is_none")]
    file_store: Option<String>,
    /// The isolation of the code, and how many interpreters there are; absent if code execution is switched off.
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    code_execution: Option<Map<String, Value>>,
    /// The MCP servers that the caller may use, by name; absent if there are none.
    #[schemars(
        with = "BTreeMap<String, McpReadiness>",
        skip_serializing_if = "Option::is_none"
    )]
    mcp_servers: Option<BTreeMap<String, McpReadiness>>,
}

/// What is known of a model server.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct UpstreamFacts {
    /// What it is, from the settings, by its host or by what it answered; absent if that is not known.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Whether it lists its models, and if not, why.
    state: UpstreamState,
    /// Its base URL; only for those who may read `/metrics`.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// Whether calls of an MCP server's tools can run.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct McpReadiness {
    state: Health,
    /// How many tools it has.
    tools: usize,
    /// Why calls cannot run; absent if they can.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(in crate::http) fn healthz(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(OPERATIONS, "getHealth", "Whether the server is alive")
        .public()
        .answers::<Liveness>(200, "It is.")
}

pub(in crate::http) fn readyz(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            OPERATIONS,
            "getReadiness",
            "Whether a model server and the session store are reachable",
        )
        .described("A request with a key, or without keys one with an allowed host, also gets the details.")
        .public()
        .answers::<Readiness>(200, "They are.")
        .answers::<Readiness>(503, "They are not, or the server is shutting down.")
        .with_headers(503, &[("retry-after", Number, "Seconds to wait.")])
}

pub(in crate::http) fn console_page(operation: Operation<'_>) -> Operation<'_> {
    console(operation.named(OPERATIONS, "getConsole", "The console, a web page"))
        .described(
            "Clients whose `accept` names `text/html` get the page. Others get one line of text with the addresses of the \
             console and of the API. No key is needed; the line has the version for requests with a key, or without keys for \
             all.",
        )
}

pub(in crate::http) fn console_file(operation: Operation<'_>) -> Operation<'_> {
    console(operation.named(OPERATIONS, "getConsoleFile", "A file of the console"))
        .path("file", "The path of the file below `/ui/`.")
        .described("No key is needed.")
}

/// What the page and its files have in common.
fn console(operation: Operation<'_>) -> Operation<'_> {
    let validator = [(
        "etag",
        OptionalText,
        "Stands for the content of the page or file.",
    )];
    let sniffing = [("x-content-type-options", Text, "`nosniff`.")];
    operation
        .header(
            "if-none-match",
            json!({"type": "string"}),
            "The `etag` of the content that the client has.",
        )
        .answers_as(200, "*/*", json!({}), "The content.")
        .answers_nothing(304, "The client has the content.")
        .with_headers(200, &validator)
        .with_headers(200, &sniffing)
        .with_headers(304, &validator)
        .with_headers(304, &sniffing)
        .fails(errors::NOT_FOUND)
}

pub(in crate::http) fn metrics(operation: Operation<'_>) -> Operation<'_> {
    let media = metrics::CONTENT_TYPE;
    let media = media.split(';').next().unwrap_or(media);
    operation
        .named(
            OPERATIONS,
            "getMetrics",
            "The metrics in the text format of Prometheus",
        )
        .described(
            "With API keys they are for those with `operator = true`, or for all while none has that mark. `metrics_listen` \
             serves them on an address of their own, without a key.",
        )
        .answers_as(200, media, json!({"type": "string"}), "The metrics.")
        .fails(errors::OPERATOR)
}
