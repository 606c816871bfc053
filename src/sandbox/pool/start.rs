//! Starting interpreters: for calls, and as spares.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use super::{PermittedWorker, PlacedWorker, Pool, WorkerPermit};
use crate::worker::Worker;
use crate::{InterpreterError, SandboxError};
use protocol::ids::Owner;

/// Longest wait for an interpreter.
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// Longest time that starting the next spare is delayed while the call that took the last spare runs: starting it would
/// compete with the call for processor time.
/// Tried by `pool::the_next_spare_is_started_after_the_first_call_or_when_that_takes_long`.
pub(super) const REFILL_PAUSE: Duration = Duration::from_secs(2);

impl Pool {
    /// An interpreter for an owner's workspace: a spare, a new one, or one that another workspace has to give up. The
    /// flag says whether it is a spare.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        owner: &Owner,
    ) -> Result<(PermittedWorker, bool), InterpreterError> {
        let mut granted = pin!(timeout(WAIT_LIMIT, self.granted(owner)));
        let granted = match granted.as_mut().now_or_never() {
            Some(granted) => granted,
            None => {
                if self.permits.waiting() > 0 {
                    self.evict_idle();
                }
                granted.await
            }
        };
        let granted = granted.ok().flatten();
        let (permit, spare) = granted.ok_or_else(|| self.refusal())?;
        let Some(worker) = spare else {
            return Ok((self.start_for_call(permit).await?, false));
        };
        *self.spare_taken.lock() = Some(Instant::now());
        Ok((PermittedWorker { worker, permit }, true))
    }

    /// Waits for a permit, and then for a spare or a place; `None` if the call is rejected.
    async fn granted(&self, owner: &Owner) -> Option<(WorkerPermit, Option<Worker>)> {
        let max_waiting = self.plan.settings.max_waiting;
        let permit = self.permits.acquire_in_queue(owner, max_waiting).await?;
        // Spares may hold all places that no running call holds; a spare that is being started is ready soon.
        let (place, spare) = tokio::select! {
            biased;
            spare = self.spares.take() => (spare.place, Some(spare.worker)),
            place = self.places.clone().acquire_owned() => (place.ok()?, None),
        };
        Some(((permit, place), spare))
    }

    /// Starts an interpreter for a call. If the call is dropped meanwhile, the interpreter is ended.
    pub(super) async fn start_for_call(
        self: &Arc<Self>,
        permit: WorkerPermit,
    ) -> Result<PermittedWorker, InterpreterError> {
        let (give, started) = oneshot::channel();
        let pool = self.clone();
        self.tasks.spawn(async move {
            let (share, place) = permit;
            let started = pool.start(place).await.map(|started| PermittedWorker {
                worker: started.worker,
                permit: (share, started.place),
            });
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
        place: OwnedSemaphorePermit,
    ) -> Result<PlacedWorker, SandboxError> {
        let reservation = self.plan.reserve()?;
        let worker = Worker::start(&self.plan, reservation).await?;
        self.counters.started.fetch_add(1, Ordering::Relaxed);
        Ok(PlacedWorker { worker, place })
    }

    /// Starts spares up to the configured number, unless calls are waiting for the permits, or the call that took the
    /// last spare has just begun and would be slowed down.
    pub(super) fn refill(self: &Arc<Self>) {
        let pauses = |taken: Instant| taken.elapsed() < REFILL_PAUSE;
        if self.closing.is_cancelled() || self.spare_taken.lock().is_some_and(pauses) {
            return;
        }
        while let Some(spare_place) = self.spares.place()
            && let Ok(place) = self.places.clone().try_acquire_owned()
        {
            let pool = self.clone();
            self.tasks.spawn(async move {
                match pool.start(place).await {
                    Ok(spare) => {
                        if let Some(unwanted) = pool.spares.add(spare, spare_place) {
                            unwanted.worker.end().await;
                        }
                    }
                    Err(error) => tracing::warn!(
                        error = %error,
                        cause = ?std::error::Error::source(&error),
                        "a spare interpreter could not be started"
                    ),
                }
            });
        }
    }
}
