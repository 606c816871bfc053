//! What a request asks of the loop, whatever the dialect it came in.

use std::time::Duration;

use super::settings::Permission;
use crate::ids::SessionId;
use crate::session::SessionMode;

/// What a request asks of the loop; the server's caps are already applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The conversation to continue, if the request names one.
    pub session_id: Option<SessionId>,
    /// Most rounds of server-side tools; 0 offers none.
    pub max_tool_rounds: u32,
    /// Other budgets.
    pub limits: TurnLimits,
    /// What happens when a cap or budget is reached.
    pub on_limit: OnLimit,
    /// What the request lets server-side tools do. The policies take the stricter of this and the server's own.
    pub permission: Permission,
    /// How the messages relate to the stored history.
    pub session_mode: SessionMode,
    /// Whether calls of one batch overlap.
    pub tool_execution: ToolExecution,
    /// Which rounds' text the client gets.
    pub text: TextMode,
    /// `store: false`: nothing outlives the turn.
    pub ephemeral: bool,
}

/// Budgets of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TurnLimits {
    /// Most server-side tool calls.
    pub max_tool_calls: Option<u64>,
    /// Longest time.
    pub max_duration: Option<Duration>,
    /// Most tokens, in and out.
    pub max_total_tokens: Option<u64>,
}

/// What happens when a cap or budget is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// One more model call without tools.
    #[default]
    FinalAnswer,
    /// The turn ends with the text so far.
    Stop,
    /// The request fails.
    Error,
}

/// Whether calls of one batch overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolExecution {
    /// They run at the same time.
    #[default]
    Parallel,
    /// One after another.
    Sequential,
}

/// Which rounds' text the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextMode {
    /// All rounds' text, joined.
    #[default]
    All,
    /// Only the last round's.
    Final,
}
