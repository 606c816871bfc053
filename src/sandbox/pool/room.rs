//! Making room: which interpreters end when, and what is kept of them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::workspace::{Fresh, Slot};
use super::{Counted, Pool};
use crate::ids::WorkspaceId;

/// How often idle interpreters are looked at.
const REST_INTERVAL: Duration = Duration::from_secs(1);
/// How often saved files past their time are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);
/// A spare of this age is replaced.
const SPARE_MAX_AGE: Duration = Duration::from_secs(600);

impl Pool {
    /// Ends an idle interpreter, if there is one: of the owner who has most of them the one that has been idle longest.
    pub(super) fn make_room(self: &Arc<Self>) {
        let mut idle: Vec<_> = {
            let workspaces = self.workspaces.lock();
            let idle = workspaces.iter().filter_map(|(id, workspace)| {
                workspace
                    .idle_since()
                    .map(|since| (since, id.clone(), workspace.clone()))
            });
            idle.collect()
        };
        idle.sort_by_cached_key(|(since, id, _)| (Reverse(self.turns.held_by(id.owner())), *since));
        for (_, id, workspace) in idle {
            // Taken by a call in the meantime: the next one then.
            let Ok(mut slot) = workspace.slot.clone().try_lock_owned() else {
                continue;
            };
            if slot.counted.is_none() {
                continue;
            }
            workspace.settle(None);
            slot.retire_if(|_| true);
            let pool = self.clone();
            self.tasks.spawn(async move {
                pool.counts.evicted.fetch_add(1, Ordering::Relaxed);
                pool.save(&id, &mut slot).await;
            });
            return;
        }
    }

    /// Keeps the files of a retired interpreter, ends it and frees its room.
    pub(super) async fn save(&self, id: &WorkspaceId, slot: &mut Slot) {
        let Some(Counted { mut worker, room }) = slot.retired.take() else {
            return;
        };
        // What still runs would go on using memory and writing files while they are copied.
        worker.stop().await;
        let limits = &self.plan.settings.limits;
        let keeping = self.saved.keep(id, &mut worker, &slot.placed, limits);
        if let Err(error) = keeping.await {
            tracing::error!(%error, "working files could not be kept");
        }
        slot.placed.clear();
        worker.end().await;
        drop(room);
    }

    /// Puts back what was kept of an earlier interpreter; says what became of it, if there was one.
    pub(super) async fn restore(&self, id: &WorkspaceId, slot: &mut Slot) -> Option<Fresh> {
        let Some(Counted { worker, .. }) = &mut slot.counted else {
            return None;
        };
        match self.saved.put_back(id, worker).await {
            Ok(found) => {
                let found = found?;
                slot.placed = found.placed;
                Some(found.note.map_or(Fresh::Restored, Fresh::Lost))
            }
            Err(error) => {
                tracing::error!(%error, "working files could not be put back");
                Some(Fresh::NotRestored)
            }
        }
    }

    /// Drops the entries of workspaces that nobody uses and that have no interpreter. Entries are only ever taken under
    /// the lock that is held here.
    pub(super) fn tidy(&self) {
        self.workspaces
            .lock()
            .retain(|_, workspace| Arc::strong_count(workspace) > 1 || !workspace.is_empty());
    }

    /// Ends what has been idle for too long, is too old or takes too much, for ever.
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
                    || worker.passed_limit().is_some()
                    || worker.started.elapsed() > settings.max_age
            });
            if slot.has_retired() {
                workspace.settle(None);
                self.counts.evicted.fetch_add(1, Ordering::Relaxed);
                self.save(&id, &mut slot).await;
            }
        }
        self.tidy();
        if self.turns.waiting() > 0 {
            self.make_room();
        }
        for old in self
            .turns
            .retire(|worker| worker.started.elapsed() > SPARE_MAX_AGE)
        {
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
