//! Leases in memory: the right of one turn at a time to write to a session, for a store that one process owns.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::StoreError;
use crate::ids::{Owner, SessionId};

/// Parts of the table, each with a lock of its own, so that busy sessions do not wait for each other here.
const SHARDS: usize = 16;

type Key = (Owner, SessionId);
type Shard = Mutex<HashMap<Key, Entry>>;

/// The right to write to a session, until it is released or dropped.
#[derive(Debug)]
pub struct Lease {
    fence: Fence,
    _hold: Arc<LeaseHold>,
}

/// What every write under a lease carries. The store refuses a write whose token is not that of the present lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub(super) owner: Owner,
    pub(super) id: SessionId,
    /// Larger for each later lease.
    token: u64,
}

/// The leases of one process; cheap to clone.
///
/// Holds an entry only for sessions that somebody has a lease of or waits for.
#[derive(Debug, Default, Clone)]
pub(super) struct Leases {
    shards: Arc<[Shard; SHARDS]>,
    /// Keyed with a secret, so that chosen ids cannot all go to one shard.
    hasher: RandomState,
    last_token: Arc<AtomicU64>,
}

/// Keeps the session from the next in the queue: held by the lease, and by each write under it until that has ended.
#[derive(Debug)]
pub(super) struct LeaseHold {
    // Fields are dropped in this order: the next in the queue has the permit before the entry may go.
    _permit: OwnedSemaphorePermit,
    _slot: QueueSlot,
}

/// A session that somebody has a lease of or waits for.
#[derive(Debug)]
struct Entry {
    queue: Arc<Semaphore>,
    /// How many have it or wait for it.
    slots: usize,
    /// The present lease.
    token: u64,
    hold: Weak<LeaseHold>,
}

/// One slot at a session's entry, given back when it is dropped: also by a caller that gave up waiting.
#[derive(Debug)]
struct QueueSlot {
    leases: Leases,
    key: Key,
}

impl Lease {
    /// What writes under this lease carry.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }
}

impl Leases {
    /// See [`super::Store::acquire`].
    pub(super) async fn acquire(
        &self,
        owner: &Owner,
        id: &SessionId,
        wait: Duration,
    ) -> Result<Lease, StoreError> {
        let (slot, queue) = self.enqueue((owner.clone(), id.clone()));
        // A free permit is taken at once; nobody is passed by, because one that is waited for is never free.
        let permit = match Arc::clone(&queue).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) if wait.is_zero() => return Err(StoreError::Busy),
            Err(_) => match tokio::time::timeout(wait, queue.acquire_owned()).await {
                Ok(Ok(permit)) => permit,
                Ok(Err(_)) | Err(_) => return Err(StoreError::Busy),
            },
        };
        let token = self.last_token.fetch_add(1, Ordering::Relaxed) + 1;
        let hold = Arc::new(LeaseHold {
            _permit: permit,
            _slot: slot,
        });
        let (owner, id) = (owner.clone(), id.clone());
        let key = (owner.clone(), id.clone());
        if let Some(entry) = self.shard(&key).lock().get_mut(&key) {
            entry.token = token;
            entry.hold = Arc::downgrade(&hold);
        }
        Ok(Lease {
            fence: Fence { owner, id, token },
            _hold: hold,
        })
    }

    /// Keeps the lease of a fence from ending while a write under it runs.
    ///
    /// # Errors
    /// `LeaseLost` when it has ended.
    pub(super) fn pin(&self, fence: &Fence) -> Result<Arc<LeaseHold>, StoreError> {
        let key = (fence.owner.clone(), fence.id.clone());
        let entries = self.shard(&key).lock();
        let entry = entries.get(&key).filter(|entry| entry.token == fence.token);
        entry
            .and_then(|entry| entry.hold.upgrade())
            .ok_or(StoreError::LeaseLost)
    }

    /// Whether somebody has a lease of the session now.
    pub(super) fn is_leased(&self, owner: &Owner, id: &SessionId) -> bool {
        let key = (owner.clone(), id.clone());
        self.shard(&key)
            .lock()
            .get(&key)
            .is_some_and(|entry| entry.queue.available_permits() == 0)
    }

    fn enqueue(&self, key: Key) -> (QueueSlot, Arc<Semaphore>) {
        let queue = {
            let mut entries = self.shard(&key).lock();
            let entry = entries.entry(key.clone()).or_insert_with(|| Entry {
                queue: Arc::new(Semaphore::new(1)),
                slots: 0,
                token: 0,
                hold: Weak::new(),
            });
            entry.slots += 1;
            Arc::clone(&entry.queue)
        };
        let slot = QueueSlot {
            leases: self.clone(),
            key,
        };
        (slot, queue)
    }

    /// The part of the table that the key belongs to.
    fn shard(&self, key: &Key) -> &Shard {
        let [first, ..] = &*self.shards;
        let hash = self.hasher.hash_one(key) % SHARDS as u64;
        // The fallback is never taken: the index is below the number of shards.
        let index = usize::try_from(hash).unwrap_or_default();
        self.shards.get(index).unwrap_or(first)
    }

    /// Sessions that somebody has a lease of or waits for.
    #[cfg(test)]
    fn entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut entries = self.leases.shard(&self.key).lock();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.slots = entry.slots.saturating_sub(1);
            if entry.slots == 0 {
                entries.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
