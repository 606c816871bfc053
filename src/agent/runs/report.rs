//! How a run reports to its encoder.

use bytes::BytesMut;

use crate::RunError;
use crate::event::AgentEvent;
use store::RunAnswer;

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
