//! The shape of a chat request, for the description of the API.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value;

use super::PROGRESS;
use crate::dialects::fields::extensions::agent::{
    CITATIONS, IMAGES, ON_DISCONNECT, ON_LIMIT, SESSION_MODE, TEXT, TOOL_EXECUTION,
};
use crate::dialects::fields::hosted::code::{MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_WANTED};
use crate::dialects::fields::hosted::mcp::MAX_LABEL_BYTES;
use crate::dialects::fields::hosted::web::MAX_LIST;
use agent::turn::RuleEntry;
use protocol::ids::SessionId;

/// The body of a chat request: OpenAI's members that loopwright acts on, and its extensions. Every other member goes to
/// the model server as it is. A member that is `null` counts as absent.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ChatRequest {
    /// The id of a model that `GET /v1/models` lists.
    model: String,
    /// The conversation; with `session_id`, it may be only what is new.
    #[schemars(length(min = 1))]
    messages: Vec<ChatMessage>,
    /// Whether the answer is streamed.
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// The number of answers; server-side tools need 1.
    n: Option<u64>,
    /// The end user, as the tools are told.
    user: Option<String>,
    /// Functions, custom tools, and hosted tools such as `code_interpreter` and `web_search`.
    tools: Option<Vec<ChatTool>>,
    /// Binds the first round only, if it is `required` or names a tool.
    tool_choice: Option<ToolChoiceValue>,
    /// `false`: the calls of one batch run one after the other.
    parallel_tool_calls: Option<bool>,
    /// The same limit as `agent.limits.max_tool_calls`.
    max_tool_calls: Option<u64>,
    /// `false`: nothing of the turn is stored.
    store: Option<bool>,
    /// The conversation to continue; an unknown id is a new session.
    session_id: Option<SessionId>,
    /// Most rounds of server-side tools; 0 switches them off. The server's own cap is a ceiling.
    max_tool_rounds: Option<u64>,
    /// `true` offers Python, where the server allows it; `false` declines it where every request is offered it.
    enable_code_execution: Option<bool>,
    /// Asks for web search, where the server allows it on request.
    web_search_options: Option<WebSearchOptions>,
    /// Files that the code is to produce; needs `enable_code_execution`.
    #[schemars(length(max = MAX_WANTED))]
    files: Option<Vec<OutputFile>>,
    /// Whether server-side tools may run where no rule says it: `ask` needs a person's approval. The strictest of this, the
    /// key's and the server's setting counts.
    #[schemars(extend("enum" = ["auto", "ask", "deny", null]))]
    agent_permission: Option<String>,
    /// Another name of `agent_permission`; of two the stricter counts.
    #[schemars(extend("enum" = ["auto", "ask", "deny", null]))]
    code_execution_permission: Option<String>,
    agent: Option<AgentRequest>,
}

/// A message of the conversation, in OpenAI's form. Members that are not named here are kept.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    role: String,
    /// A text, or a list of parts.
    content: Option<MessageContent>,
    /// The calls of an assistant message.
    tool_calls: Option<Vec<MessageCall>>,
    /// The call that a tool message answers.
    tool_call_id: Option<String>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum MessageContent {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// A part of a message, such as `{"type": "text", "text": "…"}`, `image_url` or `file`.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ContentPart {
    r#type: String,
}

/// A call in an assistant message.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct MessageCall {
    id: String,
    r#type: Option<String>,
    function: CalledFunction,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct CalledFunction {
    name: String,
    /// JSON text.
    arguments: String,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct StreamOptions {
    /// Whether a chunk with `usage` ends the stream.
    include_usage: Option<bool>,
}

/// A tool of the request. What is not named here goes to the model server.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ChatTool {
    /// A function: run by the server where a webhook owns it, else by the client.
    Function {
        #[schemars(extend("const" = "function"))]
        r#type: String,
        function: DeclaredFunction,
    },
    /// A custom tool, which the client runs.
    Custom {
        #[schemars(extend("const" = "custom"))]
        r#type: String,
        custom: DeclaredCustomTool,
    },
    /// An MCP server on a host that the operator permits. Its tools are server-side tools of this request.
    Mcp {
        #[schemars(extend("const" = "mcp"))]
        r#type: String,
        /// Stands, with two underscores, before the names of its tools.
        #[schemars(length(min = 1, max = MAX_LABEL_BYTES))]
        server_label: String,
        /// The URL of its streamable HTTP or SSE endpoint.
        server_url: Option<String>,
        /// What the server is for; added to the descriptions of its tools.
        server_description: Option<String>,
        /// An access token.
        authorization: Option<String>,
        /// Further headers.
        headers: Option<BTreeMap<String, String>>,
        /// The tools that are offered: their names, or an object with them as `tool_names`. By default all.
        allowed_tools: Option<Value>,
        /// About which calls a person is asked: `always` (the default), `never`, or an object whose members `always` and
        /// `never` have lists `tool_names`.
        require_approval: Option<Value>,
    },
    /// A hosted tool, such as `code_interpreter` or `web_search`.
    Hosted {
        #[schemars(extend("not" = {"enum": ["function", "custom", "mcp"]}))]
        r#type: String,
    },
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct DeclaredFunction {
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    /// A JSON Schema of the arguments.
    parameters: Option<BTreeMap<String, Value>>,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct DeclaredCustomTool {
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ToolChoiceValue {
    /// `none`, `auto` or `required`.
    Word(String),
    /// The tool, such as `{"type": "function", "function": {"name": "…"}}`.
    Tool(BTreeMap<String, Value>),
}

/// How the web is searched.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct WebSearchOptions {
    #[schemars(extend("enum" = ["low", "medium", "high", null]))]
    search_context_size: Option<String>,
    user_location: Option<UserLocation>,
    filters: Option<DomainFilters>,
}

/// Where the user is. The members of `approximate` may also stand beside `type`.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct UserLocation {
    #[schemars(extend("const" = "approximate"))]
    r#type: String,
    approximate: Option<ApproximatePlace>,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ApproximatePlace {
    /// A two-letter code.
    #[schemars(regex(pattern = "^[A-Za-z]{2}$"))]
    country: Option<String>,
    region: Option<String>,
    city: Option<String>,
    timezone: Option<String>,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct DomainFilters {
    /// Only these domains, such as `example.org`.
    #[schemars(length(max = MAX_LIST))]
    allowed_domains: Option<Vec<String>>,
    /// None of these domains.
    #[schemars(length(max = MAX_LIST))]
    blocked_domains: Option<Vec<String>>,
}

/// A file that the code is to produce.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct OutputFile {
    /// A relative path, such as `report.xlsx`.
    #[schemars(length(min = 1, max = MAX_NAME_BYTES))]
    name: String,
    #[schemars(length(max = MAX_TEXT_BYTES))]
    format: Option<String>,
    #[schemars(length(max = MAX_TEXT_BYTES))]
    description: Option<String>,
}

/// Options of the loop. An unknown member is refused.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct AgentRequest {
    tools: Option<ToolPatterns>,
    /// Name patterns of function tools that the client runs itself, even though a webhook could.
    client_tools: Option<Vec<String>>,
    /// Rules about the calls of server-side tools. With those of the server and of the key, the strictest counts.
    permissions: Option<Vec<RuleEntry>>,
    /// What happens at a limit: by default `final_answer`, one more call of the model, which must not ask for tools.
    /// `stop` ends with the text so far, `error` is a 422.
    #[schemars(extend("enum" = words(&ON_LIMIT)))]
    on_limit: Option<String>,
    limits: Option<RequestedLimits>,
    /// How the messages relate to the stored history; by default `auto`.
    #[schemars(extend("enum" = words(&SESSION_MODE)))]
    session_mode: Option<String>,
    /// How the calls of one batch run; by default `parallel`.
    #[schemars(extend("enum" = words(&TOOL_EXECUTION)))]
    tool_execution: Option<String>,
    /// Which identical call with identical results is held back: 0 is none, 3 the third. By default that of the server,
    /// which can be looser only where `repeat_override` is set.
    #[schemars(extend("enum" = [0, 2, 3, 4, 5, 6, 7, 8, null]))]
    repeat_threshold: Option<u32>,
    /// Which text the answer has: by default `all`, that of all rounds; `final`, that of the last one.
    #[schemars(extend("enum" = words(&TEXT)))]
    text: Option<String>,
    /// How the text names its sources: `marks` such as `[1]`, or `links` in Markdown. By default as the server's settings
    /// say.
    #[schemars(extend("enum" = words(&CITATIONS)))]
    citations: Option<String>,
    /// Whether images of tools are in the message too: `none` or `inline`. By default as the server's settings say.
    #[schemars(extend("enum" = words(&IMAGES)))]
    images: Option<String>,
    /// What a lost connection does to the turn; the default is `finish` with an `idempotency-key`, else `cancel`.
    #[schemars(extend("enum" = words(&ON_DISCONNECT)))]
    on_disconnect: Option<String>,
    /// `true`: the answer comes later, from `GET /v1/chat/completions/{id}`.
    background: Option<bool>,
    /// How progress is sent on a stream: `named` with an `event:` line, `chunk` without, `none` not at all. By default
    /// `auto`: `chunk` for the official OpenAI SDKs, else `named`.
    #[schemars(extend("enum" = words(&PROGRESS)))]
    progress: Option<String>,
}

/// Which server-side tools the request may use, as name patterns.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "RequestedTools", deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct ToolPatterns {
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
}

/// Limits of the turn. They lower those of the server.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct RequestedLimits {
    max_tool_calls: Option<u64>,
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_seconds: Option<f64>,
    max_total_tokens: Option<u64>,
}

/// The words that a member may be; a member may be `null` too.
fn words<T>(table: &[(&str, T)]) -> Vec<Value> {
    let words = table.iter().map(|(word, _)| Value::from(*word));
    words.chain([Value::Null]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::dialects::fields::extensions::ExtensionFields;
    use crate::dialects::fields::extensions::agent::{AGENT_FIELDS, LIMIT_FIELDS};

    fn members<T: JsonSchema>() -> BTreeSet<String> {
        let schema = schemars::schema_for!(T).to_value();
        schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    }

    fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        names.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_extension_is_described_and_no_other() {
        assert!(members::<ChatRequest>().is_superset(&named(ExtensionFields::NAMES)));
        assert_eq!(members::<AgentRequest>(), named(AGENT_FIELDS));
        let refused = "max_cost_usd";
        let limits = LIMIT_FIELDS.into_iter().filter(|name| *name != refused);
        assert_eq!(members::<RequestedLimits>(), named(limits));
    }
}
