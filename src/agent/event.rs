//! The events of a run, in order. Each dialect encodes them to a streamed or a whole answer.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::stop::StopReason;
use blobs::segments::BinaryContent;
pub use policy::rules::RuleRef;
use protocol::ids::{FileId, SessionId};
use protocol::openai::citation::UrlCitation;
use protocol::openai::tool::{CallKind, ToolCall};
use protocol::openai::usage::{FinishReason, Usage};
pub(crate) use tools::RemoteToolName;
use tools::gate::GateWait;
pub use tools::{CodeDetail, ToolDetail, ToolKind, ToolSource, ToolStatus, WebDetail};

/// One event of a run. Events that are part of the answer can be stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum AgentEvent {
    /// The upstream has answered the first model call with a success status. The response to the client can start.
    #[serde(skip)]
    Started {
        /// The upstream's `x-ratelimit-*` headers.
        headers: HeaderMap,
    },
    /// Visible text. The answer is the concatenation of these texts and of those between rounds.
    Text(String),
    /// Separates the text of a round from the text before it, in dialects whose answer is one text.
    BetweenRounds(String),
    /// Reasoning text.
    Reasoning {
        /// The text.
        text: String,
        /// The upstream's field name for it.
        field: Cow<'static, str>,
    },
    /// Fields of the upstream's response that loopwright does not act on.
    Extra {
        /// Where the members were in the response.
        level: ExtraLevel,
        /// Key and JSON text.
        fields: ExtraFields,
    },
    /// The model's own name for itself; comes before its first delta.
    Model(String),
    /// The text of a round is complete. Comes before its calls, and before the end of the run.
    RoundEnded(RoundEnd),
    /// A piece of the arguments of a client call that runs if the turn ends with it. Reported only if the request wants
    /// arguments as they arrive.
    #[serde(skip)]
    ClientArguments(Box<ArgumentsPiece>),
    /// A server-side call starts.
    Calling(Box<Calling>),
    /// A call waits for a person's decision before it runs.
    #[serde(skip)]
    Waiting {
        /// The call.
        call: Box<WaitingCall>,
        /// The session, if it is stored.
        session_id: Option<SessionId>,
    },
    /// Live output of a running tool.
    #[serde(skip)]
    ToolOutput {
        /// The call, without its arguments.
        of: Box<Calling>,
        /// The text.
        text: String,
        /// `stdout`, `stderr` or `progress`.
        stream: Cow<'static, str>,
    },
    /// A file that a tool made.
    File(Box<ProducedFile>),
    /// A server-side call has ended.
    Complete(Box<ToolCallRecord>),
    /// The sources that the answer's text refers to. Comes at most once, after the whole text.
    #[serde(skip)]
    Annotations(Vec<UrlCitation>),
    /// Information for the client that is not part of the answer.
    Notice(Notice),
    /// The run is over. This is the last event of every run that does not fail.
    #[serde(skip)]
    Finished(Box<Outcome>),
}

/// Fields that loopwright does not act on: key and JSON text.
pub type ExtraFields = Vec<(String, Box<str>)>;

/// The object of an upstream's response that had a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtraLevel {
    /// The message, or a delta of it.
    Message,
    /// The choice. The field belongs to the event before this one.
    Choice,
    /// The response or chunk. Comes again when a value changes.
    Answer,
}

/// A piece of a call's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentsPiece {
    /// The call's index in its model call, from 0.
    pub index: usize,
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// The piece.
    pub piece: String,
}

/// The end of a round's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundEnd {
    /// The model asks for calls in this round, or a hook refuses its answer.
    pub has_calls: bool,
    /// The calls that the client sees, in the order of the model.
    pub calls: Vec<RoundCall>,
    /// The sources that the round's text refers to. Their indexes count from the start of that text.
    pub citations: Vec<UrlCitation>,
}

/// A call of a round that the client sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundCall {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The type of the call.
    pub kind: CallKind,
    /// Whether the client is to run it.
    pub is_of_client: bool,
}

/// A server-side call before it has a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Calling {
    /// The round, from 0.
    pub round: u32,
    /// The tool.
    pub name: String,
    /// The call's id.
    pub tool_call_id: String,
    /// The arguments as JSON text.
    pub arguments: String,
    /// What kind of tool it is.
    pub kind: ToolKind,
    /// The MCP server of the tool, and its name there.
    pub on_server: Option<RemoteToolName>,
    /// The rules may require a decision about it, and there is none yet.
    pub may_wait: bool,
}

/// A call that waits for a person's decision.
#[derive(Debug, Clone)]
pub struct WaitingCall {
    /// The call.
    pub of: Calling,
    /// The question.
    pub wait: GateWait,
}

/// One finished server-side call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolCallRecord {
    /// The call's index in its batch, from 0.
    pub index: usize,
    /// The round, from 0.
    pub round: u32,
    /// The call's id.
    pub tool_call_id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON text, after repairs, as the tool got them and the history has them.
    pub arguments: String,
    /// The text in the messages for the model.
    pub content: String,
    /// How it ended.
    pub status: ToolStatus,
    /// How long it took.
    pub duration: Duration,
    /// Images of the result that the turn keeps.
    pub images: Vec<KeptImage>,
    /// Frames of animations that the turn keeps.
    pub frames: Vec<KeptImage>,
    /// Ids of the files that the call made, its stored images included.
    pub file_ids: Vec<String>,
    /// The repairs that were made to the model's call.
    pub repairs: Vec<String>,
    /// A person has changed the arguments.
    pub edited: bool,
    /// What kind of tool it is.
    pub kind: ToolKind,
    /// The parts of the result besides the text.
    pub detail: Option<Box<ToolDetail>>,
}

/// An image of a result that the turn keeps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptImage {
    /// The media type, such as `image/png`.
    pub mime_type: Cow<'static, str>,
    /// The encoded image.
    #[serde(with = "base64_text")]
    pub bytes: Bytes,
    /// The stored file that holds it, if it is stored. Keep this instead of `bytes`.
    pub file: Option<KeptFile>,
}

/// A stored file that holds a content.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptFile {
    /// The id.
    pub id: FileId,
    /// The content; `None` where it has to be looked up again.
    #[serde(skip)]
    pub content: Option<BinaryContent>,
}

impl KeptImage {
    /// Whether it is of the one type that lists of images hold in an answer.
    pub fn is_png(&self) -> bool {
        self.mime_type == "image/png"
    }

    /// The bytes: in the file, if the image is stored.
    pub fn into_content(self) -> BinaryContent {
        let stored = self.file.and_then(|file| file.content);
        stored.unwrap_or(BinaryContent::Memory(self.bytes))
    }
}

impl ToolCallRecord {
    /// How long the call took, in milliseconds.
    pub fn duration_ms(&self) -> u64 {
        u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A file that a tool made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProducedFile {
    /// The id.
    pub id: String,
    /// The size in bytes.
    pub size: u64,
    /// Seconds since 1970.
    pub created_at: i64,
    /// The file name.
    pub name: String,
    /// The path by which the tool names the file.
    pub path: String,
    /// OpenAI's `purpose` of a file.
    pub purpose: Cow<'static, str>,
    /// The media type.
    pub mime_type: String,
    /// The session, if it is stored.
    pub session_id: Option<SessionId>,
    /// The round that made it, from 0.
    pub round: u32,
    /// The content, unless it is too large to be sent inline.
    #[serde(with = "base64_text::optional")]
    pub data: Option<Bytes>,
    /// The stored file that holds the content, if it is stored. Keep this instead of `data`.
    #[serde(skip)]
    pub file: Option<BinaryContent>,
}

/// Information for the client that is not part of the answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Notice {
    /// The class: `retry`, `limit_reached`, `tokens_estimated`, `session_store`, `session_too_large`, `interpreter_lost`,
    /// `file_store`, `file_not_produced`, `turn_bytes`, `mcp_server` or `hook`.
    pub kind: Cow<'static, str>,
    /// A text for people.
    pub message: String,
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Why the turn ended.
    pub stop_reason: StopReason,
    /// OpenAI's `finish_reason` for it.
    pub finish_reason: FinishReason,
    /// The calls that the client is to run.
    pub client_calls: Vec<ToolCall>,
    /// The calls that wait for a person's decision.
    pub approvals: Vec<WaitingCall>,
    /// Token counts of all model calls together, if an upstream sent any.
    pub usage: Option<Usage>,
    /// Token counts of each model call.
    pub usage_by_round: Vec<Option<Usage>>,
    /// Rounds in which server-side tools ran.
    pub rounds: u32,
    /// Model calls.
    pub model_calls: u32,
    /// The session, if it is stored.
    pub session_id: Option<SessionId>,
    /// All notices of the run.
    pub notices: Vec<Notice>,
    /// The time spent waiting for models and tools.
    pub waited: Duration,
}

impl Outcome {
    /// The outcome of a turn that was cancelled before it began.
    pub(crate) fn cancelled() -> Self {
        Self {
            stop_reason: StopReason::Cancelled,
            finish_reason: FinishReason::Stop,
            client_calls: Vec::new(),
            approvals: Vec::new(),
            usage: None,
            usage_by_round: Vec::new(),
            rounds: 0,
            model_calls: 0,
            session_id: None,
            notices: Vec::new(),
            waited: Duration::ZERO,
        }
    }
}

/// Bytes as base64 text.
pub(super) mod base64_text {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        bytes: &Bytes,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(Error::custom)?;
        Ok(bytes.into())
    }

    /// Bytes that may be absent.
    pub(super) mod optional {
        use super::{Bytes, Deserialize, Deserializer, Engine, Error, STANDARD, Serializer};

        #[expect(clippy::ref_option, reason = "serde calls it so")]
        pub(crate) fn serialize<S: Serializer>(
            bytes: &Option<Bytes>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match bytes {
                Some(bytes) => serializer.serialize_some(&STANDARD.encode(bytes)),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Bytes>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            let bytes = text.map(|text| STANDARD.decode(text)).transpose();
            Ok(bytes.map_err(Error::custom)?.map(Into::into))
        }
    }
}
