//! Running a batch of calls.

use std::time::Duration;

use futures_util::Stream;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{CallContext, SharedTool, ToolOutput, ToolProgress, ToolStatus};

/// One call of a batch.
#[derive(Debug)]
pub struct BatchCall {
    /// Its place in the batch.
    pub index: usize,
    /// The tool.
    pub tool: SharedTool,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The id that the result answers.
    pub call_id: String,
}

/// What bounds a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// Most calls at the same time.
    pub max_parallel: usize,
    /// The moment at which what still runs is cancelled.
    pub deadline: Option<Instant>,
}

/// What happens in a batch.
#[derive(Debug)]
pub enum BatchEvent {
    /// Live output of a call.
    Progress {
        /// The call.
        index: usize,
        /// The output.
        progress: ToolProgress,
    },
    /// A call has ended.
    Done {
        /// The call.
        index: usize,
        /// How.
        result: ToolResult,
    },
}

/// How a call ended.
#[derive(Debug)]
pub struct ToolResult {
    /// The status.
    pub status: ToolStatus,
    /// What it brought; for a failure the text for the model.
    pub output: ToolOutput,
    /// How long it took.
    pub duration: Duration,
}

/// Runs a batch; dropping the stream cancels what runs.
pub fn run(
    calls: Vec<BatchCall>,
    context: CallContext,
    limits: BatchLimits,
) -> impl Stream<Item = BatchEvent> + Send + 'static {
    futures_util::stream::empty()
}
