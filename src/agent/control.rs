//! Control of a turn from outside: ends it immediately or after its round, and says which calls have started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
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
    /// The turn is about to end as suspended and heeds no cancellation any more.
    closed: Mutex<bool>,
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
            closed: Mutex::new(false),
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

    /// Asks the turn to end as cancelled: immediately, or after its round. Returns whether the turn heeds that. A turn that
    /// is about to be suspended does not, nor does one that ends for another reason.
    pub(crate) fn request_cancel(&self, after_round: bool) -> bool {
        let closed = self.0.closed.lock();
        let ends_otherwise = self
            .abort_reason()
            .is_some_and(|reason| reason != AbortReason::Requested);
        if *closed || ends_otherwise {
            return false;
        }
        match after_round {
            true => self.0.after_round.store(true, Ordering::Relaxed),
            false => self.abort(AbortReason::Requested),
        }
        true
    }

    /// Lets the turn end as suspended. Returns `false` if it was cancelled before.
    pub(super) fn close(&self) -> bool {
        let mut closed = self.0.closed.lock();
        *closed = !self.is_cancelled();
        *closed
    }

    /// Whether the turn is to end as cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.abort_reason() == Some(AbortReason::Requested) || self.stops_after_round()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> TurnControl {
        TurnControl::new(RunId::fresh())
    }

    #[test]
    fn a_cancellation_is_heeded_or_refused_but_never_lost() {
        for after_round in [false, true] {
            let cancelled_first = control();
            assert!(cancelled_first.request_cancel(after_round));
            assert!(!cancelled_first.close(), "it ends as cancelled");
            assert!(cancelled_first.request_cancel(after_round));
            let suspended_first = control();
            assert!(suspended_first.close());
            assert!(!suspended_first.request_cancel(after_round));
            assert!(!suspended_first.is_cancelled());
            let without_reader = control();
            without_reader.abort(AbortReason::NoReader);
            assert!(!without_reader.request_cancel(after_round));
        }
    }
}
