//! Starting interpreters: for calls, and as spares.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::scheduler::Permit;
use super::{PermittedWorker, Pool};
use crate::sandbox::worker::Worker;
use crate::sandbox::{InterpreterError, SandboxError};

/// Longest time that starting the next spare is delayed while the call that took the last spare runs: starting it would
/// compete with the call for processor time.
pub(super) const REFILL_PAUSE: Duration = Duration::from_secs(2);

impl Pool {
    /// Starts an interpreter for a call. If the call is dropped meanwhile, the interpreter is ended.
    pub(super) async fn start_for_call(
        self: &Arc<Self>,
        permit: Permit<Worker>,
    ) -> Result<PermittedWorker, InterpreterError> {
        let (give, started) = oneshot::channel();
        let pool = self.clone();
        self.tasks.spawn(async move {
            let started = pool.start(permit).await;
            if let Err(Ok(unwanted)) = give.send(started) {
                unwanted.worker.end().await;
                pool.refill();
            }
        });
        let started = started.await.map_err(|_| InterpreterError::Closed)?;
        started.map_err(InterpreterError::Start)
    }

    /// Starts an interpreter.
    pub(super) async fn start(
        &self,
        permit: Permit<Worker>,
    ) -> Result<PermittedWorker, SandboxError> {
        let reservation = self.plan.reserve()?;
        let worker = Worker::start(&self.plan, reservation).await?;
        self.counters.started.fetch_add(1, Ordering::Relaxed);
        Ok(PermittedWorker { worker, permit })
    }

    /// Starts spares up to the configured number, unless calls are waiting for the permits, or the call that took the
    /// last spare has just begun and would be slowed down.
    pub(super) fn refill(self: &Arc<Self>) {
        let pauses = |taken: Instant| taken.elapsed() < REFILL_PAUSE;
        if self.closing.is_cancelled() || self.spare_taken.lock().is_some_and(pauses) {
            return;
        }
        while let Some((starting, permit)) =
            self.scheduler.permit_for_spare(self.plan.settings.spares)
        {
            let pool = self.clone();
            self.tasks.spawn(async move {
                match pool.start(permit).await {
                    Ok(spare) => {
                        if let Some(unwanted) = pool.scheduler.add_spare(spare) {
                            unwanted.worker.end().await;
                        }
                    }
                    Err(error) => tracing::warn!(
                        error = %error,
                        cause = ?std::error::Error::source(&error),
                        "a spare interpreter could not be started"
                    ),
                }
                // Dropped only now, so that no other spare is started in its place.
                drop(starting);
            });
        }
    }
}
