//! Suspended runs that this process cannot resume, and why. Another process may be able to.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Runs;
use protocol::ids::{Owner, RunId};

/// Pause between two attempts to resume one: what it lacks may have come back.
/// Tried by `suspended::a_blocked_run_is_tried_again_and_told_of_once`.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// A run that cannot be resumed.
#[derive(Debug)]
pub(super) struct BlockedRun {
    reason: String,
    since: Instant,
}

/// The runs that cannot be resumed.
pub(super) type BlockedRuns = HashMap<RunId, BlockedRun>;

impl Runs {
    /// Takes note that a run cannot be resumed, and why; says whether that is new.
    pub fn block(&self, run: &RunId, reason: String) -> bool {
        let blocked = BlockedRun {
            reason,
            since: Instant::now(),
        };
        let before = self.0.blocked.lock().insert(run.clone(), blocked);
        before.is_none()
    }

    /// The run has been resumed.
    pub fn unblock(&self, run: &RunId) {
        self.0.blocked.lock().remove(run);
    }

    /// Why a run cannot be resumed, if it cannot.
    pub fn blocked(&self, run: &RunId) -> Option<String> {
        let blocked = self.0.blocked.lock();
        blocked.get(run).map(|blocked| blocked.reason.clone())
    }

    /// Whether a run may be resumed now: it was not tried shortly before.
    pub fn may_resume(&self, run: &RunId) -> bool {
        let blocked = self.0.blocked.lock();
        let blocked = blocked.get(run);
        blocked.is_none_or(|blocked| blocked.since.elapsed() >= RETRY_PAUSE)
    }

    /// How many runs cannot be resumed.
    pub fn blocked_count(&self) -> usize {
        self.0.blocked.lock().len()
    }

    /// Forgets those that are not among the runs that wait to be resumed.
    pub fn retain_blocked(&self, decided: &[(Owner, RunId)]) {
        let mut blocked = self.0.blocked.lock();
        blocked.retain(|run, _| decided.iter().any(|(_, decided)| decided == run));
    }
}
