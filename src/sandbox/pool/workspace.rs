//! One workspace: its interpreter, the running call, and the calls that wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use super::saved_files::FileLoss;
use super::{PermittedWorker, Pool};
use crate::worker::{Worker, WorkerStatus};
use crate::{Cell, CellOutcome, InterpreterError, OutputListener, WithNotices};
use protocol::ids::WorkspaceId;

/// The entry of a workspace.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    /// Locked by the running call; the lock queues the others in order.
    pub(super) slot: Arc<AsyncMutex<Slot>>,
    queued: AtomicUsize,
    /// Since when the interpreter is idle; `None` while a call runs or if there is no interpreter.
    idle: Mutex<Option<Instant>>,
    /// Cancelled when the workspace is deleted: a call without an interpreter must not start one, because nothing would
    /// end it.
    pub(super) forgotten: CancellationToken,
}

/// The state of a workspace.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(super) permitted: Option<PermittedWorker>,
    /// An interpreter that is out of use and has to be saved and ended.
    pub(super) retired: Option<PermittedWorker>,
    /// Ids of the input files that were placed in the working directory.
    pub(super) placed: BTreeSet<String>,
    /// Set if the interpreter is new but the workspace is not: its variables are lost.
    pub(super) restart: Option<Restart>,
    /// Set if the interpreter is new and had no files of the workspace to restore.
    pub(super) is_new: bool,
    /// Notices of calls that failed; the next successful call reports them.
    pub(super) pending_notices: Vec<String>,
    /// The interpreter was a spare, and this is its first call.
    pub(super) was_spare: bool,
}

/// What became of a workspace's files when its interpreter was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    FilesRestored,
    /// They are missing or out of date.
    FilesChanged(FileLoss),
    RestoreFailed,
}

pub(super) type OwnedSlot = OwnedMutexGuard<Slot>;

/// A call that waits for its workspace; leaves the queue when dropped.
pub(super) struct Queued<'a>(&'a AtomicUsize);

/// A workspace's interpreter, locked for one call.
#[derive(Debug)]
pub(crate) struct WorkerGuard {
    pool: Arc<Pool>,
    id: WorkspaceId,
    workspace: Arc<Workspace>,
    /// `None` once it is returned to the pool.
    slot: Option<OwnedSlot>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Code runs.
    Running,
    /// No code runs.
    Resting(WorkerStatus),
}

impl Workspace {
    /// Joins the queue, unless it is full.
    pub(super) fn queue(&self, most: usize) -> Option<Queued<'_>> {
        let queued = Queued(&self.queued);
        // The running call is counted too.
        (self.queued.fetch_add(1, Ordering::Relaxed) <= most).then_some(queued)
    }

    pub(super) fn idle_since(&self) -> Option<Instant> {
        *self.idle.lock()
    }

    pub(super) fn set_idle_since(&self, idle_since: Option<Instant>) {
        *self.idle.lock() = idle_since;
    }

    /// Whether calls wait for this workspace.
    pub(super) fn has_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
    }

    /// Whether the entry can be removed without loss.
    pub(super) fn is_empty(&self) -> bool {
        self.slot
            .try_lock()
            .is_ok_and(|slot| slot.permitted.is_none() && slot.retired.is_none())
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slot {
    /// Takes the interpreter out of use if it matches.
    pub(super) fn retire_if(&mut self, retires: impl FnOnce(&Worker) -> bool) {
        if self
            .permitted
            .as_ref()
            .is_some_and(|permitted| retires(&permitted.worker))
        {
            self.retired = self.permitted.take();
        }
    }

    pub(super) fn has_retired(&self) -> bool {
        self.retired.is_some()
    }
}

impl Restart {
    /// The notice for the model.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::FilesRestored => {
                "the interpreter was restarted since the last call: variables and imports are lost, files are kept"
            }
            Self::FilesChanged(FileLoss::Evicted) => {
                "the interpreter was restarted since the last call: variables and imports are lost, and the files of \
                 the working directory were deleted to free space; files that the user sent are available"
            }
            Self::FilesChanged(FileLoss::NotSaved) => {
                "the interpreter was restarted since the last call: variables and imports are lost, and the files of \
                 the working directory could not be saved: they are missing or in an earlier state"
            }
            Self::RestoreFailed => {
                "the interpreter was restarted since the last call: variables and imports are lost, and the files of \
                 the working directory could not be restored: some or all of them are missing"
            }
        }
    }
}

impl WorkerGuard {
    pub(super) fn new(
        pool: Arc<Pool>,
        id: WorkspaceId,
        workspace: Arc<Workspace>,
        slot: OwnedSlot,
    ) -> Self {
        Self {
            pool,
            id,
            workspace,
            slot: Some(slot),
            state: State::Resting(WorkerStatus::Ready),
        }
    }

    /// The interpreter and the ids of its placed input files; `None` only if there is no interpreter.
    pub(crate) fn parts(&mut self) -> Option<(&mut Worker, &mut BTreeSet<String>)> {
        let slot = &mut **self.slot.as_mut()?;
        let worker = &mut slot.permitted.as_mut()?.worker;
        Some((worker, &mut slot.placed))
    }

    /// Takes the report of a replaced interpreter; later calls return `None`.
    pub(crate) fn take_restart(&mut self) -> Option<Restart> {
        self.slot.as_mut()?.restart.take()
    }

    /// Whether no call has used the interpreter since it was started without files; later calls return `false`.
    pub(crate) fn take_is_new(&mut self) -> bool {
        let slot = self.slot.as_mut();
        slot.is_some_and(|slot| std::mem::take(&mut slot.is_new))
    }

    /// Takes the notices that failed calls left behind.
    pub(crate) fn take_pending_notices(&mut self) -> Vec<String> {
        let slot = self.slot.as_mut();
        slot.map(|slot| std::mem::take(&mut slot.pending_notices))
            .unwrap_or_default()
    }

    /// Adds notices to a result. If the call failed, the notices are kept for the next call.
    pub(crate) fn with_notices<T>(
        &mut self,
        result: Result<T, InterpreterError>,
        notices: Vec<String>,
    ) -> Result<WithNotices<T>, InterpreterError> {
        match (result, &mut self.slot) {
            (Ok(value), _) => Ok(WithNotices { value, notices }),
            (Err(error), slot) => {
                if let Some(slot) = slot {
                    slot.pending_notices = notices;
                }
                Err(error)
            }
        }
    }

    pub(crate) async fn run(
        &mut self,
        cell: &Cell<'_>,
        live: OutputListener<'_>,
    ) -> Option<CellOutcome> {
        self.state = State::Running;
        let (worker, _) = self.parts()?;
        let (outcome, status) = worker.run(cell, live).await;
        self.state = State::Resting(status);
        Some(outcome)
    }

    /// Deletes all variables.
    pub(crate) async fn reset(&mut self) -> Option<()> {
        self.state = State::Running;
        let (worker, _) = self.parts()?;
        let status = worker.reset().await;
        self.state = State::Resting(status);
        Some(())
    }
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        match self.state {
            State::Running => self.pool.abandoned(&self.id, &self.workspace, slot),
            State::Resting(status) => self.pool.released(&self.id, &self.workspace, slot, status),
        }
    }
}
