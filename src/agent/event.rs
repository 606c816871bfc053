//! What a run reports, in order. Every dialect and both forms of answer are encoders over these events.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use super::stop::StopReason;
use crate::ids::SessionId;
use crate::openai::citation::UrlCitation;
use crate::openai::tool::ToolCall;
use crate::openai::usage::{FinishReason, Usage};
use crate::tools::gate::GateWait;
pub use crate::tools::{CodeDetail, ToolDetail, ToolKind, ToolStatus, WebDetail};

/// One thing that happened in a run.
#[derive(Debug)]
pub enum AgentEvent {
    /// The first model call was answered with success; from here on the answer is a 200.
    Started {
        /// The upstream's `x-ratelimit-*` headers.
        headers: HeaderMap,
    },
    /// Visible text; the texts of all these events joined are the answer.
    Text(String),
    /// Reasoning text and the field it came in.
    Reasoning {
        /// The text.
        text: String,
        /// The upstream's name of the field.
        field: &'static str,
    },
    /// Fields of the model's answer that loopwright does not act on.
    Extra {
        /// Where they stood.
        level: ExtraLevel,
        /// Key and JSON text.
        fields: ExtraFields,
    },
    /// The model's name for itself, before any delta of it.
    Model(String),
    /// A server-side call is about to be dealt with.
    Calling(Box<Calling>),
    /// A call waits at the gate before it runs.
    Waiting {
        /// The call.
        of: Box<Calling>,
        /// What it waits for.
        wait: GateWait,
    },
    /// Live output of a running tool.
    ToolOutput {
        /// The call, without its arguments.
        of: Box<Calling>,
        /// The text.
        text: String,
        /// `stdout`, `stderr` or `progress`.
        stream: &'static str,
    },
    /// A file that a tool made.
    File(Box<ProducedFile>),
    /// A server-side call has its result.
    Complete(Box<ToolCallRecord>),
    /// The sources that the answer's text refers to; comes once, when the text is whole.
    Annotations(Vec<UrlCitation>),
    /// Something the client may want to know.
    Notice(Notice),
    /// The run is over; always the last event of a run that did not fail.
    Finished(Box<Outcome>),
}

/// Fields that loopwright does not act on: key and JSON text.
pub type ExtraFields = Vec<(String, Box<str>)>;

/// Where a field stood in the model's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraLevel {
    /// In the message, which comes in pieces.
    Message,
    /// Beside the message; it belongs to the event before.
    Choice,
    /// In the answer as a whole; sent when it changes.
    Answer,
}

/// A server-side call that is about to be dealt with.
#[derive(Debug, Clone)]
pub struct Calling {
    /// The round, from 0.
    pub round: u32,
    /// The tool.
    pub name: String,
    /// The call.
    pub tool_call_id: String,
    /// The arguments as JSON text.
    pub arguments: String,
    /// What kind of tool it is.
    pub kind: ToolKind,
}

/// One finished server-side call.
#[derive(Debug, Clone)]
pub struct ToolCallRecord {
    /// The call's place in its batch.
    pub index: usize,
    /// The round, from 0.
    pub round: u32,
    /// The call.
    pub tool_call_id: String,
    /// The tool.
    pub name: String,
    /// The text that the tool was given and the history holds.
    pub arguments: String,
    /// The very text that the model was given.
    pub content: String,
    /// How it ended.
    pub status: ToolStatus,
    /// How long it took.
    pub duration: Duration,
    /// Images that it brought back, base64.
    pub images: Vec<String>,
    /// Frames of animations, base64.
    pub frames: Vec<String>,
    /// Files that it brought back.
    pub file_ids: Vec<String>,
    /// What was mended in the model's own text.
    pub repairs: Vec<String>,
    /// What kind of tool it is.
    pub kind: ToolKind,
    /// What there is to tell besides the text.
    pub detail: Option<Box<ToolDetail>>,
}

impl ToolCallRecord {
    /// How long the call took, in milliseconds.
    pub fn duration_ms(&self) -> u64 {
        u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A file that a tool made.
#[derive(Debug, Clone)]
pub struct ProducedFile {
    /// The id.
    pub id: String,
    /// The size in bytes.
    pub size: u64,
    /// Seconds since 1970.
    pub created_at: i64,
    /// The plain name.
    pub name: String,
    /// What the tool itself calls it: a path, where it has folders.
    pub path: String,
    /// What it is for.
    pub purpose: &'static str,
    /// The media type.
    pub mime_type: String,
    /// The conversation, if it is stored.
    pub session_id: Option<SessionId>,
    /// The round that made it.
    pub round: u32,
    /// The content, unless the file is too large to be carried along.
    pub data: Option<Bytes>,
}

/// Something the client may want to know.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The class: `retry`, `limit_reached`, `session_store`, `interpreter_lost`, `file_store` or `file_not_produced`.
    pub kind: &'static str,
    /// For a person.
    pub message: String,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Why.
    pub stop_reason: StopReason,
    /// The same for OpenAI clients.
    pub finish_reason: FinishReason,
    /// The calls that the client is to run.
    pub client_calls: Vec<ToolCall>,
    /// Tokens of all model calls, if the upstream counted them.
    pub usage: Option<Usage>,
    /// Tokens per model call.
    pub usage_by_round: Vec<Option<Usage>>,
    /// Rounds in which server-side tools ran.
    pub rounds: u32,
    /// Calls of the model.
    pub model_calls: u32,
    /// The conversation, if it is stored.
    pub session_id: Option<SessionId>,
    /// All notices of the run.
    pub notices: Vec<Notice>,
    /// Time that went to the model and to tools.
    pub waited: Duration,
}
