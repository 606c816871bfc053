//! Interpreters by workspace: spares, the queue, and who has to make room.
//!
//! A workspace has at most one interpreter, and its calls run one after another. Interpreters are counted by permits,
//! which are handed out in the order of asking. An interpreter that is ended leaves its working files in a directory of
//! the server's ([`saved`]), from which the workspace's next one gets them back.

mod fonts;
mod room;
mod saved;
mod spares;
mod workspace;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::saved::Saved;
use self::spares::Spares;
pub(super) use self::workspace::Held;
use self::workspace::Workspace;
use super::plan::Plan;
use super::remove::remove_tree;
use super::worker::{After, Worker};
use super::{RunError, SandboxError, Stats};
use crate::ids::WorkspaceId;

/// Calls of one workspace that wait for each other.
const MAX_QUEUED: usize = 4;
/// Longest wait for an interpreter.
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// How long abandoned code may take to heed an interrupt.
const RECOVERY: Duration = Duration::from_secs(2);

/// All interpreters.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) plan: Arc<Plan>,
    permits: Arc<Semaphore>,
    spares: Spares,
    workspaces: Mutex<HashMap<WorkspaceId, Arc<Workspace>>>,
    saved: Saved,
    waiting: AtomicUsize,
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

/// An interpreter and the permit that counts it.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) worker: Worker,
    permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(plan: Arc<Plan>, tasks: TaskTracker) -> Result<Arc<Self>, SandboxError> {
        let settings = &plan.settings;
        let saved = Saved::open(&settings.work_dir).map_err(|source| SandboxError::Step {
            step: "opening the directory for working files",
            source,
        })?;
        let pool = Arc::new(Self {
            permits: Arc::new(Semaphore::new(settings.max_workers)),
            spares: Spares::default(),
            workspaces: Mutex::default(),
            saved,
            waiting: AtomicUsize::new(0),
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
        let _queued = workspace.queue(MAX_QUEUED).ok_or(RunError::Overloaded)?;
        let mut slot = tokio::select! {
            biased;
            () = self.closing.cancelled() => return Err(RunError::Closed),
            slot = workspace.slot.clone().lock_owned() => slot,
        };
        slot.retire_if(|worker| worker.started.elapsed() > self.plan.settings.max_age);
        if slot.has_retired() {
            let (pool, id) = (self.clone(), id.clone());
            let saving = self.to_the_end(async move {
                pool.save(&id, &mut slot).await;
                slot
            });
            slot = saving.await?;
        }
        if slot.counted.is_some() {
            return Ok(self.held(id, slot));
        }
        let counted = self.acquire().await?;
        let (pool, id) = (self.clone(), id.clone());
        let preparing = self.to_the_end(async move {
            counted.worker.give_fonts().await;
            slot.counted = Some(counted);
            slot.restored = pool.restore(&id, &mut slot).await;
            pool.held(&id, slot)
        });
        preparing.await
    }

    fn held(self: &Arc<Self>, id: &WorkspaceId, slot: workspace::OwnedSlot) -> Held {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Held::new(self.clone(), id.clone(), slot)
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

    /// An interpreter for a workspace: a spare, a new one, or one that another workspace has to give up.
    async fn acquire(self: &Arc<Self>) -> Result<Counted, RunError> {
        let mut permit = std::pin::pin!(self.permit());
        loop {
            if let Some(spare) = self.spares.take() {
                self.refill();
                return Ok(spare);
            }
            tokio::select! {
                permit = &mut permit => return self.start_for_call(permit?).await,
                () = self.spares.arrived() => {}
            }
        }
    }

    /// Waits for its turn to start an interpreter.
    async fn permit(self: &Arc<Self>) -> Result<OwnedSemaphorePermit, RunError> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let waiting = Waiting::begin(&self.waiting);
        if waiting.position > self.plan.settings.max_waiting {
            return Err(RunError::Overloaded);
        }
        self.make_room();
        let granted = tokio::time::timeout(WAIT_LIMIT, self.permits.clone().acquire_owned());
        match granted.await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(RunError::Closed),
            Err(_) => Err(RunError::Overloaded),
        }
    }

    /// Starts an interpreter for a call; where that is given up meanwhile, the interpreter is ended as others are.
    async fn start_for_call(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Counted, RunError> {
        let (give, started) = oneshot::channel();
        let pool = self.clone();
        self.tasks.spawn(async move {
            let started = pool.start(permit).await;
            if let Err(Ok(unwanted)) = give.send(started) {
                unwanted.worker.end().await;
                pool.refill();
            }
        });
        let started = started.await.map_err(|_| RunError::Closed)?;
        started.map_err(RunError::Start)
    }

    async fn start(&self, permit: OwnedSemaphorePermit) -> Result<Counted, SandboxError> {
        let place = self.plan.place()?;
        let worker = Worker::start(&self.plan, place).await?;
        self.counts.started.fetch_add(1, Ordering::Relaxed);
        Ok(Counted { worker, permit })
    }

    /// Starts spares up to the wanted number, unless calls wait for what they would take.
    fn refill(self: &Arc<Self>) {
        let wanted = self.plan.settings.spares;
        if self.closing.is_cancelled() || self.waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        while let Some(expected) = self.spares.expect(wanted) {
            let Ok(permit) = self.permits.clone().try_acquire_owned() else {
                return;
            };
            let pool = self.clone();
            self.tasks.spawn(async move {
                match pool.start(permit).await {
                    Ok(spare) => {
                        if let Some(unwanted) = expected.fulfil(spare) {
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

    /// A call is over: its interpreter waits for the next one, or makes room.
    fn released(self: &Arc<Self>, id: &WorkspaceId, mut slot: workspace::OwnedSlot, after: After) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
        if after == After::Over {
            self.counts.killed.fetch_add(1, Ordering::Relaxed);
            slot.retire_if(|_| true);
            let (pool, id) = (self.clone(), id.clone());
            self.tasks.spawn(async move {
                pool.save(&id, &mut slot).await;
                drop(slot);
                pool.refill();
            });
            return;
        }
        let workspace = self.workspaces.lock().get(id).cloned();
        if let Some(workspace) = workspace {
            workspace.settle(Some(Instant::now()));
        }
        drop(slot);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.make_room();
        }
    }

    /// Code that nobody waits for any more: interrupted, and ended if it does not heed that.
    fn abandoned(self: &Arc<Self>, id: &WorkspaceId, mut slot: workspace::OwnedSlot) {
        let (pool, id) = (self.clone(), id.clone());
        self.tasks.spawn(async move {
            let after = match &mut slot.counted {
                Some(counted) => counted.worker.recover(RECOVERY).await,
                None => After::Ready,
            };
            pool.released(&id, slot, after);
        });
    }

    /// Forgets a workspace: its interpreter is ended, its files are deleted.
    pub(super) fn forget(self: &Arc<Self>, id: &WorkspaceId) {
        let workspace = self.workspaces.lock().remove(id);
        let (pool, id) = (self.clone(), id.clone());
        self.tasks.spawn(async move {
            if let Some(workspace) = workspace {
                let mut slot = workspace.slot.clone().lock_owned().await;
                if let Some(Counted { worker, permit }) = slot.counted.take() {
                    worker.end().await;
                    drop(permit);
                }
            }
            let saved = pool.saved.clone();
            let deleting = tokio::task::spawn_blocking(move || saved.delete(&id));
            if let Ok(Err(error)) = deleting.await {
                tracing::error!(%error, "working files could not be deleted");
            }
            pool.refill();
        });
    }

    /// Has matplotlib, if it is there, list the fonts once for all interpreters: each would take half a second for it.
    async fn list_fonts(self: Arc<Self>) {
        if !self.plan.interpreter.has_package("matplotlib") {
            return;
        }
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            return;
        };
        let listed = tokio::select! {
            listed = fonts::list(&self, permit) => listed,
            () = self.closing.cancelled() => return,
        };
        if let Err(error) = listed {
            tracing::warn!(%error, "matplotlib could not list the fonts");
        }
        self.refill();
    }

    /// Ends every interpreter, with its files kept, and takes no more calls.
    pub(super) async fn close(self: &Arc<Self>) {
        self.closing.cancel();
        self.permits.close();
        let all: Vec<_> = self.workspaces.lock().drain().collect();
        for (id, workspace) in all {
            let mut slot = workspace.slot.clone().lock_owned().await;
            slot.retire_if(|_| true);
            self.save(&id, &mut slot).await;
        }
        for spare in self.spares.close() {
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
        let settings = &self.plan.settings;
        Stats {
            workers: settings
                .max_workers
                .saturating_sub(self.permits.available_permits()),
            busy: self.busy.load(Ordering::Relaxed),
            spares: self.spares.count(),
            waiting: self.waiting.load(Ordering::Relaxed),
            started: self.counts.started.load(Ordering::Relaxed),
            evicted: self.counts.evicted.load(Ordering::Relaxed),
            killed: self.counts.killed.load(Ordering::Relaxed),
        }
    }
}

/// Counts a call while it waits for an interpreter.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    /// How many wait, itself included.
    position: usize,
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        let position = count.fetch_add(1, Ordering::Relaxed) + 1;
        Self { count, position }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
