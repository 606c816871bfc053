//! The records of calls that wait for a person's decision.

use protocol::ids::{ApprovalId, Owner, RunId, SessionId};

/// A call that waits for a person's decision, as it is inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalQuestion {
    /// Its id.
    pub id: ApprovalId,
    /// The run whose call it is.
    pub run: RunId,
    /// The round of the call, from 0.
    pub round: u32,
    /// The id of the call.
    pub tool_call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments as they are shown.
    pub arguments: String,
    /// The digest of these arguments, in hexadecimal digits.
    pub digest: String,
    /// What a decision for [`Remember::Same`] compares.
    pub scope: String,
    /// Why a person is asked.
    pub reason: Option<String>,
    /// The rule that asks, as JSON text.
    pub rule: Option<String>,
    /// Until when it can be decided, in seconds since 1970.
    pub expires_at: i64,
}

/// A call that waits for a person's decision, or waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The owner of the session.
    pub owner: Owner,
    /// The session of the call.
    pub session: SessionId,
    /// What is asked.
    pub question: ApprovalQuestion,
    /// When it was stored, in seconds since 1970.
    pub created_at: i64,
    /// How far it is.
    pub state: ApprovalState,
    /// What the person said.
    pub message: Option<String>,
    /// The arguments that the call is run with, as JSON text, if the person has changed them.
    pub edited: Option<String>,
    /// For which later calls of the session the decision holds.
    pub remember: Option<Remember>,
    /// When it was decided, in seconds since 1970.
    pub decided_at: Option<i64>,
}

/// How far a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalState {
    /// It can be decided.
    Waiting,
    /// The call may run.
    Approved,
    /// The call must not run.
    Denied,
    /// The time to decide is over.
    Expired,
    /// The turn has ended without a decision.
    Left,
}

/// For which later calls of the session a decision holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remember {
    /// Calls with the same [`ApprovalQuestion::scope`].
    Same,
    /// All of the tool.
    Tool,
}

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    /// Whether the call may run.
    pub verdict: ApprovalVerdict,
    /// What the person says.
    pub message: Option<String>,
    /// For which later calls of the session it holds.
    pub remember: Option<Remember>,
}

/// Whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// It may.
    Approve {
        /// Other arguments for it, as JSON text.
        edited: Option<String>,
    },
    /// It must not.
    Deny,
}

/// The outcome of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// There is nothing with this id, or it belongs to another owner.
    NotFound,
    /// It was decided before, has expired, or its turn has ended.
    Already,
    /// It is decided now.
    Now(Box<Approval>),
}

impl ApprovalQuestion {
    /// The bytes that it counts for its session.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.tool_call_id, &self.tool, &self.arguments, &self.scope];
        let more = [&self.reason, &self.rule].into_iter().flatten();
        texts.into_iter().chain(more).map(String::len).sum()
    }

    /// Until when it can be decided, in microseconds.
    pub(super) fn expires_micros(&self) -> i64 {
        self.expires_at
            .saturating_mul(super::clock::MICROS_PER_SECOND)
    }
}

impl ApprovalDecision {
    /// The bytes that it counts for its session.
    pub(super) fn bytes(&self) -> usize {
        let texts = [self.message.as_deref(), self.verdict.edited()];
        texts.into_iter().flatten().map(str::len).sum()
    }
}

impl ApprovalVerdict {
    /// The arguments that a person has changed, as JSON text.
    pub fn edited(&self) -> Option<&str> {
        match self {
            Self::Approve { edited } => edited.as_deref(),
            Self::Deny => None,
        }
    }

    /// How far a question is that was decided so.
    pub fn state(&self) -> ApprovalState {
        match self {
            Self::Approve { .. } => ApprovalState::Approved,
            Self::Deny => ApprovalState::Denied,
        }
    }
}

impl ApprovalState {
    const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Approved,
        Self::Denied,
        Self::Expired,
        Self::Left,
    ];

    /// Its name in the store.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Left => "left",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl Remember {
    /// Its name in the store.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Tool => "tool",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Same, Self::Tool]
            .into_iter()
            .find(|remember| remember.as_str() == name)
    }
}
