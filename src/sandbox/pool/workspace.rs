//! One workspace: its interpreter, who uses it, who waits for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use super::super::worker::{After, Worker};
use super::super::{Cell, CellOutcome, Live, RunError, Told};
use super::saved::Note;
use super::{Counted, Pool};
use crate::ids::WorkspaceId;

/// The entry of a workspace.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    /// Locked by the call that runs; the others wait in their order.
    pub(super) slot: Arc<AsyncMutex<Slot>>,
    queued: AtomicUsize,
    /// Since when an interpreter waits for the next call; none while a call runs or where there is none.
    idle: Mutex<Option<Instant>>,
    /// Deleted: a call that has no interpreter yet gets none, as nobody would end it.
    pub(super) forgotten: CancellationToken,
}

/// What a workspace has.
#[derive(Debug, Default)]
pub(in crate::sandbox) struct Slot {
    pub(super) counted: Option<Counted>,
    /// An interpreter that is on its way out.
    pub(super) retired: Option<Counted>,
    /// Input files that were put into the working directory.
    pub(super) placed: BTreeSet<String>,
    /// The interpreter is new, but the workspace is not: its variables are gone.
    pub(super) fresh: Option<Fresh>,
    /// What a call that failed could not tell the model.
    pub(super) untold: Vec<String>,
    /// The interpreter was a spare, and this is its first call.
    pub(super) was_spare: bool,
}

/// What became of the files of a workspace that has a new interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Fresh {
    /// They are there.
    Restored,
    /// They are not as they were.
    Lost(Note),
    /// They could not be put back.
    NotRestored,
}

pub(super) type OwnedSlot = OwnedMutexGuard<Slot>;

/// A call that waits for its workspace.
pub(super) struct Queued<'a>(&'a AtomicUsize);

/// A workspace's turn: its interpreter, for one call.
#[derive(Debug)]
pub(in crate::sandbox) struct Held {
    pool: Arc<Pool>,
    id: WorkspaceId,
    workspace: Arc<Workspace>,
    /// Empty once it is given back.
    slot: Option<OwnedSlot>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Code runs.
    Running,
    /// None does.
    Resting(After),
}

impl Workspace {
    /// Takes a place in the queue, unless that is full.
    pub(super) fn queue(&self, most: usize) -> Option<Queued<'_>> {
        let queued = Queued(&self.queued);
        // The one that runs is counted too.
        (self.queued.fetch_add(1, Ordering::Relaxed) <= most).then_some(queued)
    }

    pub(super) fn idle_since(&self) -> Option<Instant> {
        *self.idle.lock()
    }

    pub(super) fn settle(&self, idle_since: Option<Instant>) {
        *self.idle.lock() = idle_since;
    }

    /// Whether calls wait for this workspace.
    pub(super) fn has_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing would be lost with the entry.
    pub(super) fn is_empty(&self) -> bool {
        self.slot
            .try_lock()
            .is_ok_and(|slot| slot.counted.is_none() && slot.retired.is_none())
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slot {
    /// Takes the interpreter out of use if it is like this.
    pub(super) fn retire_if(&mut self, retires: impl FnOnce(&Worker) -> bool) {
        if self
            .counted
            .as_ref()
            .is_some_and(|counted| retires(&counted.worker))
        {
            self.retired = self.counted.take();
        }
    }

    pub(super) fn has_retired(&self) -> bool {
        self.retired.is_some()
    }
}

impl Fresh {
    /// What the model should know.
    pub(in crate::sandbox) fn text(self) -> &'static str {
        match self {
            Self::Restored => {
                "the interpreter was started anew since the last call: variables and imports are gone, files are kept"
            }
            Self::Lost(Note::Evicted) => {
                "the interpreter was started anew since the last call: variables and imports are gone, and so are the \
                 files of the working directory, which were deleted to make room; files that the user sent are there"
            }
            Self::Lost(Note::NotKept) => {
                "the interpreter was started anew since the last call: variables and imports are gone, and the files of \
                 the working directory could not be kept: they are missing or as they were earlier"
            }
            Self::NotRestored => {
                "the interpreter was started anew since the last call: variables and imports are gone, and the files of \
                 the working directory could not be put back: some or all of them are missing"
            }
        }
    }
}

impl Held {
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
            state: State::Resting(After::Ready),
        }
    }

    /// The interpreter and the input files that it has; none only where there is no interpreter.
    pub(in crate::sandbox) fn parts(&mut self) -> Option<(&mut Worker, &mut BTreeSet<String>)> {
        let slot = &mut **self.slot.as_mut()?;
        let worker = &mut slot.counted.as_mut()?.worker;
        Some((worker, &mut slot.placed))
    }

    /// Says once that the interpreter is new though the workspace is not.
    pub(in crate::sandbox) fn take_fresh(&mut self) -> Option<Fresh> {
        self.slot.as_mut()?.fresh.take()
    }

    /// What earlier calls could not tell the model.
    pub(in crate::sandbox) fn take_untold(&mut self) -> Vec<String> {
        let slot = self.slot.as_mut();
        slot.map(|slot| std::mem::take(&mut slot.untold))
            .unwrap_or_default()
    }

    /// A result with what the model should know besides; where there is none, the next call tells it.
    pub(in crate::sandbox) fn told<T>(
        &mut self,
        result: Result<T, RunError>,
        notices: Vec<String>,
    ) -> Result<Told<T>, RunError> {
        match (result, &mut self.slot) {
            (Ok(value), _) => Ok(Told { value, notices }),
            (Err(error), slot) => {
                if let Some(slot) = slot {
                    slot.untold = notices;
                }
                Err(error)
            }
        }
    }

    /// Runs a cell.
    pub(in crate::sandbox) async fn run(
        &mut self,
        cell: &Cell<'_>,
        live: &dyn Live,
    ) -> Option<CellOutcome> {
        self.state = State::Running;
        let (worker, _) = self.parts()?;
        let (outcome, after) = worker.run(cell, live).await;
        self.state = State::Resting(after);
        Some(outcome)
    }

    /// Forgets all variables.
    pub(in crate::sandbox) async fn reset(&mut self) -> Option<()> {
        self.state = State::Running;
        let (worker, _) = self.parts()?;
        let after = worker.reset().await;
        self.state = State::Resting(after);
        Some(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        match self.state {
            State::Running => self.pool.abandoned(&self.id, &self.workspace, slot),
            State::Resting(after) => self.pool.released(&self.id, &self.workspace, slot, after),
        }
    }
}
