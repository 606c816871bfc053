//! How a run reports to its encoder, and the answer that is left of it.

use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderMap, StatusCode};

use crate::agent::RunError;
use crate::agent::event::AgentEvent;
use crate::parted::PartedText;

/// Turns what a run reports into lines, and returns the answer with the last report.
pub type Encode = Box<dyn FnMut(RunReport, &mut BytesMut) -> Option<RunAnswer> + Send>;

/// What a run reports.
#[derive(Debug)]
pub enum RunReport {
    /// Something happened.
    Event(AgentEvent),
    /// The run failed; nothing follows.
    Failed(RunError),
    /// The run panicked; nothing follows.
    Panicked {
        /// A tool that must not run twice has run.
        side_effects: bool,
    },
}

/// The answer of a run that has ended: a completion, or an error.
#[derive(Debug, Clone)]
pub struct RunAnswer {
    /// The status.
    pub status: StatusCode,
    /// Headers besides those of every answer.
    pub headers: HeaderMap,
    /// The body.
    pub body: PartedText,
    /// It is kept as long as the session of its run.
    pub kept: bool,
    /// Time that went to models and tools, where it is known.
    pub waited: Option<Duration>,
    /// The cause of an error, for the log.
    pub cause: Option<String>,
}
