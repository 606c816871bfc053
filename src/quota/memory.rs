//! A bound on memory, shared fairly among the owners.
//!
//! An owner's share never exceeds what then remains free. One owner alone gets at most half of the memory, each of two
//! owners a third, and so on. An owner without memory always finds some free.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use protocol::ids::Owner;

/// A number of bytes that holders share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: u64,
    /// Whether several owners share it.
    shared: AtomicBool,
    used: Mutex<Used>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Used {
    total: u64,
    /// By owner; no zero entries.
    by_owner: HashMap<Owner, u64>,
}

/// Bytes of a budget, which are returned when this is dropped.
#[derive(Debug)]
pub struct ReservedMemory {
    budget: MemoryBudget,
    owner: Owner,
    bytes: u64,
}

impl MemoryBudget {
    /// A budget of `total` bytes. Memory is reserved for other owners only if it is `shared`.
    pub fn new(total: u64, shared: bool) -> Self {
        Self(Arc::new(Inner {
            total,
            shared: shared.into(),
            used: Mutex::default(),
            released: Notify::new(),
        }))
    }

    /// Sets whether memory is reserved for other owners.
    pub fn share(&self, shared: bool) {
        self.0.shared.store(shared, Ordering::Relaxed);
    }

    fn is_shared(&self) -> bool {
        self.0.shared.load(Ordering::Relaxed)
    }

    /// No bytes yet, for this owner.
    pub fn empty(&self, owner: &Owner) -> ReservedMemory {
        ReservedMemory {
            budget: self.clone(),
            owner: owner.clone(),
            bytes: 0,
        }
    }

    /// The most that one owner can hold.
    fn largest(&self) -> u64 {
        if self.is_shared() {
            self.0.total / 2
        } else {
            self.0.total
        }
    }

    fn try_take(&self, owner: &Owner, bytes: u64) -> bool {
        let mut used = self.0.used.lock();
        let own = used.by_owner.get(owner).copied().unwrap_or(0) + bytes;
        let Some(free) = self.0.total.checked_sub(used.total + bytes) else {
            return false;
        };
        if self.is_shared() && own > free {
            return false;
        }
        used.total += bytes;
        match used.by_owner.get_mut(owner) {
            Some(entry) => *entry = own,
            None => drop(used.by_owner.insert(owner.clone(), own)),
        }
        true
    }

    fn give_back(&self, owner: &Owner, bytes: u64) {
        {
            let mut used = self.0.used.lock();
            used.total -= bytes;
            if let Some(own) = used.by_owner.get_mut(owner) {
                *own -= bytes;
                if *own == 0 {
                    used.by_owner.remove(owner);
                }
            }
        }
        self.0.released.notify_waiters();
    }
}

impl ReservedMemory {
    /// Grows to this many bytes, or to the most that one owner can hold, so that a single large body is possible. Waits
    /// until enough is free; returns false if that takes longer than `wait`, and nothing has changed then.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn grow_to(&mut self, bytes: u64, wait: Duration) -> bool {
        let wanted = bytes.min(self.budget.largest());
        let Some(more) = wanted.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        if !self.budget.try_take(&self.owner, more) && !self.take_within(more, wait).await {
            return false;
        }
        self.bytes = wanted;
        true
    }

    /// Gives back what exceeds this many bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(spare) = self.bytes.checked_sub(bytes).filter(|spare| *spare > 0) {
            self.budget.give_back(&self.owner, spare);
            self.bytes = bytes;
        }
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    async fn take_within(&self, more: u64, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        loop {
            let mut released = pin!(self.budget.0.released.notified());
            // Registered before the attempt, so that nothing released in between is missed.
            released.as_mut().enable();
            if self.budget.try_take(&self.owner, more) {
                return true;
            }
            if timeout_at(deadline, released).await.is_err() {
                return false;
            }
        }
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(&self.owner, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const WAIT: Duration = Duration::from_secs(5);

    async fn held(budget: &MemoryBudget, owner: &Owner, bytes: u64) -> Option<ReservedMemory> {
        let mut memory = budget.empty(owner);
        memory.grow_to(bytes, WAIT).await.then_some(memory)
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_with_many_bodies_leaves_room_for_others() {
        let budget = MemoryBudget::new(120, true);
        let [greedy, second, third] = ["a", "b", "c"].map(Owner::key);
        let mut all = Vec::new();
        while let Some(memory) = held(&budget, &greedy, 10).await {
            all.push(memory);
        }
        assert_eq!(all.len(), 6, "half, as long as it is alone");
        let second = held(&budget, &second, 30).await;
        assert!(second.is_some(), "half of what is left");
        assert!(held(&budget, &third, 15).await.is_some());
        // What it gives back it does not get again while others hold some.
        all.pop();
        assert!(held(&budget, &greedy, 10).await.is_none());
        drop(second);
        assert!(held(&budget, &greedy, 10).await.is_some());
        drop(all);
        let used = budget.0.used.lock();
        assert_eq!((used.total, used.by_owner.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_memory_and_not_for_ever() {
        let budget = MemoryBudget::new(100, false);
        let owner = Owner::everybody();
        let first = held(&budget, &owner, 80).await.unwrap();
        let began = Instant::now();
        assert!(held(&budget, &owner, 30).await.is_none());
        assert_eq!(began.elapsed(), WAIT);

        let mut second = budget.empty(&owner);
        let mut growing = Box::pin(second.grow_to(30, WAIT));
        assert_eq!(growing.as_mut().now_or_never(), None);
        drop(first);
        assert!(growing.await);
        assert_eq!(began.elapsed(), WAIT, "at once when it is free");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_turn_keeps_stays_reserved() {
        let budget = MemoryBudget::new(100, false);
        let owner = Owner::everybody();
        let mut turn = held(&budget, &owner, 80).await.unwrap();
        turn.shrink_to(30);
        turn.shrink_to(40);
        assert_eq!((turn.bytes, budget.0.used.lock().total), (30, 30));
        assert!(held(&budget, &owner, 71).await.is_none());
        assert!(held(&budget, &owner, 70).await.is_some());
        drop(turn);
        assert_eq!(budget.0.used.lock().total, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_body_is_possible_alone() {
        for (shared, most) in [(true, 50), (false, 100)] {
            let budget = MemoryBudget::new(100, shared);
            let large = held(&budget, &Owner::everybody(), 1000).await.unwrap();
            assert_eq!(large.bytes, most);
            assert_eq!(budget.0.used.lock().total, most);
        }
    }
}
