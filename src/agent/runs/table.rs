//! The runs of this process that can be found by their id, and the idempotency keys of those that are not stored.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::keys::MemoryKeys;
use super::log::LOG_TTL;
use super::state::RunState;
use protocol::ids::{Owner, RunId};
use quota::{BudgetExceeded, RetainedMemory};

/// The runs that can be found by their id.
#[derive(Debug, Default)]
pub(super) struct Table {
    runs: HashMap<RunId, Arc<RunState>>,
    /// The ended runs whose log or answer is in memory, oldest first.
    ended: VecDeque<Arc<RunState>>,
    /// The runs that have not ended, by owner.
    running: HashMap<Owner, HashMap<RunId, Arc<RunState>>>,
    /// Idempotency keys of runs that are not stored.
    pub(super) keys: MemoryKeys,
    /// No run is started any more.
    closed: bool,
}

impl Table {
    /// Adds a run. A run that resumes replaces its ended entry. Returns whether the run may start.
    pub(super) fn insert(&mut self, run: Arc<RunState>) -> bool {
        if self.runs_now(&run.owner, &run.id) {
            return false;
        }
        if !self.closed {
            self.ended.retain(|ended| ended.id != run.id);
            let own = self.running.entry(run.owner.clone()).or_default();
            own.insert(run.id.clone(), run.clone());
            self.runs.insert(run.id.clone(), run);
        }
        !self.closed
    }

    /// Whether a run has not ended, or what it has left is still being written.
    pub(super) fn runs_now(&self, owner: &Owner, id: &RunId) -> bool {
        let own = self.running.get(owner);
        own.is_some_and(|own| own.contains_key(id))
    }

    pub(super) fn find(&self, owner: &Owner, id: &RunId) -> Option<Arc<RunState>> {
        let run = self.runs.get(id)?;
        (run.owner == *owner).then(|| run.clone())
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = &Arc<RunState>> {
        self.runs.values()
    }

    /// The runs of an owner that have not ended.
    pub(super) fn running_of(&self, owner: &Owner) -> impl Iterator<Item = &Arc<RunState>> {
        self.running
            .get(owner)
            .into_iter()
            .flat_map(HashMap::values)
    }

    /// Forgets a run that was never started.
    pub(super) fn cancel(&mut self, run: &RunState) {
        self.runs.remove(&run.id);
        self.runs_no_more(run);
        if let Some(key) = run.key.as_ref().filter(|key| key.in_memory) {
            self.keys.never_starts(&run.owner, key, &run.id);
        }
    }

    fn runs_no_more(&mut self, run: &RunState) {
        if let Some(own) = self.running.get_mut(&run.owner) {
            own.remove(&run.id);
            if own.is_empty() {
                self.running.remove(&run.owner);
            }
        }
    }

    /// Forgets a run.
    pub(super) fn remove(&mut self, id: &RunId) {
        self.runs.remove(id);
        self.ended.retain(|run| run.id != *id);
    }

    /// Lets no run start any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Takes note of a run that has ended; says whether it can still be found.
    pub(super) fn ended(&mut self, state: &RunState) -> bool {
        if let Some(key) = state.key.as_ref().filter(|key| key.in_memory) {
            self.keys.ended(&state.owner, key, &state.id);
        }
        self.runs_no_more(state);
        match self.runs.get(&state.id) {
            Some(run) if state.is_kept() => {
                self.ended.push_back(run.clone());
                true
            }
            Some(_) | None => {
                self.runs.remove(&state.id);
                false
            }
        }
    }

    /// Removes the oldest ended run whose log or answer is in memory: one of the owner, or, if the bytes of all are
    /// scarce, one of the owner that has most.
    pub(super) fn take_oldest(
        &mut self,
        owner: &Owner,
        limit: BudgetExceeded,
        budget: &RetainedMemory,
    ) -> Option<Arc<RunState>> {
        let of = |owner: &Owner| self.ended.iter().position(|run| run.owner == *owner);
        let place = match limit {
            BudgetExceeded::OfOwner => of(owner),
            BudgetExceeded::OfAll => budget.owners().iter().find_map(of),
            BudgetExceeded::TooMany => None,
        };
        let run = self.ended.remove(place?)?;
        self.runs.remove(&run.id);
        Some(run)
    }

    /// Forgets ended runs whose time is up.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        let expired = |run: &RunState| run.ended_at().is_some_and(|at| now >= at + LOG_TTL);
        self.runs.retain(|_, run| !expired(run));
        self.ended.retain(|run| !expired(run));
        self.keys.expire(now);
    }
}
