//! Whether a source of tools can run calls.

use schemars::JsonSchema;
use serde::Serialize;

/// Whether a source can run calls at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Calls can run.
    Ready,
    /// Calls cannot run; no request is offered the source's tools.
    Down,
}

impl Health {
    /// The word for the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Down => "down",
        }
    }
}
