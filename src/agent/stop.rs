//! Why a turn ended.

use serde::Serialize;

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model gave its answer.
    Completed,
    /// The client has calls to run.
    ClientTools,
    /// The round cap.
    MaxToolRounds,
    /// The cap on tool calls.
    MaxToolCalls,
    /// The time budget.
    MaxSeconds,
    /// The token budget.
    MaxTotalTokens,
    /// The model only repeated its calls.
    RepeatedCalls,
    /// Every result of a batch asked for the end of the turn.
    TerminatedByTool,
    /// The upstream's filter withheld the answer.
    ContentFilter,
    /// The model's token limit cut the answer.
    Length,
}

/// How a turn ended, as metrics count it: also without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// With an answer.
    Stopped(StopReason),
    /// With an error that is no limit.
    Failed,
    /// The client closed its connection first, or the process was stopped.
    Cancelled,
}

impl TurnEnd {
    /// Every end.
    pub fn all() -> impl Iterator<Item = Self> {
        let stopped = StopReason::ALL.into_iter().map(Self::Stopped);
        stopped.chain([Self::Failed, Self::Cancelled])
    }

    /// The label value.
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
    pub const ALL: [Self; 10] = [
        Self::Completed,
        Self::ClientTools,
        Self::MaxToolRounds,
        Self::MaxToolCalls,
        Self::MaxSeconds,
        Self::MaxTotalTokens,
        Self::RepeatedCalls,
        Self::TerminatedByTool,
        Self::ContentFilter,
        Self::Length,
    ];

    /// The word for the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::ClientTools => "client_tools",
            Self::MaxToolRounds => "max_tool_rounds",
            Self::MaxToolCalls => "max_tool_calls",
            Self::MaxSeconds => "max_seconds",
            Self::MaxTotalTokens => "max_total_tokens",
            Self::RepeatedCalls => "repeated_calls",
            Self::TerminatedByTool => "terminated_by_tool",
            Self::ContentFilter => "content_filter",
            Self::Length => "length",
        }
    }

    /// Whether a cap or budget ended the turn.
    pub fn is_limit(self) -> bool {
        match self {
            Self::MaxToolRounds | Self::MaxToolCalls | Self::MaxSeconds | Self::MaxTotalTokens => {
                true
            }
            Self::Completed
            | Self::ClientTools
            | Self::RepeatedCalls
            | Self::TerminatedByTool
            | Self::ContentFilter
            | Self::Length => false,
        }
    }
}
