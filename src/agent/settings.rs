//! What can be configured about the loop.

use std::time::Duration;

/// The server's own caps and habits; a request can lower the caps, never raise them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most rounds of server-side tools in one turn.
    pub max_tool_rounds: u32,
    /// Most server-side tool calls in one turn.
    pub max_tool_calls: Option<u64>,
    /// Longest turn.
    pub max_duration: Option<Duration>,
    /// Most tokens, in and out, of one turn.
    pub max_total_tokens: Option<u64>,
    /// The how many-eth identical call of a turn is held back; at least 2.
    pub repeat_threshold: u32,
    /// Whether server-side tools may run.
    pub permission: Permission,
}

/// Whether server-side tools may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// They run.
    #[default]
    Auto,
    /// Every call is answered to the model as not permitted.
    Deny,
}
