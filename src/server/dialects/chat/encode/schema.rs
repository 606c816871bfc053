//! The shapes of the answers that are written as text, for the description of the API.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::approvals::ApprovalRequiredEvent;
use super::progress::members::{FileProducedEvent, NoticeEvent, ToolCallProgress, ToolOutputEvent};
use super::records::{AgentSummary, FileEntry, MessageImage, ToolCallEntry};
use protocol::openai::citation::UrlCitation;
use protocol::openai::error::ErrorBody;

/// An answer of the loop in one piece. Members of the model server that loopwright does not know come along.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ChatCompletion {
    /// The id of the answer and of its run.
    id: String,
    #[schemars(extend("const" = "chat.completion"))]
    object: String,
    /// When the answer was begun, in seconds since 1970.
    created: i64,
    /// The model, as the model server names it.
    model: String,
    /// The answer: one choice.
    #[schemars(length(equal = 1))]
    choices: Vec<CompletionChoice>,
    /// The sum over all calls of the model; absent where the model server reports none.
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    usage: Option<Map<String, Value>>,
    /// The session, if the conversation is stored.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    /// The calls of server-side tools, in their order; absent when empty.
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    agentic_tool_calls: Vec<ToolCallEntry<'static>>,
    /// The files that tools made; absent when empty.
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    files: Vec<FileEntry<'static>>,
    /// What happened in the turn.
    agent: AgentSummary<'static>,
}

/// The one choice of an answer. Members of the model server come along.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct CompletionChoice {
    #[schemars(extend("const" = 0))]
    index: u32,
    /// The message of the model.
    message: CompletionMessage,
    /// As the model server gives them; `null` where it gives none.
    logprobs: Value,
    /// Why the model stopped: `stop`, `length`, `tool_calls`, `content_filter` or a word of the model server.
    finish_reason: String,
}

/// What the model says. Other members are the model server's.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct CompletionMessage {
    #[schemars(extend("const" = "assistant"))]
    role: String,
    /// The text of all rounds; `null` if there are only calls for the client.
    content: Option<String>,
    /// What the model says instead of an answer.
    refusal: Option<String>,
    /// What the model thought. The model server's name for it is kept: this one, the next, or `reasoning_text`.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    /// The same, of another model server.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    /// The sources that the text cites, and annotations of the model server.
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<AnnotationEntry>,
    /// With `agent.images: "inline"`: the images of the tools.
    #[schemars(length(min = 1), skip_serializing_if = "Vec::is_empty")]
    images: Vec<MessageImage<'static>>,
    /// The calls that the client is to run.
    #[schemars(length(min = 1), skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ClientCall>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum AnnotationEntry {
    Citation(UrlCitation),
    /// An annotation of the model server.
    #[schemars(extend("not" = {"required": ["url_citation"], "type": "object"}, "additionalProperties" = true))]
    Other(Value),
}

/// A call that the client is to run: its name and arguments are in the object that its type names.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ClientCall {
    /// The id, which the message with the result repeats as `tool_call_id`.
    id: String,
    /// `function` or `custom`.
    r#type: String,
    #[schemars(with = "FunctionCall", skip_serializing_if = "Option::is_none")]
    function: Option<FunctionCall>,
    #[schemars(with = "CustomCall", skip_serializing_if = "Option::is_none")]
    custom: Option<CustomCall>,
}

/// A call of a function.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct FunctionCall {
    name: String,
    /// JSON text.
    arguments: String,
}

/// A call of a custom tool.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct CustomCall {
    name: String,
    /// Free text.
    input: String,
}

/// What every `data:` line of a stream has, except an error and `[DONE]`.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ChunkMembers {
    /// The id of the answer and of its run, the same in the whole stream.
    id: String,
    #[schemars(extend("const" = "chat.completion.chunk"))]
    object: String,
    /// When the answer was begun, in seconds since 1970.
    created: i64,
    /// The model, as the model server names it.
    model: String,
    /// One choice; none in a chunk with `usage`.
    #[schemars(length(max = 1))]
    choices: Vec<ChunkChoice>,
}

/// What a chunk adds to the answer. Members of the model server come along.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct ChunkChoice {
    #[schemars(extend("const" = 0))]
    index: u32,
    delta: ChunkDelta,
    /// Why the model stopped; set in the last chunk with a choice.
    finish_reason: Option<String>,
}

/// New parts of the message. Other members are the model server's.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct ChunkDelta {
    /// In the first chunk: `assistant`.
    #[schemars(with = "String", extend("const" = "assistant"), skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    /// New text.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// New text of the model's thoughts, under the name that it has in a whole answer.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    /// The same, of another model server.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    /// The sources that the text cites, and annotations of the model server.
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<AnnotationEntry>,
    /// With `agent.images: "inline"`: the images of a call that has ended.
    #[schemars(length(min = 1), skip_serializing_if = "Vec::is_empty")]
    images: Vec<MessageImage<'static>>,
    /// The calls that the client is to run, each whole.
    #[schemars(length(min = 1), skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ClientCallDelta>,
}

/// A call that the client is to run, with its place in the list of all.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ClientCallDelta {
    index: u32,
    #[schemars(flatten)]
    call: ClientCall,
}

/// A chunk that adds to the answer or ends it. Chunks that report progress have a `type`. Other members are the model
/// server's.
#[derive(Debug, JsonSchema)]
#[schemars(extend("not" = {"required": ["type"]}, "additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct ChatCompletionChunk {
    #[schemars(flatten)]
    chunk: ChunkMembers,
    /// The sum over all calls of the model, in a chunk of its own.
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    usage: Option<Map<String, Value>>,
    /// In the finish chunk: the session, if the conversation is stored.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    /// In the finish chunk: what happened in the turn.
    #[schemars(
        with = "AgentSummary<'static>",
        skip_serializing_if = "Option::is_none"
    )]
    agent: Option<AgentSummary<'static>>,
}

/// A chunk with an empty `delta` that reports progress. Other members are the model server's.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "{E}Chunk", extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct EventChunk<E> {
    #[schemars(flatten)]
    chunk: ChunkMembers,
    #[schemars(flatten)]
    event: E,
}

/// An error that a model server reports. Its other members are the model server's.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct ReportedError {
    error: ReportedErrorDetail,
}

#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct ReportedErrorDetail {
    message: Value,
}

/// The JSON of a `data:` line of a streamed answer. The last line is `[DONE]`, which is no JSON.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, private_interfaces, reason = "only its schema is used")]
pub(crate) enum StreamedData {
    /// What the model says.
    Chunk(ChatCompletionChunk),
    /// A call starts or has ended.
    ToolCall(EventChunk<ToolCallProgress<'static>>),
    /// A call waits for a person's decision.
    Approval(EventChunk<ApprovalRequiredEvent<'static>>),
    /// Live output of a tool.
    Output(EventChunk<ToolOutputEvent<'static>>),
    /// A file that a tool has made.
    File(EventChunk<FileProducedEvent<'static>>),
    /// A notice.
    Notice(EventChunk<NoticeEvent<'static>>),
    /// An error of the model server, in its own words, after which only `[DONE]` follows.
    Reported(ReportedError),
    /// An error, after which only `[DONE]` follows.
    Error(ErrorBody<'static>),
}
