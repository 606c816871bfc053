//! Server-side tools: the seam, and what a call brings back.
//!
//! Knows nothing of the loop, of sessions as stored things or of HTTP answers. A tool that fails is news for the
//! model, never an error of the request.

pub mod batch;
pub mod cap;
pub mod repair;
pub mod schema;
pub mod set;
pub mod settings;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::ids::{RequestId, SessionId};
use crate::openai::tool::ToolDefinition;

/// One server-side tool.
///
/// An open set: the dispatch URL and configured HTTP tools implement it, code execution, search and MCP will. Called by
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
}

/// Where a tool comes from, as `GET /v1/agent/tools` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSource {
    /// The dispatch URL.
    Dispatch,
    /// A `[[tools]]` entry of the configuration.
    Http,
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
    /// The tool says that it failed.
    pub is_error: bool,
    /// The turn may end with this result.
    pub terminate: bool,
    /// Images as base64 PNG (or a `data:` URL of another image type).
    pub images: Vec<String>,
    /// Files.
    pub files: Vec<ToolFile>,
}

/// A file that a tool made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFile {
    /// The plain file name.
    pub name: String,
    /// The media type.
    pub mime_type: String,
    /// The content, base64.
    pub data: String,
    /// The size of the decoded content in bytes.
    pub size: u64,
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
}

/// A shared tool.
pub type SharedTool = Arc<dyn Tool>;
