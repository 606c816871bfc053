//! The runs of this process that can be found by their id, and the idempotency keys of those that are not stored.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::budget::{LogBudget, Scarce};
use super::records::{Claimed, IdempotencyKey};
use super::state::RunState;
use crate::ids::{Owner, RunId};

/// How long what memory has of an ended run is kept.
const LOG_TTL: Duration = Duration::from_secs(600);

/// The runs that can be found by their id.
#[derive(Debug, Default)]
pub(super) struct Table {
    runs: HashMap<RunId, Arc<RunState>>,
    /// Those of them that have ended and of which something is kept, oldest first.
    ended: VecDeque<Arc<RunState>>,
    /// Idempotency keys of runs that are not stored.
    keys: HashMap<(Owner, String), MemoryKey>,
    /// No run is started any more.
    closed: bool,
}

/// A key of a run that is not stored.
#[derive(Debug)]
struct MemoryKey {
    fingerprint: [u8; 32],
    run: RunId,
    at: Instant,
    /// The run has ended. It is not run again, whether or not its answer is kept.
    ended: bool,
}

impl Table {
    /// Adds a run; says whether runs may still be started.
    pub(super) fn insert(&mut self, run: Arc<RunState>) -> bool {
        if !self.closed {
            self.runs.insert(run.id.clone(), run);
        }
        !self.closed
    }

    /// The run of an owner.
    pub(super) fn find(&self, owner: &Owner, id: &RunId) -> Option<Arc<RunState>> {
        let run = self.runs.get(id)?;
        (run.owner == *owner).then(|| run.clone())
    }

    /// All runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Arc<RunState>> {
        self.runs.values()
    }

    /// Forgets a run that was never started.
    pub(super) fn cancel(&mut self, id: &RunId) {
        self.runs.remove(id);
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
        if let Some(key) = state.key.as_ref().filter(|key| key.in_memory)
            && let Some(held) = self.keys.get_mut(&(state.owner.clone(), key.text.clone()))
            && held.run == state.id
        {
            (held.ended, held.at) = (true, Instant::now());
        }
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

    /// Takes the oldest of the ended runs of which something is kept: one of the owner, or, if the bytes of all are
    /// scarce, of the owner that has most.
    pub(super) fn take_oldest(
        &mut self,
        owner: &Owner,
        scarce: Scarce,
        budget: &LogBudget,
    ) -> Option<Arc<RunState>> {
        let of = |owner: &Owner| self.ended.iter().position(|run| run.owner == *owner);
        let place = match scarce {
            Scarce::OfOwner => of(owner),
            Scarce::OfAll => budget.owners().iter().find_map(of),
            Scarce::TooMany => None,
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
        self.expire_keys(now);
    }

    /// Claims an idempotency key for a run.
    pub(super) fn claim(&mut self, owner: &Owner, key: &IdempotencyKey, run: &RunId) -> Claimed {
        let now = Instant::now();
        self.expire_keys(now);
        let place = (owner.clone(), key.text.clone());
        match self.keys.get(&place) {
            Some(held) if held.fingerprint != key.fingerprint => Claimed::Reused,
            Some(held) => Claimed::Held(held.run.clone()),
            None => {
                let held = MemoryKey {
                    fingerprint: key.fingerprint,
                    run: run.clone(),
                    at: now,
                    ended: false,
                };
                self.keys.insert(place, held);
                Claimed::New
            }
        }
    }

    /// Hands a key over from a run that was never started; says whether it was still that run's.
    pub(super) fn reclaim(
        &mut self,
        owner: &Owner,
        key: &IdempotencyKey,
        from: &RunId,
        to: &RunId,
    ) -> bool {
        let held = self.keys.get_mut(&(owner.clone(), key.text.clone()));
        let held = held.filter(|held| held.run == *from && !held.ended);
        let taken = held.map(|held| (held.run, held.at) = (to.clone(), Instant::now()));
        taken.is_some()
    }

    /// Gives back the key of a run.
    pub(super) fn release(&mut self, owner: &Owner, key: &IdempotencyKey, run: &RunId) {
        let place = (owner.clone(), key.text.clone());
        if self.keys.get(&place).is_some_and(|held| held.run == *run) {
            self.keys.remove(&place);
        }
    }

    /// Forgets the keys of runs that are not stored, some time after the run has ended.
    fn expire_keys(&mut self, now: Instant) {
        let runs = &self.runs;
        let in_use = |key: &MemoryKey| runs.contains_key(&key.run);
        self.keys
            .retain(|_, key| in_use(key) || now < key.at + LOG_TTL);
    }
}
