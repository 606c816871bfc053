//! Why a call of the model has no result of its tool, in the words that the model reads.

use super::ToolStatus;

/// Why a call has no result of its tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRefusal {
    /// The status of the call.
    pub status: ToolStatus,
    /// The text for the model.
    pub text: String,
}

/// How far a call was when it was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelledCall {
    /// Its tool was not called.
    NotStarted,
    /// Its tool was called, and only reads.
    Reading,
    /// Its tool was called, and may have had an effect.
    Running,
}

impl CallRefusal {
    fn new(status: ToolStatus, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    /// The refusal of a call that the rules or a hook deny.
    pub(crate) fn denied(tool: &str, reason: Option<&str>) -> Self {
        let text = match reason {
            Some(reason) => format!("This call of '{tool}' is not permitted: {reason}"),
            None => format!("This call of '{tool}' is not permitted. Answer without it."),
        };
        Self::new(ToolStatus::Denied, text)
    }

    /// The refusal of every call of a tool.
    pub(crate) fn never_permitted(tool: &str, reason: Option<&str>) -> Self {
        let text = match reason {
            Some(reason) => format!("The tool '{tool}' is not permitted here: {reason}"),
            None => format!("The tool '{tool}' is not permitted here. Answer without it."),
        };
        Self::new(ToolStatus::Denied, text)
    }

    /// The refusal of a call that waits for a decision which is not possible.
    pub fn undecided() -> Self {
        let text = "This call was not run: it needs an approval, and nobody can give it here.";
        Self::new(ToolStatus::Denied, text)
    }

    /// The refusal of a call that a person has denied.
    pub(crate) fn denied_by_person(message: Option<&str>) -> Self {
        let text = match message {
            Some(message) => {
                format!("This call was not run: a person has denied it and says: {message}")
            }
            None => "This call was not run: a person has denied it.".to_owned(),
        };
        Self::new(ToolStatus::Denied, text)
    }

    /// The refusal of a call that a person has denied several times.
    pub(crate) fn denied_before() -> Self {
        let text = "This call was not run: a person has denied this very call twice. Do not make it again.";
        Self::new(ToolStatus::Denied, text)
    }

    /// The refusal of a call that was not decided in time.
    pub(crate) fn expired() -> Self {
        let text = "This call was not run: it needs an approval, and nobody decided in time.";
        Self::new(ToolStatus::Denied, text)
    }

    /// The refusal of a call that waited when the conversation went on without it.
    pub fn left() -> Self {
        Self::new(
            ToolStatus::Denied,
            "This call was not run: the user went on.",
        )
    }

    /// The refusal of a call that waits in a turn which is cancelled.
    pub fn cancelled() -> Self {
        let text = "This call was not run: the turn was cancelled.";
        Self::new(ToolStatus::Cancelled, text)
    }

    /// The refusal of a call that had no result when its turn was cancelled.
    pub fn cancelled_at(call: CancelledCall) -> Self {
        let text = match call {
            CancelledCall::NotStarted => {
                "This call was not run: the turn was cancelled before it started."
            }
            CancelledCall::Reading => "The call was cancelled before it had a result.",
            CancelledCall::Running => {
                "The call was cancelled while it was running. It may have taken effect or not; find out before you \
                 repeat it."
            }
        };
        Self::new(ToolStatus::Cancelled, text)
    }

    /// The refusal of a call that had no result at the deadline of its turn.
    pub(crate) fn out_of_time(call: CancelledCall) -> Self {
        let text = match call {
            CancelledCall::NotStarted => {
                "This call was not run: the time limit of this turn was reached before it started."
            }
            CancelledCall::Reading => {
                "The call was cancelled before it had a result: the time limit of this turn was reached."
            }
            CancelledCall::Running => {
                "The call was cancelled while it was running: the time limit of this turn was reached. It may have \
                 taken effect or not; find out before you repeat it."
            }
        };
        Self::new(ToolStatus::Cancelled, text)
    }

    /// The refusal of a call after a hook has ended the turn.
    pub(crate) fn turn_ended() -> Self {
        let text = "This call was not run: a hook has ended the turn.";
        Self::new(ToolStatus::Cancelled, text)
    }

    /// The refusal of a call that was made before with the same arguments.
    pub fn repeated(tool: &str) -> Self {
        let text = format!(
            "This call was not run: '{tool}' was called with exactly these arguments before, nothing has changed since, and \
             calling it again will not bring anything new. Consider what the call was meant to find out and which assumption \
             behind it may be wrong, given the results that you have. Then either take a different approach (another \
             tool, or other arguments), or say plainly in your answer what could not be found out."
        );
        Self::new(ToolStatus::Suppressed, text)
    }

    /// The refusal of a call beyond the limit on calls of a turn.
    pub fn over_limit() -> Self {
        let text =
            "This call was not run: the limit on tool calls is reached. Answer with what you have.";
        Self::new(ToolStatus::Suppressed, text)
    }

    /// The refusal of a call of a model whose turn has reached a limit.
    pub fn at_limit() -> Self {
        let text = "This call was not run: the turn had reached its limit.";
        Self::new(ToolStatus::Cancelled, text)
    }

    /// The refusal of a call whose arguments are cut off.
    pub fn cut_off() -> Self {
        let text = "This call was cut off by the token limit before its arguments were complete, and was not run. Make it \
                    again, with shorter arguments or alone.";
        Self::new(ToolStatus::Error, text)
    }

    /// The end of a call that had started when its process ended.
    pub fn interrupted(is_read_only: bool) -> Self {
        let text = match is_read_only {
            true => "The call was interrupted: the server stopped before it had a result.",
            false => {
                "The call was interrupted: the server stopped while it was running or before it started. It may have \
                 taken effect or not; find out before you repeat it."
            }
        };
        Self::new(ToolStatus::Interrupted, text)
    }

    /// The refusal of a call that could not be stored before it runs.
    pub fn unwritten() -> Self {
        let text = "This call was not run and nothing was done: the history of the conversation could not be written.";
        Self::new(ToolStatus::Error, text)
    }

    /// The refusal of a call whose tool was removed or changed while the call waited.
    pub fn changed(tool: &str) -> Self {
        let text = format!(
            "This call was not run: the tool '{tool}' has changed or is not available any more. Make the call again if it \
             is still offered."
        );
        Self::new(ToolStatus::Error, text)
    }

    /// The end of a call whose tool panicked.
    pub(crate) fn panicked() -> Self {
        Self::new(ToolStatus::Error, "the tool failed unexpectedly")
    }
}
