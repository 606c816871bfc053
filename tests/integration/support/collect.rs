//! A whole stream, put together as a client does it.

use std::fmt::Write as _;

use serde_json::Value;

use super::events::Frame;

/// The `type` of progress of tool calls.
pub(crate) const TOOL_PROGRESS: &str = "agentic_tool_call_progress";

/// What a client has after a whole stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collected {
    /// The one id.
    pub(crate) id: String,
    /// The one model.
    pub(crate) model: String,
    /// The visible text.
    pub(crate) text: String,
    /// The reasoning text.
    pub(crate) reasoning: String,
    /// The client's own tool calls, put together.
    pub(crate) tool_calls: Vec<ClientCall>,
    /// Progress events, with the `event:` line that they had.
    pub(crate) progress: Vec<Progress>,
    /// The finish chunk.
    pub(crate) finish: Option<Value>,
    /// The `usage` of the usage chunk.
    pub(crate) usage: Option<Value>,
    /// The `error` of an error object.
    pub(crate) error: Option<Value>,
    /// Comment lines.
    pub(crate) comments: Vec<String>,
    /// Every event as it came.
    pub(crate) frames: Vec<Frame>,
}

/// A tool call that the client is to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientCall {
    /// The id.
    pub(crate) id: String,
    /// The name.
    pub(crate) name: String,
    /// The JSON text of the arguments.
    pub(crate) arguments: String,
}

/// A progress event.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    /// The `event:` line.
    pub(crate) event: Option<String>,
    /// The chunk.
    pub(crate) chunk: Value,
}

impl Collected {
    /// The finish reason.
    pub(crate) fn finish_reason(&self) -> &str {
        let finish = self.finish.as_ref().expect("a finish chunk");
        finish["choices"][0]["finish_reason"]
            .as_str()
            .unwrap_or_default()
    }

    /// The session id of the finish chunk.
    pub(crate) fn session_id(&self) -> Option<&str> {
        self.finish.as_ref()?["session_id"].as_str()
    }

    /// The `agent` object of the finish chunk.
    pub(crate) fn agent(&self) -> &Value {
        &self.finish.as_ref().expect("a finish chunk")["agent"]
    }

    /// Progress of tool calls in this phase: `calling` or `complete`.
    pub(crate) fn phase(&self, phase: &str) -> Vec<&Value> {
        self.progress
            .iter()
            .map(|progress| &progress.chunk)
            .filter(|chunk| chunk["type"] == TOOL_PROGRESS && chunk["phase"] == phase)
            .collect()
    }

    /// The notices, in order.
    pub(crate) fn notices(&self) -> Vec<&Value> {
        self.progress
            .iter()
            .map(|progress| &progress.chunk)
            .filter(|chunk| chunk["type"] == "agentic_notice")
            .map(|chunk| &chunk["notice"])
            .collect()
    }

    /// The data of every event, `[DONE]` included.
    pub(crate) fn data(&self) -> Vec<String> {
        self.frames.iter().map(|frame| frame.data.clone()).collect()
    }

    /// The numbers of the events of a log.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        let number = |frame: &Frame| frame.id.as_deref()?.parse().ok();
        self.frames.iter().filter_map(number).collect()
    }

    /// The stream for a person to read.
    pub(crate) fn transcript(&self) -> String {
        let mut text = String::new();
        for frame in &self.frames {
            let event = frame.event.as_deref().unwrap_or("-");
            let _infallible = writeln!(text, "[{event}] {}", frame.data);
        }
        text
    }
}
