//! The limits of a turn besides its rounds, and what happens at a limit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one turn besides the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TurnLimits {
    /// Most server-side tool calls.
    pub max_tool_calls: Option<u64>,
    /// Longest duration of one run.
    pub max_duration: Option<Duration>,
    /// Most tokens of all model calls, in and out.
    pub max_total_tokens: Option<u64>,
    /// Most tokens that the model writes in all model calls.
    pub max_output_tokens: Option<u64>,
}

/// What happens when a limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnLimit {
    /// One more model call, in which the model must not call tools.
    #[default]
    FinalAnswer,
    /// The turn ends with the text so far.
    Stop,
    /// The request fails.
    Error,
}
