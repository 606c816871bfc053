//! The reasons for which a turn ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model answered without further calls.
    Completed,
    /// The client is to run calls.
    ClientTools,
    /// Calls wait for a decision. The turn goes on once they are decided.
    ApprovalRequired,
    /// The limit on rounds is reached.
    MaxToolRounds,
    /// The limit on tool calls is reached.
    MaxToolCalls,
    /// The limit on time is reached.
    MaxSeconds,
    /// The limit on tokens is reached.
    MaxTotalTokens,
    /// Two batches in a row had only calls that the repeat guard held back.
    RepeatedCalls,
    /// Every call of a batch ran, and every result asked for the end of the turn. Or a hook ended the turn.
    TerminatedByTool,
    /// The upstream's content filter stopped the answer.
    ContentFilter,
    /// The model's token limit cut the answer off.
    Length,
    /// The turn was cancelled.
    Cancelled,
}

/// How a turn ended, as metrics count it. This includes turns without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// With an answer.
    Stopped(StopReason),
    /// With an error other than a limit.
    Failed,
    /// The client closed its connection, or the process was stopped.
    Cancelled,
}

impl TurnEnd {
    /// Every end.
    pub fn all() -> impl Iterator<Item = Self> {
        let stopped = StopReason::ALL.into_iter().map(Self::Stopped);
        stopped.chain([Self::Failed, Self::Cancelled])
    }

    /// The value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped(reason) => reason.as_str(),
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl StopReason {
    /// Every reason.
    pub(crate) const ALL: [Self; 12] = [
        Self::Completed,
        Self::ClientTools,
        Self::ApprovalRequired,
        Self::MaxToolRounds,
        Self::MaxToolCalls,
        Self::MaxSeconds,
        Self::MaxTotalTokens,
        Self::RepeatedCalls,
        Self::TerminatedByTool,
        Self::ContentFilter,
        Self::Length,
        Self::Cancelled,
    ];

    /// The name in responses, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::ClientTools => "client_tools",
            Self::ApprovalRequired => "approval_required",
            Self::MaxToolRounds => "max_tool_rounds",
            Self::MaxToolCalls => "max_tool_calls",
            Self::MaxSeconds => "max_seconds",
            Self::MaxTotalTokens => "max_total_tokens",
            Self::RepeatedCalls => "repeated_calls",
            Self::TerminatedByTool => "terminated_by_tool",
            Self::ContentFilter => "content_filter",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }

    /// The limit that ended the turn, in words for people; `None` if none did.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Self::MaxToolRounds => Some("the limit on rounds of tool calls (max_tool_rounds)"),
            Self::MaxToolCalls => Some("the limit on tool calls (max_tool_calls)"),
            Self::MaxSeconds => Some("the time limit (max_seconds)"),
            Self::MaxTotalTokens => Some("the limit on tokens (max_total_tokens)"),
            Self::RepeatedCalls => Some("the limit on repeated tool calls (repeated_calls)"),
            Self::Completed
            | Self::ClientTools
            | Self::ApprovalRequired
            | Self::TerminatedByTool
            | Self::ContentFilter
            | Self::Length
            | Self::Cancelled => None,
        }
    }
}
