//! The interpreters by workspace: start, reuse, eviction, shutdown.
//!
//! A workspace has at most one interpreter, and its calls run one after another. The interpreter of a workspace needs a
//! permit, which a [`FairSemaphore`] shares among the owners of workspaces, and each interpreter, also a spare one, a place
//! for its process. When an interpreter ends, its working files
//! are saved ([`saved_files`]); the workspace's next interpreter gets them back.

mod eviction;
mod fonts;
mod saved_files;
mod shutdown;
mod spares;
mod start;
#[cfg(test)]
mod tests;
mod workspace;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::saved_files::SavedFiles;
use self::spares::Spares;
pub(super) use self::workspace::WorkerGuard;
use self::workspace::Workspace;
use super::plan::LaunchPlan;
use super::worker::{Worker, WorkerStatus};
use super::{InterpreterError, SandboxError, Stats};
use protocol::ids::WorkspaceId;
use quota::{FairPermit, FairSemaphore};

/// Most calls of one workspace that wait for each other. A further one fails as overloaded.
const MAX_QUEUED: usize = 4;

/// The right of a workspace to an interpreter, and the place of the interpreter.
type WorkerPermit = (FairPermit, OwnedSemaphorePermit);

/// An interpreter and its place.
#[derive(Debug)]
struct PlacedWorker {
    worker: Worker,
    place: OwnedSemaphorePermit,
}

/// An interpreter of a workspace and its permit.
#[derive(Debug)]
pub(super) struct PermittedWorker {
    pub(super) worker: Worker,
    permit: WorkerPermit,
}

/// All interpreters.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) plan: Arc<LaunchPlan>,
    permits: FairSemaphore,
    /// Places for processes, one for each permit. Without a place no interpreter is started.
    places: Arc<Semaphore>,
    spares: Spares<PlacedWorker>,
    /// When a spare was taken for a call that still runs.
    spare_taken: Mutex<Option<Instant>>,
    workspaces: Mutex<HashMap<WorkspaceId, Arc<Workspace>>>,
    saved: SavedFiles,
    busy: AtomicUsize,
    counters: Counters,
    tasks: TaskTracker,
    closing: CancellationToken,
}

/// The notice for the model if earlier calls ran on another server, or what they left was deleted.
const NEW_HERE: &str = "the interpreter is new: variables and imports of earlier calls are lost; files that earlier calls \
    handed over and files that the user sent are in the working directory, other files are lost";
/// The same if the variables of earlier calls had been cleared.
const NEW_AFTER_RESET: &str = "the interpreter is new: files that earlier calls handed over and files that the user sent are \
    in the working directory, other files are lost";

/// Totals since the start.
#[derive(Debug, Default)]
struct Counters {
    started: AtomicU64,
    evicted: AtomicU64,
    killed: AtomicU64,
}

impl Pool {
    pub(super) fn new(
        plan: Arc<LaunchPlan>,
        tasks: TaskTracker,
    ) -> Result<Arc<Self>, SandboxError> {
        let settings = &plan.settings;
        let saved =
            SavedFiles::open(&settings.work_dir, settings.saved_size).map_err(|source| {
                SandboxError::Step {
                    step: "opening the directory for working files",
                    source,
                }
            })?;
        let pool = Arc::new(Self {
            permits: FairSemaphore::new(settings.max_workers),
            places: Arc::new(Semaphore::new(settings.max_workers)),
            spares: Spares::new(settings.spares),
            spare_taken: Mutex::default(),
            workspaces: Mutex::default(),
            saved,
            busy: AtomicUsize::new(0),
            counters: Counters::default(),
            tasks,
            closing: CancellationToken::new(),
            plan,
        });
        pool.tasks.spawn(pool.clone().maintain());
        pool.tasks.spawn(pool.clone().list_fonts());
        pool.refill();
        Ok(pool)
    }

    /// Waits for the workspace's earlier calls and returns its interpreter, with its files in place.
    ///
    /// Dropping the guard while code runs interrupts the code; the workspace stays locked until that is done.
    pub(super) async fn acquire_worker(
        self: &Arc<Self>,
        id: &WorkspaceId,
    ) -> Result<WorkerGuard, InterpreterError> {
        let workspace = self.workspace(id)?;
        let queued = workspace
            .queue(MAX_QUEUED)
            .ok_or(InterpreterError::Overloaded)?;
        let mut slot = tokio::select! {
            biased;
            () = self.closing.cancelled() => return Err(InterpreterError::Closed),
            () = workspace.forgotten.cancelled() => return Err(InterpreterError::Forgotten),
            slot = workspace.slot.clone().lock_owned() => slot,
        };
        drop(queued);
        slot.retire_if(|worker| {
            worker.started.elapsed() > self.plan.settings.max_age
                || worker.exceeded_limit().is_some()
        });
        if slot.has_retired() {
            let (pool, id) = (self.clone(), id.clone());
            let saving = self.run_detached(async move {
                pool.save(&id, &mut slot).await;
                slot
            });
            slot = saving.await?;
        }
        if slot.permitted.is_some() {
            return Ok(self.guard(id, workspace, slot));
        }
        let (permitted, was_spare) = tokio::select! {
            biased;
            () = self.closing.cancelled() => return Err(InterpreterError::Closed),
            () = workspace.forgotten.cancelled() => return Err(InterpreterError::Forgotten),
            acquired = self.acquire(id.owner()) => acquired?,
        };
        let (pool, id) = (self.clone(), id.clone());
        let preparing = self.run_detached(async move {
            permitted.worker.give_fonts().await;
            slot.permitted = Some(permitted);
            slot.was_spare = was_spare;
            slot.restart = pool.restore(&id, &mut slot).await;
            slot.is_new = slot.restart.is_none();
            pool.guard(&id, workspace, slot)
        });
        preparing.await
    }

    fn guard(
        self: &Arc<Self>,
        id: &WorkspaceId,
        workspace: Arc<Workspace>,
        slot: workspace::OwnedSlot,
    ) -> WorkerGuard {
        self.busy.fetch_add(1, Ordering::Relaxed);
        WorkerGuard::new(self.clone(), id.clone(), workspace, slot)
    }

    /// Leaves a notice for the next call of a workspace that has neither an interpreter nor saved files here.
    pub(super) fn expect_earlier_calls(&self, id: &WorkspaceId, had_variables: bool) {
        if self.saved.knows(id) {
            return;
        }
        // A closed pool rejects the call that follows.
        let Ok(workspace) = self.workspace(id) else {
            return;
        };
        // A locked one is in use.
        if let Ok(mut slot) = workspace.slot.try_lock()
            && slot.permitted.is_none()
            && slot.retired.is_none()
            && slot.pending_notices.is_empty()
        {
            let notice = match had_variables {
                true => NEW_HERE,
                false => NEW_AFTER_RESET,
            };
            slot.pending_notices.push(notice.to_owned());
        }
    }

    /// Runs a future to completion even if the caller is dropped: stopping halfway would lose files or leak an
    /// interpreter.
    async fn run_detached<T: Send + 'static>(
        &self,
        doing: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, InterpreterError> {
        let done = self.tasks.spawn(doing).await;
        done.map_err(|_| InterpreterError::Closed)
    }

    /// The entry of a workspace, created if missing.
    fn workspace(&self, id: &WorkspaceId) -> Result<Arc<Workspace>, InterpreterError> {
        let mut workspaces = self.workspaces.lock();
        if self.closing.is_cancelled() {
            return Err(InterpreterError::Closed);
        }
        Ok(workspaces.entry(id.clone()).or_default().clone())
    }

    /// Why a call is rejected.
    fn refusal(&self) -> InterpreterError {
        match self.closing.is_cancelled() {
            true => InterpreterError::Closed,
            false => InterpreterError::Overloaded,
        }
    }

    /// Ends a call: its interpreter stays for the next call or is evicted.
    fn released(
        self: &Arc<Self>,
        id: &WorkspaceId,
        workspace: &Arc<Workspace>,
        mut slot: workspace::OwnedSlot,
        status: WorkerStatus,
    ) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
        let was_spare = std::mem::take(&mut slot.was_spare);
        if was_spare {
            *self.spare_taken.lock() = None;
        }
        // Otherwise a workspace with a steady queue of calls would never give up its interpreter.
        let yields = workspace.has_queued() && self.permits.should_yield(id.owner());
        if status == WorkerStatus::Ended || yields {
            let count = match status {
                WorkerStatus::Ended => &self.counters.killed,
                WorkerStatus::Ready => &self.counters.evicted,
            };
            count.fetch_add(1, Ordering::Relaxed);
            slot.retire_if(|_| true);
            let (pool, id) = (self.clone(), id.clone());
            self.tasks.spawn(async move {
                pool.save(&id, &mut slot).await;
                drop(slot);
                pool.refill();
            });
            return;
        }
        if let Some(PermittedWorker { worker, .. }) = &slot.permitted {
            worker.pause();
        }
        workspace.set_idle_since(Some(Instant::now()));
        drop(slot);
        if self.permits.waiting() > 0 {
            self.evict_idle();
        } else if was_spare {
            self.refill();
        }
    }

    /// Handles a call that was dropped: interrupts its code, and ends the interpreter if that fails.
    fn abandoned(
        self: &Arc<Self>,
        id: &WorkspaceId,
        workspace: &Arc<Workspace>,
        mut slot: workspace::OwnedSlot,
    ) {
        let (pool, id, workspace) = (self.clone(), id.clone(), workspace.clone());
        self.tasks.spawn(async move {
            let status = match &mut slot.permitted {
                // At shutdown the interpreter ends anyway, and its files are saved soon.
                Some(permitted) => tokio::select! {
                    biased;
                    () = pool.closing.cancelled() => WorkerStatus::Ended,
                    status = permitted.worker.recover() => status,
                },
                None => WorkerStatus::Ready,
            };
            pool.released(&id, &workspace, slot, status);
        });
    }

    /// Deletes a workspace: ends its interpreter and deletes its files. Calls that wait for it are rejected. Calls that
    /// come later wait until the deletion is complete, and find the workspace empty.
    pub(super) fn forget(self: &Arc<Self>, id: &WorkspaceId) {
        let emptied = Arc::new(Workspace::default());
        let Ok(gate) = emptied.slot.clone().try_lock_owned() else {
            return;
        };
        let workspace = self.workspaces.lock().insert(id.clone(), emptied);
        if let Some(workspace) = &workspace {
            workspace.forgotten.cancel();
        }
        let (pool, id) = (self.clone(), id.clone());
        self.tasks.spawn(async move {
            if let Some(workspace) = workspace {
                let mut slot = workspace.slot.clone().lock_owned().await;
                if let Some(PermittedWorker { worker, permit }) = slot.permitted.take() {
                    worker.end().await;
                    drop(permit);
                }
            }
            let saved = pool.saved.clone();
            let deleting = tokio::task::spawn_blocking(move || saved.delete(&id));
            if let Ok(Err(error)) = deleting.await {
                tracing::error!(%error, "working files could not be deleted");
            }
            drop(gate);
            pool.tidy();
            pool.refill();
        });
    }

    /// Lets matplotlib, if installed, build the font list once for all interpreters; each would need half a second for
    /// it.
    async fn list_fonts(self: Arc<Self>) {
        if !self.plan.interpreter.has_package("matplotlib") {
            return;
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return;
        };
        if let Err(error) = fonts::list(&self, place).await {
            tracing::warn!(%error, "matplotlib could not build the font list");
        }
        self.refill();
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            workers: self.plan.settings.max_workers - self.places.available_permits(),
            busy: self.busy.load(Ordering::Relaxed),
            spares: self.spares.ready(),
            waiting: self.permits.waiting(),
            started: self.counters.started.load(Ordering::Relaxed),
            evicted: self.counters.evicted.load(Ordering::Relaxed),
            killed: self.counters.killed.load(Ordering::Relaxed),
        }
    }
}
