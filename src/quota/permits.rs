//! Permits that owners share, and that calls wait for.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use protocol::ids::Owner;

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
    /// Whether permits are reserved for other owners.
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

    /// Permits with a reserve for other owners: an owner may have as many as then remain free, and one more. One owner
    /// alone gets half of the permits, each of two a third, and so on.
    pub fn with_reserve(permits: usize) -> Self {
        Self::with(permits, true)
    }

    /// Sets whether permits are reserved for other owners.
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

    /// A permit, if the owner may have one without waiting.
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
            if let Some(permit) = self.acquire_in_queue(owner, usize::MAX).await {
                return permit;
            }
        }
    }

    /// Waits for a permit in a queue of at most `max_waiting` calls. In a full queue a call displaces the newest one of
    /// the owner that has most permits and waiting calls, if its own owner has fewer. `None` if the call finds no
    /// place, or is displaced.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub async fn acquire_in_queue(&self, owner: &Owner, max_waiting: usize) -> Option<FairPermit> {
        match self.queue(owner, max_waiting)? {
            Ok(permit) => Some(permit),
            Err(mut ticket) => (&mut ticket.permit).await.ok(),
        }
    }

    fn queue(&self, owner: &Owner, max_waiting: usize) -> Option<Result<FairPermit, Ticket<'_>>> {
        let mut state = self.0.lock();
        if state.take(owner) {
            return Some(Ok(self.permit(owner)));
        }
        if state.waiting.len() >= max_waiting {
            state.displace(owner)?;
        }
        let (give, permit) = oneshot::channel();
        let number = state.next_number();
        state.owners.entry(owner.clone()).or_default().waiting += 1;
        state.waiting.push(Waiting {
            number,
            owner: owner.clone(),
            give,
        });
        Some(Err(Ticket {
            semaphore: self,
            number,
            permit,
        }))
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// How many permits an owner has.
    pub fn held(&self, owner: &Owner) -> usize {
        self.0.lock().held(owner)
    }

    /// Whether a call of an owner with fewer permits waits.
    pub fn should_yield(&self, owner: &Owner) -> bool {
        let state = self.0.lock();
        let mine = state.held(owner);
        let mut waiting = state.waiting.iter();
        waiting.any(|waiting| state.held(&waiting.owner) < mine)
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
            // Outside the lock: a permit whose receiver was dropped is returned here, which takes the lock again.
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

    /// Removes a call from a full queue in favour of this owner, if there is one.
    fn displace(&mut self, owner: &Owner) -> Option<()> {
        let load = |owner: &Owner| {
            let share = self.owners.get(owner);
            share.map_or(0, |share| share.held + share.waiting)
        };
        let places = self.waiting.iter().enumerate();
        // `max_by_key` returns the last of equals: the newest call.
        let (place, most) = places
            .map(|(place, waiting)| (place, load(&waiting.owner)))
            .max_by_key(|(_, load)| *load)?;
        // With a smaller difference the two owners would displace each other's calls for ever.
        if most <= load(owner) + 1 {
            return None;
        }
        let displaced = self.waiting.remove(place);
        self.leave(&displaced.owner, |share| share.waiting -= 1);
        Some(())
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
mod tests;
