//! Permits that owners share, and that calls wait for.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ids::Owner;

/// A number of permits that owners share. Cheap to clone.
///
/// A permit that becomes free goes to the waiting call whose owner has the fewest permits; among these to the owner that
/// was served longest ago; and of one owner to the oldest call.
#[derive(Debug, Clone)]
pub struct FairSemaphore(Arc<Mutex<State>>);

/// One permit, returned when dropped.
#[derive(Debug)]
pub struct FairPermit {
    semaphore: FairSemaphore,
    owner: Owner,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Whether permits are kept for other owners.
    reserves: bool,
    /// The owners that have permits or wait for some.
    owners: HashMap<Owner, Share>,
    waiting: Vec<Waiting>,
    /// Counts calls and permits.
    last_number: u64,
}

#[derive(Debug, Default)]
struct Share {
    held: usize,
    waiting: usize,
    /// The number of the last permit; 0 before the first.
    last_permit: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    owner: Owner,
    give: oneshot::Sender<FairPermit>,
}

/// A call that waits. Dropping it leaves the queue.
#[derive(Debug)]
struct Ticket<'a> {
    semaphore: &'a FairSemaphore,
    number: u64,
    permit: oneshot::Receiver<FairPermit>,
}

impl FairSemaphore {
    /// Permits that one owner may have all of.
    pub fn new(permits: usize) -> Self {
        Self::with(permits, false)
    }

    /// Permits of which some are always kept for other owners: an owner may have as many as would then remain free, and
    /// one more. One owner alone gets half of the permits, each of two a third, and so on.
    pub fn with_reserve(permits: usize) -> Self {
        Self::with(permits, true)
    }

    /// Sets whether some permits are kept for other owners.
    pub fn share(&self, shared: bool) {
        self.0.lock().reserves = shared;
    }

    fn with(permits: usize, reserves: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: permits.max(1),
            reserves,
            owners: HashMap::new(),
            waiting: Vec::new(),
            last_number: 0,
        })))
    }

    /// A permit, if the owner may have one at once.
    pub fn try_acquire(&self, owner: &Owner) -> Option<FairPermit> {
        let taken = self.0.lock().take(owner);
        taken.then(|| self.permit(owner))
    }

    /// Waits for a permit.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub async fn acquire(&self, owner: &Owner) -> FairPermit {
        loop {
            let mut ticket = match self.queue(owner) {
                Ok(permit) => return permit,
                Err(ticket) => ticket,
            };
            // A ticket stays in the queue until it is dropped, so its permit comes.
            if let Ok(permit) = (&mut ticket.permit).await {
                return permit;
            }
        }
    }

    fn queue(&self, owner: &Owner) -> Result<FairPermit, Ticket<'_>> {
        let mut state = self.0.lock();
        if state.take(owner) {
            return Ok(self.permit(owner));
        }
        let (give, permit) = oneshot::channel();
        let number = state.next_number();
        state.owners.entry(owner.clone()).or_default().waiting += 1;
        state.waiting.push(Waiting {
            number,
            owner: owner.clone(),
            give,
        });
        Err(Ticket {
            semaphore: self,
            number,
            permit,
        })
    }

    /// Whether all permits are free and no call waits.
    pub fn is_idle(&self) -> bool {
        self.0.lock().owners.is_empty()
    }

    fn permit(&self, owner: &Owner) -> FairPermit {
        FairPermit {
            semaphore: self.clone(),
            owner: owner.clone(),
        }
    }

    fn grant_waiting(&self) {
        loop {
            let next = self.0.lock().next();
            let Some(waiting) = next else {
                return;
            };
            // Outside the lock: a permit whose receiver has gone is dropped here, which takes the lock again.
            drop(waiting.give.send(self.permit(&waiting.owner)));
        }
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn held(&self, owner: &Owner) -> usize {
        self.owners.get(owner).map_or(0, |share| share.held)
    }

    fn may_take(&self, owner: &Owner) -> bool {
        match self.reserves {
            true => self.held(owner) < self.free,
            false => self.free > 0,
        }
    }

    /// Takes a permit for an owner, if it may have one. Those that wait may not have one then.
    fn take(&mut self, owner: &Owner) -> bool {
        let may_take = self.may_take(owner);
        if may_take {
            self.free -= 1;
            let number = self.next_number();
            let share = self.owners.entry(owner.clone()).or_default();
            share.held += 1;
            share.last_permit = number;
        }
        may_take
    }

    /// Takes the next call from the queue, and its permit.
    fn next(&mut self) -> Option<Waiting> {
        let served = |waiting: &Waiting| {
            let share = self.owners.get(&waiting.owner);
            share.map_or((0, 0), |share| (share.held, share.last_permit))
        };
        let (place, _) = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, waiting)| self.may_take(&waiting.owner))
            .min_by_key(|(_, waiting)| (served(waiting), waiting.number))?;
        let waiting = self.waiting.remove(place);
        self.take(&waiting.owner);
        self.leave(&waiting.owner, |share| share.waiting -= 1);
        Some(waiting)
    }

    /// Changes the share of an owner, which is forgotten when it is empty.
    fn leave(&mut self, owner: &Owner, change: impl FnOnce(&mut Share)) {
        if let Some(share) = self.owners.get_mut(owner) {
            change(share);
            if share.held == 0 && share.waiting == 0 {
                self.owners.remove(owner);
            }
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        {
            let mut state = self.semaphore.0.lock();
            state.free += 1;
            state.leave(&self.owner, |share| share.held -= 1);
        }
        self.semaphore.grant_waiting();
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.semaphore.0.lock();
        let place = state.waiting.iter().position(|it| it.number == self.number);
        if let Some(place) = place {
            let waiting = state.waiting.remove(place);
            state.leave(&waiting.owner, |share| share.waiting -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn owners() -> [Owner; 3] {
        ["a", "b", "c"].map(Owner::key)
    }

    #[tokio::test]
    async fn a_free_permit_goes_to_the_owner_with_the_fewest() {
        let [greedy, other, _] = owners();
        let semaphore = FairSemaphore::new(2);
        let mut held = vec![
            semaphore.try_acquire(&greedy).unwrap(),
            semaphore.try_acquire(&greedy).unwrap(),
        ];
        assert!(semaphore.try_acquire(&other).is_none());
        let mut flood: Vec<_> = (0..100)
            .map(|_| Box::pin(semaphore.acquire(&greedy)))
            .collect();
        for call in &mut flood {
            assert!(call.now_or_never().is_none());
        }
        let mut late = Box::pin(semaphore.acquire(&other));
        assert!(late.as_mut().now_or_never().is_none());
        held.pop();
        let late = late.as_mut().now_or_never();
        assert!(
            late.is_some(),
            "the last to come, and the first to be served"
        );
        drop((late, held));
        let served = flood.iter_mut().filter_map(FutureExt::now_or_never);
        assert_eq!(served.map(drop).count(), 100);
        drop(flood);
        assert!(semaphore.is_idle());
    }

    #[tokio::test]
    async fn owners_take_turns_and_the_calls_of_one_stay_in_order() {
        let [first, second, third] = owners();
        let semaphore = FairSemaphore::new(1);
        let mut held = semaphore.try_acquire(&first);
        let wanted = [&first, &first, &first, &second, &second, &third];
        let mut waiting: Vec<_> = wanted
            .iter()
            .map(|owner| Some(Box::pin(semaphore.acquire(owner))))
            .collect();
        for call in waiting.iter_mut().flatten() {
            assert!(call.now_or_never().is_none());
        }
        let mut order = Vec::new();
        while held.is_some() {
            drop(held.take());
            for (number, place) in waiting.iter_mut().enumerate() {
                let granted = place.as_mut().and_then(FutureExt::now_or_never);
                if let Some(permit) = granted {
                    (held, *place) = (Some(permit), None);
                    order.push(number);
                }
            }
        }
        assert_eq!(order, [3, 5, 0, 4, 1, 2]);
    }

    #[tokio::test]
    async fn a_reserve_is_kept_for_owners_that_come_later() {
        let [greedy, second, third] = owners();
        let semaphore = FairSemaphore::with_reserve(10);
        let take = |owner: &Owner| {
            let mut taken = Vec::new();
            taken.extend(std::iter::from_fn(|| semaphore.try_acquire(owner)));
            taken
        };
        let mut all = take(&greedy);
        assert_eq!(all.len(), 5);
        let more = take(&second);
        assert_eq!(more.len(), 3);
        assert_eq!(take(&third).len(), 1);
        // What it returns it does not get again while others have some.
        all.truncate(4);
        let mut waiting = Box::pin(semaphore.acquire(&greedy));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(more);
        assert!(waiting.as_mut().now_or_never().is_some());
        assert_eq!(FairSemaphore::with_reserve(1).0.lock().free, 1);
        assert!(FairSemaphore::with_reserve(1).try_acquire(&third).is_some());
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_leaves_the_queue_and_loses_no_permit() {
        let [first, second, _] = owners();
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.try_acquire(&first);
        let mut given_up = Box::pin(semaphore.acquire(&second));
        let mut granted_and_given_up = Box::pin(semaphore.acquire(&second));
        assert!(given_up.as_mut().now_or_never().is_none());
        assert!(granted_and_given_up.as_mut().now_or_never().is_none());
        drop(given_up);
        drop(held);
        // The permit is on its way.
        assert!(semaphore.try_acquire(&first).is_none());
        drop(granted_and_given_up);
        assert!(semaphore.try_acquire(&first).is_some());
        assert!(semaphore.is_idle());
    }
}
