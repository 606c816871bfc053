//! Control of a turn from outside: ends it immediately or after its round, and says which calls have started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use protocol::ids::RunId;

/// Controls one turn from outside; clones control the same turn.
#[derive(Debug, Clone)]
pub struct TurnControl(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: RunId,
    aborted: CancellationToken,
    reason: OnceLock<AbortReason>,
    after_round: AtomicBool,
    calls_started: AtomicBool,
    side_effects: AtomicBool,
    suspended: AtomicBool,
}

/// Why a turn is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortReason {
    /// The owner asked for it.
    Requested,
    /// The last reader has left.
    NoReader,
    /// The process is stopping.
    Shutdown,
}

impl TurnControl {
    /// The control of a run's turn.
    pub fn new(run: RunId) -> Self {
        Self(Arc::new(Inner {
            run,
            aborted: CancellationToken::new(),
            reason: OnceLock::new(),
            after_round: AtomicBool::new(false),
            calls_started: AtomicBool::new(false),
            side_effects: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
        }))
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.0.run
    }

    /// Ends the model call and the running tools. The first reason counts.
    pub fn abort(&self, reason: AbortReason) {
        let _first_wins = self.0.reason.set(reason);
        self.0.aborted.cancel();
    }

    /// Lets the batch in progress end, or the model call if no batch runs, and ends the turn then.
    pub(crate) fn stop_after_round(&self) {
        self.0.after_round.store(true, Ordering::Relaxed);
    }

    /// Why the turn is aborted, if it is.
    pub(crate) fn abort_reason(&self) -> Option<AbortReason> {
        self.0.reason.get().copied()
    }

    /// Resolves once the turn is aborted.
    pub(crate) fn aborted(&self) -> WaitForCancellationFutureOwned {
        self.0.aborted.clone().cancelled_owned()
    }

    /// Whether a server-side call has started.
    pub(crate) fn calls_started(&self) -> bool {
        self.0.calls_started.load(Ordering::Relaxed)
    }

    /// Whether a call of a tool has started that is not idempotent, so that a client must not resend the request on its
    /// own.
    pub(crate) fn side_effects(&self) -> bool {
        self.0.side_effects.load(Ordering::Relaxed)
    }

    /// Whether the turn was suspended here and its run resumes by itself.
    pub(crate) fn is_suspended(&self) -> bool {
        self.0.suspended.load(Ordering::Acquire)
    }

    /// Notes that the turn is suspended here and that its run resumes by itself.
    pub(super) fn note_suspended(&self) {
        self.0.suspended.store(true, Ordering::Release);
    }

    /// Notes that server-side calls start.
    pub(super) fn note_calls(&self, side_effects: bool) {
        self.0.calls_started.store(true, Ordering::Relaxed);
        self.0
            .side_effects
            .fetch_or(side_effects, Ordering::Relaxed);
    }

    /// Whether the turn ends after its round.
    pub(super) fn stops_after_round(&self) -> bool {
        self.0.after_round.load(Ordering::Relaxed)
    }
}
