//! Interpreters by workspace: spares, the queue, and who has to make room.
//!
//! A workspace has at most one interpreter, and its calls run one after another. Interpreters are counted by rooms, which
//! are shared out fairly among the owners of workspaces ([`turns`]). An interpreter that is ended leaves its working files in a directory of
//! the server's ([`saved`]), from which the workspace's next one gets them back.

mod fonts;
mod room;
mod saved;
#[cfg(test)]
mod tests;
mod turns;
mod workspace;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::saved::Saved;
use self::turns::{Given, Room, Turns};
pub(super) use self::workspace::Held;
use self::workspace::Workspace;
use super::plan::Plan;
use super::remove::remove_tree;
use super::worker::{After, Worker};
use super::{RunError, SandboxError, Stats};
use crate::ids::{Owner, WorkspaceId};

/// Calls of one workspace that wait for each other.
const MAX_QUEUED: usize = 4;
/// Longest wait for an interpreter.
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// How long abandoned code may take to heed an interrupt.
const RECOVERY: Duration = Duration::from_secs(2);

/// How long the next spare waits for the end of the call that took the last one: starting it takes a processor's time.
const REFILL_PAUSE: Duration = Duration::from_secs(2);

/// An interpreter and the room that counts it.
pub(super) type Counted = turns::Counted<Worker>;

/// All interpreters.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) plan: Arc<Plan>,
    turns: Turns<Worker>,
    /// When a spare was taken for a call that runs still.
    spare_taken: Mutex<Option<Instant>>,
    workspaces: Mutex<HashMap<WorkspaceId, Arc<Workspace>>>,
    saved: Saved,
    busy: AtomicUsize,
    counts: Counts,
    tasks: TaskTracker,
    closing: CancellationToken,
}

/// What happened since the start.
#[derive(Debug, Default)]
struct Counts {
    started: AtomicU64,
    evicted: AtomicU64,
    killed: AtomicU64,
}

impl Pool {
    pub(super) fn new(plan: Arc<Plan>, tasks: TaskTracker) -> Result<Arc<Self>, SandboxError> {
        let settings = &plan.settings;
        let saved = Saved::open(&settings.work_dir, settings.saved_size).map_err(|source| {
            SandboxError::Step {
                step: "opening the directory for working files",
                source,
            }
        })?;
        let pool = Arc::new(Self {
            turns: Turns::new(settings.max_workers, settings.max_waiting),
            spare_taken: Mutex::default(),
            workspaces: Mutex::default(),
            saved,
            busy: AtomicUsize::new(0),
            counts: Counts::default(),
            tasks,
            closing: CancellationToken::new(),
            plan,
        });
        pool.tasks.spawn(pool.clone().maintain());
        pool.tasks.spawn(pool.clone().list_fonts());
        pool.refill();
        Ok(pool)
    }

    /// Waits for the workspace's turn and gives it an interpreter, with its files in place.
    ///
    /// Dropping what is returned while code runs interrupts it; the workspace stays locked until that is done.
    pub(super) async fn hold(self: &Arc<Self>, id: &WorkspaceId) -> Result<Held, RunError> {
        let workspace = self.workspace(id)?;
        let queued = workspace.queue(MAX_QUEUED).ok_or(RunError::Overloaded)?;
        let mut slot = tokio::select! {
            biased;
            () = self.closing.cancelled() => return Err(RunError::Closed),
            () = workspace.forgotten.cancelled() => return Err(RunError::Forgotten),
            slot = workspace.slot.clone().lock_owned() => slot,
        };
        drop(queued);
        slot.retire_if(|worker| {
            worker.started.elapsed() > self.plan.settings.max_age || worker.passed_limit().is_some()
        });
        if slot.has_retired() {
            let (pool, id) = (self.clone(), id.clone());
            let saving = self.to_the_end(async move {
                pool.save(&id, &mut slot).await;
                slot
            });
            slot = saving.await?;
        }
        if slot.counted.is_some() {
            return Ok(self.held(id, workspace, slot));
        }
        let (counted, was_spare) = tokio::select! {
            biased;
            () = workspace.forgotten.cancelled() => return Err(RunError::Forgotten),
            acquired = self.acquire(id.owner()) => acquired?,
        };
        let (pool, id) = (self.clone(), id.clone());
        let preparing = self.to_the_end(async move {
            counted.worker.give_fonts().await;
            slot.counted = Some(counted);
            slot.was_spare = was_spare;
            slot.fresh = pool.restore(&id, &mut slot).await;
            pool.held(&id, workspace, slot)
        });
        preparing.await
    }

    fn held(
        self: &Arc<Self>,
        id: &WorkspaceId,
        workspace: Arc<Workspace>,
        slot: workspace::OwnedSlot,
    ) -> Held {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Held::new(self.clone(), id.clone(), workspace, slot)
    }

    /// What is done to its end even if nobody waits for it any more: half of it would lose files, or leave an
    /// interpreter to nobody. Its result is then dropped.
    async fn to_the_end<T: Send + 'static>(
        &self,
        doing: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, RunError> {
        let done = self.tasks.spawn(doing).await;
        done.map_err(|_| RunError::Closed)
    }

    /// The entry of a workspace.
    fn workspace(&self, id: &WorkspaceId) -> Result<Arc<Workspace>, RunError> {
        let mut workspaces = self.workspaces.lock();
        if self.closing.is_cancelled() {
            return Err(RunError::Closed);
        }
        Ok(workspaces.entry(id.clone()).or_default().clone())
    }

    /// An interpreter for an owner's workspace: a spare, a new one, or one that another workspace has to give up. Says
    /// whether it is a spare.
    async fn acquire(self: &Arc<Self>, owner: &Owner) -> Result<(Counted, bool), RunError> {
        let turn = self.turns.ask(owner).ok_or_else(|| self.refusal())?;
        if self.turns.waiting() > 0 {
            self.make_room();
        }
        let given = tokio::time::timeout(WAIT_LIMIT, turn.given()).await;
        match given.ok().flatten() {
            Some(Given::Room(room)) => Ok((self.start_for_call(room).await?, false)),
            Some(Given::Ready(counted)) => {
                *self.spare_taken.lock() = Some(Instant::now());
                Ok((counted, true))
            }
            None => Err(self.refusal()),
        }
    }

    /// Why a call was sent away.
    fn refusal(&self) -> RunError {
        match self.closing.is_cancelled() {
            true => RunError::Closed,
            false => RunError::Overloaded,
        }
    }

    /// Starts an interpreter for a call; where that is given up meanwhile, the interpreter is ended as others are.
    async fn start_for_call(self: &Arc<Self>, room: Room<Worker>) -> Result<Counted, RunError> {
        let (give, started) = oneshot::channel();
        let pool = self.clone();
        self.tasks.spawn(async move {
            let started = pool.start(room).await;
            if let Err(Ok(unwanted)) = give.send(started) {
                unwanted.worker.end().await;
                pool.refill();
            }
        });
        let started = started.await.map_err(|_| RunError::Closed)?;
        started.map_err(RunError::Start)
    }

    async fn start(&self, room: Room<Worker>) -> Result<Counted, SandboxError> {
        let place = self.plan.place()?;
        let worker = Worker::start(&self.plan, place).await?;
        self.counts.started.fetch_add(1, Ordering::Relaxed);
        Ok(Counted { worker, room })
    }

    /// Starts spares up to the wanted number, unless calls wait for what they would take, or the last one is in its first
    /// call, which that would slow down.
    fn refill(self: &Arc<Self>) {
        let pauses = |taken: Instant| taken.elapsed() < REFILL_PAUSE;
        if self.closing.is_cancelled() || self.spare_taken.lock().is_some_and(pauses) {
            return;
        }
        while let Some((expected, room)) = self.turns.expect(self.plan.settings.spares) {
            let pool = self.clone();
            self.tasks.spawn(async move {
                match pool.start(room).await {
                    Ok(spare) => {
                        if let Some(unwanted) = pool.turns.offer(spare) {
                            unwanted.worker.end().await;
                        }
                    }
                    Err(error) => tracing::warn!(
                        error = %error,
                        cause = ?std::error::Error::source(&error),
                        "a spare interpreter could not be started"
                    ),
                }
                // Only now, so that no other is started in its place.
                drop(expected);
            });
        }
    }

    /// A call is over: its interpreter waits for the next one, or makes room.
    fn released(
        self: &Arc<Self>,
        id: &WorkspaceId,
        workspace: &Arc<Workspace>,
        mut slot: workspace::OwnedSlot,
        after: After,
    ) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
        let was_spare = std::mem::take(&mut slot.was_spare);
        if was_spare {
            *self.spare_taken.lock() = None;
        }
        // Calls that follow each other closely would keep an interpreter from others for ever.
        let yields = workspace.has_queued() && self.turns.is_outranked(id.owner());
        if after == After::Over || yields {
            let count = match after {
                After::Over => &self.counts.killed,
                After::Ready => &self.counts.evicted,
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
        if let Some(Counted { worker, .. }) = &slot.counted {
            worker.rest();
        }
        workspace.settle(Some(Instant::now()));
        drop(slot);
        if self.turns.waiting() > 0 {
            self.make_room();
        } else if was_spare {
            self.refill();
        }
    }

    /// Code that nobody waits for any more: interrupted, and ended if it does not heed that.
    fn abandoned(
        self: &Arc<Self>,
        id: &WorkspaceId,
        workspace: &Arc<Workspace>,
        mut slot: workspace::OwnedSlot,
    ) {
        let (pool, id, workspace) = (self.clone(), id.clone(), workspace.clone());
        self.tasks.spawn(async move {
            let after = match &mut slot.counted {
                Some(counted) => counted.worker.recover(RECOVERY).await,
                None => After::Ready,
            };
            pool.released(&id, &workspace, slot, after);
        });
    }

    /// Forgets a workspace: its interpreter is ended, its files are deleted. Calls that wait for it are sent away; those
    /// that come from now on wait until nothing of it is left, and find it empty.
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
                if let Some(Counted { worker, room }) = slot.counted.take() {
                    worker.end().await;
                    drop(room);
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

    /// Has matplotlib, if it is there, list the fonts once for all interpreters: each would take half a second for it.
    async fn list_fonts(self: Arc<Self>) {
        if !self.plan.interpreter.has_package("matplotlib") {
            return;
        }
        let Some(room) = self.turns.spare_room() else {
            return;
        };
        if let Err(error) = fonts::list(&self, room).await {
            tracing::warn!(%error, "matplotlib could not list the fonts");
        }
        self.refill();
    }

    /// Ends every interpreter, with its files kept, and takes no more calls.
    pub(super) async fn close(self: &Arc<Self>) {
        self.closing.cancel();
        let spares = self.turns.close();
        let all: Vec<_> = self.workspaces.lock().drain().collect();
        for (id, workspace) in all {
            let mut slot = workspace.slot.clone().lock_owned().await;
            slot.retire_if(|_| true);
            self.save(&id, &mut slot).await;
        }
        for spare in spares {
            spare.worker.end().await;
        }
        if self.plan.settings.temporary {
            let work_dir = self.plan.settings.work_dir.clone();
            let deleting = tokio::task::spawn_blocking(move || remove_tree(&work_dir));
            if let Ok(Err(error)) = deleting.await {
                tracing::warn!(%error, "the temporary directory for working files could not be deleted");
            }
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            workers: self.turns.workers(),
            busy: self.busy.load(Ordering::Relaxed),
            spares: self.turns.spares(),
            waiting: self.turns.waiting(),
            started: self.counts.started.load(Ordering::Relaxed),
            evicted: self.counts.evicted.load(Ordering::Relaxed),
            killed: self.counts.killed.load(Ordering::Relaxed),
        }
    }
}
