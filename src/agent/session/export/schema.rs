//! The shape of an exported session, for the description of the API.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::MessageMeta;
use protocol::ids::SessionId;
use store::StoredFile;

/// A stored conversation.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct SessionExport {
    id: SessionId,
    #[schemars(extend("const" = "session"))]
    object: String,
    /// Seconds since 1970.
    created_at: i64,
    /// Seconds since 1970.
    updated_at: i64,
    /// The id of the run that is going on.
    running: Option<String>,
    /// The id of the run that wrote the session last.
    last_run: Option<String>,
    /// OpenAI's chat messages, hidden ones included.
    messages: Vec<Map<String, Value>>,
    /// The files of the session, without their contents.
    files: Vec<StoredFile>,
    stats: SessionStats,
    /// What a client has stored with the conversation.
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    metadata: Option<Map<String, Value>>,
    agent: SessionMetadata,
}

/// The body of an import: an export, or any object with a list of chat messages. Other members are ignored. Exports of
/// mistral.rs can be imported too.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct SessionImport {
    /// Chat messages. The leading system and developer messages become the instructions.
    messages: Vec<ImportedMessage>,
    /// Seconds since 1970; by default the current time.
    #[schemars(range(min = 0))]
    created_at: Option<i64>,
    /// Seconds since 1970; by default the current time.
    #[schemars(range(min = 0))]
    updated_at: Option<i64>,
    /// At most 16 texts of 512 characters, with keys of 64.
    #[schemars(extend("maxProperties" = 16, "propertyNames" = {"maxLength": 64}, "additionalProperties" = {"type": "string", "maxLength": 512}))]
    metadata: Option<Map<String, Value>>,
    agent: Option<ImportedMetadata>,
}

/// A chat message; its other members are kept.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ImportedMessage {
    #[schemars(extend("enum" = ["system", "developer", "user", "assistant", "tool", "function"]))]
    role: String,
    content: Option<ImportedContent>,
}

/// A text, or a list of parts; in an export of mistral.rs either of them within an object.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ImportedContent {
    Plain(PlainContent),
    Wrapped(WrappedContent),
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum PlainContent {
    Text(String),
    Parts(Vec<Map<String, Value>>),
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
enum WrappedContent {
    Left(Option<PlainContent>),
    Right(Option<PlainContent>),
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SessionStats {
    message_count: u64,
    user_messages: u64,
    assistant_messages: u64,
    tool_calls: u64,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SessionMetadata {
    /// An entry for each message that has metadata.
    message_meta: Vec<MessageMeta>,
}

#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ImportedMetadata {
    /// As exported.
    message_meta: Option<Vec<MessageMeta>>,
}
