//! The leases of one process, in memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::StoreError;
use protocol::ids::{Owner, SessionId};

/// Number of shards of the table. Each has its own lock, to reduce contention.
const SHARDS: usize = 16;

type Key = (Owner, SessionId);
type Shard = Mutex<HashMap<Key, Entry>>;

/// The proof of a lease that every write carries. The store refuses a write whose token is not the token of the current
/// lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub(super) owner: Owner,
    pub(super) id: SessionId,
    /// Increases with every lease.
    pub(super) token: u64,
}

/// The leases of one process; cheap to clone.
///
/// The table has entries only for sessions whose lease is held or waited for.
#[derive(Debug, Default, Clone)]
pub(super) struct Leases {
    shards: Arc<[Shard; SHARDS]>,
    /// Randomly keyed, so that clients cannot choose ids that all map to one shard.
    hasher: RandomState,
    last_token: Arc<AtomicU64>,
}

/// Keeps a session leased. Held by the lease and by each write under it until the write has ended.
#[derive(Debug)]
pub(super) struct LeaseHold {
    // Fields are dropped in this order: the permit passes to the next waiter before the entry can be removed.
    _permit: OwnedSemaphorePermit,
    _slot: QueueSlot,
}

/// A session whose lease is held or waited for.
#[derive(Debug)]
struct Entry {
    queue: Arc<Semaphore>,
    /// Number of holders and waiters.
    slots: usize,
    /// The token of the current lease.
    token: u64,
    hold: Weak<LeaseHold>,
}

/// One of the `slots` of an entry. It is released on drop, also if the caller stops waiting.
#[derive(Debug)]
struct QueueSlot {
    leases: Leases,
    key: Key,
}

impl Leases {
    /// Leases a session, as [`super::Store::acquire`] says.
    pub(super) async fn acquire(
        &self,
        owner: &Owner,
        id: &SessionId,
        wait: Duration,
    ) -> Result<(Fence, Arc<LeaseHold>), StoreError> {
        let (slot, queue) = self.enqueue((owner.clone(), id.clone()));
        // Taking a free permit immediately is fair: while there are waiters, no permit is free.
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
        Ok((Fence { owner, id, token }, hold))
    }

    /// Keeps a session leased while a write with this fence runs.
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

    /// Whether the lease of the session is held now.
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

    fn shard(&self, key: &Key) -> &Shard {
        let [first, ..] = &*self.shards;
        let hash = self.hasher.hash_one(key) % SHARDS as u64;
        // The index is always below the number of shards, so the fallback is never used.
        let index = usize::try_from(hash).unwrap_or_default();
        self.shards.get(index).unwrap_or(first)
    }

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
