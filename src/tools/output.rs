//! The output of a call: text, images, files, details for the client, or an error for the model.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::image_data::ImageData;
use protocol::openai::citation::CitedSource;

/// The output of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// The whole text for the model, before any cap.
    pub content: String,
    /// The text keeps to a bound of its own and is not cut again.
    pub is_bounded: bool,
    /// How the call ended, as the tool reports it.
    pub status: OutputStatus,
    /// The turn may end with this result.
    pub terminate: bool,
    /// Images.
    pub images: Vec<ToolImage>,
    /// Frames of animations: the client gets all of them, the model a few.
    pub frames: Vec<ToolImage>,
    /// Files.
    pub files: Vec<ToolFile>,
    /// Details for the client, besides the text.
    pub detail: Option<Box<ToolDetail>>,
    /// The sources that it found, with the numbers under which the answer may refer to them.
    pub sources: Vec<CitedSource>,
    /// Notices about the run as a whole.
    pub notices: Vec<ToolNotice>,
}

/// How a call ended that the tool carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputStatus {
    /// It worked.
    #[default]
    Ok,
    /// It failed.
    Error,
    /// It took too long; the output is what it had produced until then.
    Timeout,
}

/// Details of a call for the client, besides the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToolDetail {
    /// Details of a piece of code.
    Code(CodeDetail),
    /// Details of a search or of a page.
    Web(WebDetail),
}

/// Details of a search or of a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WebDetail {
    /// How many sources the model was given.
    pub results_count: usize,
    /// Their hosts, in order and each once.
    pub sources: Vec<String>,
    /// The sources themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(!default)]
    pub results: Vec<CitedSource>,
}

/// The outcome of a piece of code, part by part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeDetail {
    /// The code.
    pub code: String,
    /// The text that it wrote to stdout.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(!default)]
    pub stdout: String,
    /// The text that it wrote to stderr.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(!default)]
    pub stderr: String,
    /// The value of the last expression, and what was displayed as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The traceback, or why the code was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// The working directory, as the code sees it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(!default)]
    pub working_directory: String,
    /// How long it ran.
    pub execution_time_ms: u64,
}

/// A notice about the run as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolNotice {
    /// The class.
    pub kind: &'static str,
    /// For a person.
    pub message: String,
}

/// An image that a tool made; clones share its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolImage {
    /// The media type, such as `image/png`.
    pub mime_type: Cow<'static, str>,
    /// The encoded image.
    pub content: ImageData,
}

impl ToolImage {
    /// Whether it is of the one type that lists of images hold in an answer.
    pub fn is_png(&self) -> bool {
        self.mime_type == "image/png"
    }
}

/// A file that a tool made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFile {
    /// The plain file name.
    pub name: String,
    /// The path that the tool itself uses for it.
    pub path: String,
    /// The media type.
    pub mime_type: String,
    /// The content.
    pub content: Bytes,
}

/// Why a call has no output. The texts are for the model and hold no URL, header or path.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The call cannot be made like this; the model may try again differently.
    #[error("{0}")]
    Rejected(String),
    /// The tool failed.
    #[error("{message}")]
    Failed {
        /// The text for the model.
        message: String,
        /// The cause, for the operator's log.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The tool took too long.
    #[error("the tool did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

/// How a call ended, as reported to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It worked.
    Ok,
    /// It failed, or could not be made as the model asked.
    Error,
    /// It was not permitted.
    Denied,
    /// It took too long.
    Timeout,
    /// The turn ended or ran out of time first.
    Cancelled,
    /// It was suppressed: a repeated call, or one past a limit.
    Suppressed,
    /// The process ended while it ran.
    Interrupted,
}

impl From<OutputStatus> for ToolStatus {
    fn from(status: OutputStatus) -> Self {
        match status {
            OutputStatus::Ok => Self::Ok,
            OutputStatus::Error => Self::Error,
            OutputStatus::Timeout => Self::Timeout,
        }
    }
}

impl ToolStatus {
    /// Every status.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Error,
        Self::Denied,
        Self::Timeout,
        Self::Cancelled,
        Self::Suppressed,
        Self::Interrupted,
    ];

    /// The word for the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Suppressed => "suppressed",
            Self::Interrupted => "interrupted",
        }
    }
}
