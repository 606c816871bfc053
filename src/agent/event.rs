//! What a run tells the edge, in order. Every dialect and both forms of answer are encoders over this.

use std::borrow::Cow;
use std::time::Duration;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::stop::StopReason;
use crate::ids::SessionId;
use crate::openai::citation::UrlCitation;
use crate::openai::tool::ToolCall;
use crate::openai::usage::{FinishReason, Usage};
use crate::tools::{ToolDetail, ToolKind, ToolStatus};

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
    /// Fields of the delta that loopwright does not act on: key and JSON text.
    DeltaExtra(Vec<(String, Box<str>)>),
    /// Fields of the choice that loopwright does not act on: key and JSON text.
    ChoiceExtra(Vec<(String, Box<str>)>),
    /// Fields of the chunk that loopwright does not act on, sent when they change: key and JSON text.
    ChunkExtra(Vec<(String, Box<str>)>),
    /// The model's name for itself, before any delta of it.
    Model(String),
    /// A server-side call is about to be dealt with.
    Calling(Box<Calling>),
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

/// One finished server-side call: an entry of `agentic_tool_calls`.
#[derive(Debug, Clone, Serialize)]
pub struct ToolCallRecord {
    /// The call's place in its batch.
    #[serde(skip)]
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
    pub result_content: String,
    /// How it ended.
    pub status: ToolStatus,
    /// How long it took.
    pub duration_ms: u64,
    /// Images that it brought back, base64.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub result_images_base64: Vec<String>,
    /// Files that it brought back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_ids: Vec<String>,
    /// What was mended in the model's own text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<String>,
    /// What kind of tool it is.
    #[serde(skip)]
    pub kind: ToolKind,
    /// What there is to tell besides the text.
    #[serde(skip)]
    pub detail: Option<Box<ToolDetail>>,
    /// Frames of animations, base64.
    #[serde(skip)]
    pub frames: Vec<String>,
}

/// A file that a tool made: an OpenAI file object with loopwright's additions.
#[derive(Debug, Clone, Serialize)]
pub struct ProducedFile {
    /// The id.
    pub id: String,
    /// Always `file`.
    pub object: &'static str,
    /// The size in bytes.
    pub bytes: u64,
    /// Seconds since 1970.
    pub created_at: i64,
    /// The plain name.
    pub filename: String,
    /// Always `agent_output`.
    pub purpose: &'static str,
    /// Always `processed`; OpenAI's clients expect it.
    pub status: &'static str,
    /// The plain name again, under mistral.rs's key.
    pub name: String,
    /// The media type.
    pub mime_type: String,
    /// The size in bytes again.
    pub size: u64,
    /// The conversation, if it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The round that made it.
    pub round: u32,
    /// What the tool itself calls it.
    #[serde(skip)]
    pub path: String,
    /// The content, sent as base64, unless the file is too large to be carried along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Base64>,
}

/// Bytes that are written as base64; encoded on the way out, so that they lie in memory once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64(pub Bytes);

/// Something the client may want to know: an `agentic_notice`.
#[derive(Debug, Clone, Serialize)]
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

/// `agent` of an answer.
#[derive(Debug, Serialize)]
pub struct AgentSummary<'a> {
    stop_reason: StopReason,
    rounds: u32,
    model_calls: u32,
    usage_by_round: Vec<Option<serde_json::Value>>,
    #[serde(skip_serializing_if = "<[Notice]>::is_empty")]
    notices: &'a [Notice],
}

impl Outcome {
    /// The `agent` object of the answer.
    pub fn summary(&self) -> AgentSummary<'_> {
        AgentSummary {
            stop_reason: self.stop_reason,
            rounds: self.rounds,
            model_calls: self.model_calls,
            usage_by_round: self
                .usage_by_round
                .iter()
                .map(|usage| usage.as_ref().map(Usage::to_value))
                .collect(),
            notices: &self.notices,
        }
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

/// The text as JSON if it is JSON, else as a JSON string; for showing arguments as an object.
pub fn as_json(text: &str) -> Box<RawValue> {
    // A line end can stand only between tokens, and would end a line of an event stream.
    let line = match memchr::memchr2(b'\n', b'\r', text.as_bytes()) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.replace(['\n', '\r'], " ")),
    };
    let value = serde_json::from_str::<Box<RawValue>>(&line);
    value
        .or_else(|_| serde_json::value::to_raw_value(text))
        .unwrap_or_default()
}
