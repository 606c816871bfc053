//! One turn at a time per conversation.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SessionError;
use crate::ids::{Owner, SessionId};

/// Parts of the map, each with a lock of its own, so that busy sessions do not wait for each other here.
const SHARDS: usize = 16;

type Key = (Owner, SessionId);
type Shard = Mutex<HashMap<Key, Entry>>;

/// Who is at work on which session; cheap to clone.
///
/// Holds an entry only for sessions that somebody works on or waits for.
#[derive(Debug, Default, Clone)]
pub struct SessionLocks {
    shards: Arc<[Shard; SHARDS]>,
    /// Keyed with a secret, so that chosen ids cannot all go to one shard.
    hasher: RandomState,
}

/// The right to work on a session, until it is dropped.
#[derive(Debug)]
pub struct SessionGuard {
    // Fields are dropped in this order: the next in line has its turn before the entry may go.
    _permit: OwnedSemaphorePermit,
    _place: Place,
}

/// A session that somebody works on or waits for.
#[derive(Debug)]
struct Entry {
    turn: Arc<Semaphore>,
    /// How many work on it or wait for it.
    places: usize,
}

/// One place at a session's entry, given back when it is dropped: also by a caller that gave up waiting.
#[derive(Debug)]
struct Place {
    locks: SessionLocks,
    key: Key,
}

impl SessionLocks {
    /// Waits for the session's turn, first come first served. A `wait` of zero takes it only if it is free.
    ///
    /// # Errors
    /// `Busy` after `wait`.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the line.
    pub async fn acquire(
        &self,
        owner: &Owner,
        id: &SessionId,
        wait: Duration,
    ) -> Result<SessionGuard, SessionError> {
        let (place, turn) = self.line_up((owner.clone(), id.clone()));
        // A free turn is taken at once; nobody is passed by, because one that is waited for is never free.
        let permit = match Arc::clone(&turn).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) if wait.is_zero() => return Err(SessionError::Busy),
            Err(_) => match tokio::time::timeout(wait, turn.acquire_owned()).await {
                Ok(Ok(permit)) => permit,
                Ok(Err(_)) | Err(_) => return Err(SessionError::Busy),
            },
        };
        Ok(SessionGuard {
            _permit: permit,
            _place: place,
        })
    }

    /// Whether somebody works on the session now.
    pub fn is_running(&self, owner: &Owner, id: &SessionId) -> bool {
        let key = (owner.clone(), id.clone());
        self.shard(&key)
            .lock()
            .get(&key)
            .is_some_and(|entry| entry.turn.available_permits() == 0)
    }

    fn line_up(&self, key: Key) -> (Place, Arc<Semaphore>) {
        let turn = {
            let mut entries = self.shard(&key).lock();
            let entry = entries.entry(key.clone()).or_insert_with(|| Entry {
                turn: Arc::new(Semaphore::new(1)),
                places: 0,
            });
            entry.places += 1;
            Arc::clone(&entry.turn)
        };
        let place = Place {
            locks: self.clone(),
            key,
        };
        (place, turn)
    }

    /// The part of the map that the key belongs to.
    fn shard(&self, key: &Key) -> &Shard {
        let [first, ..] = &*self.shards;
        let hash = self.hasher.hash_one(key) % SHARDS as u64;
        // The fallback is never taken: the index is below the number of shards.
        let index = usize::try_from(hash).unwrap_or_default();
        self.shards.get(index).unwrap_or(first)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut entries = self.locks.shard(&self.key).lock();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.places = entry.places.saturating_sub(1);
            if entry.places == 0 {
                entries.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
