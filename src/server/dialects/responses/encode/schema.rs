//! The shapes of responses and their events, for the description of the API.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::dialects::chat::encode::{AgentSummary, FileEntry, PendingApproval};

/// A response. Members of the request come back with what was asked, else with OpenAI's defaults.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "Response")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ResponseObject {
    /// The id of the response and of its run.
    id: String,
    #[schemars(extend("const" = "response"))]
    object: String,
    /// When it was begun, in seconds since 1970.
    created_at: i64,
    /// When it was completed.
    completed_at: Option<i64>,
    #[schemars(extend("enum" = ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]))]
    status: String,
    background: bool,
    incomplete_details: Option<IncompleteDetails>,
    error: Option<ResponseErrorObject>,
    /// The model, as the request names it.
    model: String,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    conversation: Option<ConversationRef>,
    /// The items, in the order in which they were added.
    output: Vec<OutputItem>,
    tools: Vec<Map<String, Value>>,
    tool_choice: Value,
    parallel_tool_calls: bool,
    max_output_tokens: Option<u64>,
    max_tool_calls: Option<u64>,
    text: Map<String, Value>,
    reasoning: Option<Map<String, Value>>,
    temperature: f64,
    top_p: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    top_logprobs: u64,
    truncation: String,
    store: bool,
    service_tier: String,
    /// The sum over all calls of the model; `null` until the end, and where the model server reports none.
    usage: Option<ResponseUsageObject>,
    user: Option<String>,
    metadata: Map<String, Value>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
    /// The session, if the conversation is stored.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    /// What happened in the turn, once it has ended with an answer.
    #[schemars(
        with = "AgentSummary<'static>",
        skip_serializing_if = "Option::is_none"
    )]
    agent: Option<AgentSummary<'static>>,
    /// The files that tools made; absent when empty. Their contents are under `/v1/files/{id}/content`.
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    files: Vec<FileEntry<'static>>,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ConversationRef {
    id: String,
}

/// Why a response is incomplete.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct IncompleteDetails {
    /// `max_output_tokens`, `content_filter` or, after `agent.on_limit: "stop"`, the limit.
    reason: String,
}

#[derive(Debug, JsonSchema)]
#[schemars(rename = "ResponseError")]
#[expect(dead_code, reason = "only its schema is used")]
struct ResponseErrorObject {
    r#type: String,
    code: String,
    message: String,
    param: Option<String>,
}

#[derive(Debug, JsonSchema)]
#[schemars(rename = "ResponseUsage")]
#[expect(dead_code, reason = "only its schema is used")]
struct ResponseUsageObject {
    input_tokens: u64,
    input_tokens_details: InputTokensDetails,
    output_tokens: u64,
    output_tokens_details: OutputTokensDetails,
    total_tokens: u64,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct InputTokensDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct OutputTokensDetails {
    reasoning_tokens: u64,
}

/// An item, in OpenAI's shape of its type, which has some of these members.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct OutputItem {
    id: String,
    /// `message`, `reasoning`, `function_call`, `function_call_output`, `custom_tool_call`, `web_search_call`,
    /// `code_interpreter_call`, `mcp_call`, `mcp_list_tools` or `mcp_approval_request`.
    r#type: String,
    #[schemars(extend("enum" = ["in_progress", "completed", "incomplete", "failed"]), with = "String", skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// Of a message.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    /// The parts of a message or of reasoning.
    #[schemars(
        with = "Vec<Map<String, Value>>",
        skip_serializing_if = "Option::is_none"
    )]
    content: Option<Vec<Map<String, Value>>>,
    /// Of a message: whether calls follow.
    #[schemars(extend("enum" = ["commentary", "final_answer"]), with = "String", skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    /// Of reasoning.
    #[schemars(
        with = "Vec<Map<String, Value>>",
        skip_serializing_if = "Option::is_none"
    )]
    summary: Option<Vec<Map<String, Value>>>,
    /// Of reasoning: what gives it back to the model in a later turn.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    encrypted_content: Option<String>,
    /// The call that the client is to run or has run.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    /// The tool.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The namespace of the tool.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// JSON text.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    /// The text of a custom tool's call.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    /// What a call brought.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    /// Why a call of a tool failed, an object; or why the tools of a server are not offered, a text.
    #[schemars(with = "Value", extend("type" = ["object", "string"]), skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    /// The tools of a server.
    #[schemars(
        with = "Vec<Map<String, Value>>",
        skip_serializing_if = "Option::is_none"
    )]
    tools: Option<Vec<Map<String, Value>>>,
    /// The server of a tool: `loopwright` for its own.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    server_label: Option<String>,
    /// The search, or the page.
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    action: Option<Map<String, Value>>,
    /// What a search found, if it is included.
    #[schemars(
        with = "Vec<Map<String, Value>>",
        skip_serializing_if = "Option::is_none"
    )]
    results: Option<Vec<Map<String, Value>>>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    container_id: Option<String>,
    /// The output of code, if it is included.
    #[schemars(
        with = "Option<Vec<Map<String, Value>>>",
        skip_serializing_if = "Option::is_none"
    )]
    outputs: Option<Vec<Map<String, Value>>>,
}

/// An event of a streamed response, in OpenAI's shape of its type, which has some of these members.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ResponseEvent {
    r#type: String,
    /// The number of the event, from 0.
    sequence_number: u64,
    #[schemars(with = "ResponseObject", skip_serializing_if = "Option::is_none")]
    response: Option<ResponseObject>,
    #[schemars(with = "OutputItem", skip_serializing_if = "Option::is_none")]
    item: Option<OutputItem>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    item_id: Option<String>,
    /// The place of the item.
    #[schemars(with = "u64", skip_serializing_if = "Option::is_none")]
    output_index: Option<u64>,
    /// The place of the part.
    #[schemars(with = "u64", skip_serializing_if = "Option::is_none")]
    content_index: Option<u64>,
    #[schemars(with = "u64", skip_serializing_if = "Option::is_none")]
    summary_index: Option<u64>,
    #[schemars(with = "u64", skip_serializing_if = "Option::is_none")]
    annotation_index: Option<u64>,
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    part: Option<Map<String, Value>>,
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    annotation: Option<Map<String, Value>>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    delta: Option<String>,
    #[schemars(
        with = "Vec<Map<String, Value>>",
        skip_serializing_if = "Option::is_none"
    )]
    logprobs: Option<Vec<Map<String, Value>>>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// Of an error.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Of an error.
    #[schemars(with = "Option<String>", skip_serializing_if = "Option::is_none")]
    param: Option<String>,
    #[schemars(with = "ResponseErrorObject", skip_serializing_if = "Option::is_none")]
    error: Option<ResponseErrorObject>,
    /// Of `loopwright.tool_output`.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    /// Of `loopwright.notice`.
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    notice: Option<Map<String, Value>>,
    /// Of `loopwright.approval_required`.
    #[schemars(
        with = "PendingApproval<'static>",
        skip_serializing_if = "Option::is_none"
    )]
    approval: Option<Map<String, Value>>,
}
