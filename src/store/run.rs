//! The records of runs and idempotency keys.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use blobs::segments::SegmentedText;
use protocol::ids::{Owner, RunId, SessionId};

/// How long an idempotency key is kept, if its owner does not have too many. Then a request under it is a new one.
/// Tried by `suite::keys::keys_expire`.
pub(super) const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// Its owner.
    pub owner: Owner,
    /// The session that it writes. It may have been deleted.
    pub session_id: Option<SessionId>,
    /// When it was first recorded, in seconds since 1970.
    pub created_at: i64,
    /// What is known of it.
    pub state: RunRecordState,
    /// The store has a suspended turn that the run resumes by itself.
    pub is_suspended: bool,
}

/// What is known of a recorded run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunRecordState {
    /// It has not ended.
    Running,
    /// It has not ended, and another process that shares the store runs it.
    RunningElsewhere,
    /// The process ended before the run.
    Interrupted,
    /// No process runs it. Its turn waits for decisions, and it resumes by itself after them.
    Suspended,
    /// It has ended.
    Ended {
        /// The bytes of its answer.
        bytes: u64,
    },
}

/// The answer of a run that has ended: a completion, or an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunAnswer {
    /// The status.
    pub status: StatusCode,
    /// Headers besides the headers that every answer has.
    pub headers: HeaderMap,
    /// The body.
    pub body: SegmentedText,
    /// It is stored as long as the session of its run.
    pub kept: bool,
    /// Time that went to models and tools, where it is known. It is not stored.
    pub waited: Option<Duration>,
    /// The cause of an error, for the log. It is not stored.
    pub cause: Option<String>,
}

/// Who has an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyClaim {
    /// The key was free; now the run has it.
    New,
    /// A run of the same request has it. If there is no record of that run, it has not been recorded yet, or its answer
    /// is no longer stored. The key stays even then, so that the calls of the run are not repeated.
    Held {
        /// The run.
        run: RunId,
    },
    /// A run of another request has it.
    Reused,
}

/// How much of the answers of runs is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerLimits {
    /// Most bytes of one answer, headers included.
    pub(super) answer: usize,
    /// Most bytes of all answers and of the texts of all idempotency keys, with [`AnswerLimits::ROW`] for each.
    pub(super) total: u64,
}

impl Default for AnswerLimits {
    fn default() -> Self {
        Self::within(u64::MAX)
    }
}

impl AnswerLimits {
    /// Largest answer that is kept, in bytes.
    pub(super) const ANSWER: usize = 64 * 1024 * 1024;
    /// Memory that an answer or a key counts besides its bytes, so that small ones are bounded too.
    pub(super) const ROW: u64 = 1024;

    /// The limits if all answers together may have `total` bytes.
    pub(super) fn within(total: u64) -> Self {
        let of_one = usize::try_from(total).unwrap_or(usize::MAX);
        Self {
            answer: Self::ANSWER.min(of_one),
            total,
        }
    }
}
