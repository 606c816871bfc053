//! Server-side tools: the seam, and what a call brings back.
//!
//! Knows nothing of the loop, of sessions as stored things or of HTTP answers. A tool that fails is news for the
//! model, never an error of the request.

pub mod batch;
pub mod cap;
pub mod python;
pub mod repair;
pub mod schema;
pub mod set;
pub mod settings;
pub mod sources;
pub mod web;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use self::sources::SourceBook;
use crate::ids::{Owner, RequestId, SessionId, WorkspaceId};
use crate::openai::citation::Source;
use crate::openai::tool::ToolDefinition;
pub use crate::sandbox::WorkFile;

/// One server-side tool.
///
/// An open set: the dispatch URL, configured HTTP tools and code execution and the web implement it, MCP will. Called by
/// [`batch::run`] only, which bounds its time, catches its panics and drops the future to cancel it; everything that
/// the call started must end with that drop.
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// What the model is offered.
    fn definition(&self) -> &ToolDefinition;

    /// How calls are to be run.
    fn policy(&self) -> &ToolPolicy;

    /// Runs one call.
    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// How calls of a tool are to be run.
#[derive(Debug, Clone)]
pub struct ToolPolicy {
    /// Longest time of one call, retries included.
    pub timeout: Duration,
    /// A batch that holds this tool runs one call after another.
    pub sequential: bool,
    /// A call may safely be made twice.
    pub idempotent: bool,
    /// Where the tool comes from.
    pub source: ToolSource,
    /// What progress of its calls looks like.
    pub kind: ToolKind,
}

/// What kind of tool it is: `data.tool_type` of progress events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolKind {
    /// Any tool: arguments in, text out.
    #[default]
    Custom,
    /// Runs code.
    CodeExecution,
    /// Searches the web or reads a page of it.
    WebSearch,
}

/// Where a tool comes from, as `GET /v1/agent/tools` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSource {
    /// The dispatch URL.
    Dispatch,
    /// A `[[tools]]` entry of the configuration.
    Http,
    /// loopwright itself.
    BuiltIn,
}

/// One call, ready to run.
#[derive(Debug, Clone)]
pub struct ToolInvocation {
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The id that the result answers.
    pub call_id: String,
    /// The conversation, if it is stored.
    pub session_id: Option<SessionId>,
    /// The client's request.
    pub request_id: RequestId,
    /// The round, from 0.
    pub round: u32,
    /// The model that called.
    pub model: String,
    /// The request's `user`, if it has one.
    pub user: Option<String>,
    /// `traceparent` and `tracestate` of the client's request.
    pub trace: HeaderMap,
    /// The interpreter and the working files of the conversation.
    pub workspace: WorkspaceId,
    /// Files of the conversation that belong among the working files.
    pub files: Arc<[WorkFile]>,
    /// Who asks.
    pub owner: Owner,
    /// The sources of the conversation and their numbers.
    pub sources: SourceBook,
    /// Where live output goes.
    pub progress: ProgressSender,
}

/// What all calls of a batch have in common.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The conversation, if it is stored.
    pub session_id: Option<SessionId>,
    /// The client's request.
    pub request_id: RequestId,
    /// The round, from 0.
    pub round: u32,
    /// The model that called.
    pub model: String,
    /// The request's `user`, if it has one.
    pub user: Option<String>,
    /// `traceparent` and `tracestate` of the client's request.
    pub trace: HeaderMap,
    /// The interpreter and the working files of the conversation.
    pub workspace: WorkspaceId,
    /// Files of the conversation that belong among the working files.
    pub files: Arc<[WorkFile]>,
    /// Who asks.
    pub owner: Owner,
    /// The sources of the conversation and their numbers.
    pub sources: SourceBook,
}

/// Live output of a running tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolProgress {
    /// The text.
    pub text: String,
    /// `stdout`, `stderr` or `progress`.
    pub stream: &'static str,
}

/// Takes a running tool's live output; waits while the client is slow.
#[derive(Debug, Clone)]
pub struct ProgressSender(pub(crate) mpsc::Sender<ToolProgress>);

/// What a call brought back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// The whole text for the model, before any cap.
    pub content: String,
    /// The text keeps to a bound of its own and is not cut again.
    pub is_bounded: bool,
    /// How it ended, in the tool's own words.
    pub status: OutputStatus,
    /// The turn may end with this result.
    pub terminate: bool,
    /// Images as base64 PNG (or a `data:` URL of another image type).
    pub images: Vec<String>,
    /// Frames of animations, in the same form: the client gets all of them, the model a few.
    pub frames: Vec<String>,
    /// Files.
    pub files: Vec<ToolFile>,
    /// What the client is told besides the text.
    pub detail: Option<Box<ToolDetail>>,
    /// What it found, by the numbers under which the answer may refer to it.
    pub sources: Vec<Source>,
    /// What the client may want to know of the run as a whole.
    pub notices: Vec<ToolNotice>,
}

/// What a tool says of a call that it carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputStatus {
    /// It worked.
    #[default]
    Ok,
    /// It failed.
    Error,
    /// It took too long, and this is what there is.
    Timeout,
}

/// What the client is told of a call besides its text.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolDetail {
    /// Of code.
    Code(CodeDetail),
    /// Of a search or of a page.
    Web(WebDetail),
}

/// What the web had.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WebDetail {
    /// How many sources the model was given.
    pub results_count: usize,
    /// Their hosts, in order and each once.
    pub sources: Vec<String>,
    /// The sources themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Source>,
}

/// What a piece of code came to, part by part.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CodeDetail {
    /// The code.
    pub code: String,
    /// What it wrote to stdout.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// What it wrote to stderr.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// The value of the last expression, and what was displayed as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The traceback, or why the code was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// Where it ran, as the code sees it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_directory: String,
    /// How long it ran.
    pub execution_time_ms: u64,
}

/// What the client may want to know of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolNotice {
    /// The class.
    pub kind: &'static str,
    /// For a person.
    pub message: String,
}

/// A file that a tool made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFile {
    /// The plain file name.
    pub name: String,
    /// What the tool itself calls it: a path, where it has folders.
    pub path: String,
    /// The media type.
    pub mime_type: String,
    /// The content.
    pub content: Bytes,
}

/// Why a call brought nothing back. The texts are for the model and hold no URL, header or path.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The call cannot be made like this; the model may try again differently.
    #[error("{0}")]
    Rejected(String),
    /// The tool failed.
    #[error("{message}")]
    Failed {
        /// What the model is told.
        message: String,
        /// What the operator's log is told.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The tool took too long.
    #[error("the tool did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

/// How a call ended, as reported to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
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
    /// It was held back: a repeated call or one past a limit.
    Suppressed,
}

impl ToolKind {
    /// The word for the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Custom => "custom",
            Self::CodeExecution => "code_execution",
            Self::WebSearch => "web_search",
        }
    }
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
    /// The word for the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Suppressed => "suppressed",
        }
    }
}

impl ProgressSender {
    /// Hands on live output. Waits while the client is slow; does nothing once nobody listens.
    pub async fn send(&self, progress: ToolProgress) {
        // A closed channel means that the run is over: there is nobody left to tell.
        let _closed = self.0.send(progress).await;
    }

    /// Hands on live output if that needs no waiting, else gives it back. What nobody listens to counts as handed on.
    ///
    /// # Errors
    /// The output, where the client is slow.
    pub fn try_send(&self, progress: ToolProgress) -> Result<(), ToolProgress> {
        match self.0.try_send(progress) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(progress)) => Err(progress),
        }
    }
}

/// A shared tool.
pub type SharedTool = Arc<dyn Tool>;
