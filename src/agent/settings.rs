//! What can be configured about the loop.

use std::time::Duration;

pub use crate::tools::gate::Permission;

/// The server's own caps and rules. A request can lower the caps, never raise them.
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
    /// Identical calls of a turn are suppressed from this count on; at least 2.
    pub repeat_threshold: u32,
    /// What server-side tools may do.
    pub permission: Permission,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_tool_rounds: 256,
            max_tool_calls: None,
            max_duration: None,
            max_total_tokens: None,
            repeat_threshold: 3,
            permission: Permission::Auto,
        }
    }
}
