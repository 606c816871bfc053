//! Eviction: when interpreters end, and which of their files are saved.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::workspace::{Restart, Slot};
use super::{PermittedWorker, PlacedWorker, Pool};
use protocol::ids::WorkspaceId;

/// Pause between checks of idle interpreters.
const REST_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between deletions of expired saved files.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);
/// How long a spare is kept before it is replaced.
const SPARE_MAX_AGE: Duration = Duration::from_secs(600);

impl Pool {
    /// Ends one idle interpreter, if there is one: of the owner with the most interpreters, the one idle for the
    /// longest time.
    pub(super) fn evict_idle(self: &Arc<Self>) {
        let mut idle: Vec<_> = {
            let workspaces = self.workspaces.lock();
            let idle = workspaces.iter().filter_map(|(id, workspace)| {
                workspace
                    .idle_since()
                    .map(|since| (since, id.clone(), workspace.clone()))
            });
            idle.collect()
        };
        idle.sort_by_cached_key(|(since, id, _)| (Reverse(self.permits.held(id.owner())), *since));
        for (_, id, workspace) in idle {
            // A call has taken it in the meantime: try the next one.
            let Ok(mut slot) = workspace.slot.clone().try_lock_owned() else {
                continue;
            };
            if slot.permitted.is_none() {
                continue;
            }
            workspace.set_idle_since(None);
            slot.retire_if(|_| true);
            let pool = self.clone();
            self.tasks.spawn(async move {
                pool.counters.evicted.fetch_add(1, Ordering::Relaxed);
                pool.save(&id, &mut slot).await;
            });
            return;
        }
    }

    /// Saves the files of a retired interpreter, ends it and frees its permit.
    pub(super) async fn save(&self, id: &WorkspaceId, slot: &mut Slot) {
        let Some(PermittedWorker { mut worker, permit }) = slot.retired.take() else {
            return;
        };
        // Processes that still run would use memory and write files during the copy.
        worker.stop().await;
        let limits = &self.plan.settings.limits;
        let keeping = self.saved.keep(id, &mut worker, &slot.placed, limits);
        if let Err(error) = keeping.await {
            tracing::error!(%error, "working files could not be saved");
        }
        slot.placed.clear();
        worker.end().await;
        drop(permit);
    }

    /// Restores the files of the workspace's earlier interpreter. Returns what happened to them, if there was an
    /// earlier interpreter.
    pub(super) async fn restore(&self, id: &WorkspaceId, slot: &mut Slot) -> Option<Restart> {
        let Some(PermittedWorker { worker, .. }) = &mut slot.permitted else {
            return None;
        };
        match self.saved.put_back(id, worker).await {
            Ok(found) => {
                let found = found?;
                slot.placed = found.placed;
                Some(
                    found
                        .note
                        .map_or(Restart::FilesRestored, Restart::FilesChanged),
                )
            }
            Err(error) => {
                tracing::error!(%error, "saved working files could not be restored");
                Some(Restart::RestoreFailed)
            }
        }
    }

    /// Removes entries of workspaces without users and without an interpreter. Entries are only cloned under the lock
    /// that is held here.
    pub(super) fn tidy(&self) {
        self.workspaces
            .lock()
            .retain(|_, workspace| Arc::strong_count(workspace) > 1 || !workspace.is_empty());
    }

    /// Runs until the pool closes: ends interpreters that are idle for too long, too old or over a limit.
    pub(super) async fn maintain(self: Arc<Self>) {
        let mut resting = tokio::time::interval(REST_INTERVAL);
        resting.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sweeping = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tokio::select! {
                () = self.closing.cancelled() => return,
                _ = resting.tick() => self.rest().await,
                _ = sweeping.tick() => self.sweep().await,
            }
        }
    }

    async fn rest(self: &Arc<Self>) {
        let settings = &self.plan.settings;
        let idle: Vec<_> = {
            let workspaces = self.workspaces.lock();
            let with_time = workspaces.iter().filter_map(|(id, workspace)| {
                let since = workspace.idle_since()?;
                Some((id.clone(), workspace.clone(), since))
            });
            with_time.collect()
        };
        for (id, workspace, since) in idle {
            let Ok(mut slot) = workspace.slot.clone().try_lock_owned() else {
                continue;
            };
            let too_long = since.elapsed() > settings.idle_ttl;
            slot.retire_if(|worker| {
                too_long
                    || worker.exceeded_limit().is_some()
                    || worker.started.elapsed() > settings.max_age
            });
            if slot.has_retired() {
                workspace.set_idle_since(None);
                self.counters.evicted.fetch_add(1, Ordering::Relaxed);
                self.save(&id, &mut slot).await;
            }
        }
        self.tidy();
        if self.permits.waiting() > 0 {
            self.evict_idle();
        }
        let is_old = |spare: &PlacedWorker| spare.worker.started.elapsed() > SPARE_MAX_AGE;
        for old in self.spares.remove(is_old) {
            old.worker.end().await;
        }
        self.refill();
    }

    async fn sweep(&self) {
        let (saved, ttl) = (self.saved.clone(), self.plan.settings.saved_ttl);
        let sweeping = tokio::task::spawn_blocking(move || saved.expire(ttl));
        if let Ok(Err(error)) = sweeping.await {
            tracing::error!(%error, "old working files could not be deleted");
        }
    }
}
