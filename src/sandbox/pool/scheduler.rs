//! Decides which call gets the next interpreter: permits, spares and the queue of calls.
//!
//! Capacity is shared fairly among owners. What becomes free goes to the waiting call whose owner has the fewest
//! interpreters, and among those to the oldest call. The queue is bounded. If it is full, a new call displaces the
//! newest call of the owner with the highest load (interpreters plus waiting calls), provided the new call's owner has
//! a lower load. The calls of one owner stay in order.
//!
//! Does not know what an interpreter is.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ids::Owner;

/// Permits, spares and the queue. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Scheduler<W>(Arc<Mutex<State<W>>>);

/// The right to run one interpreter. When it is dropped, the next waiting call gets it.
#[derive(Debug)]
pub(crate) struct Permit<W> {
    scheduler: Scheduler<W>,
    /// `None` while no owner is assigned.
    owner: Option<Owner>,
}

/// An interpreter and its permit.
#[derive(Debug)]
pub(crate) struct Permitted<W> {
    pub(crate) worker: W,
    pub(super) permit: Permit<W>,
}

/// What a call receives.
#[derive(Debug)]
pub(super) enum Grant<W> {
    /// A permit to start an interpreter.
    Permit(Permit<W>),
    /// A running spare.
    Spare(Permitted<W>),
}

/// A call in the queue, or its grant. Dropping it leaves the queue or returns the grant.
#[derive(Debug)]
pub(super) struct Ticket<W> {
    scheduler: Scheduler<W>,
    number: u64,
    grant: oneshot::Receiver<Grant<W>>,
}

/// Counts a spare that is being started.
#[derive(Debug)]
pub(super) struct StartingSpare<W> {
    scheduler: Scheduler<W>,
}

#[derive(Debug)]
struct State<W> {
    permits: usize,
    /// Permits that are not in use.
    free: usize,
    max_waiting: usize,
    spares: VecDeque<Permitted<W>>,
    /// Spares that are being started.
    starting: usize,
    /// Number of interpreters by owner; no zero entries.
    by_owner: HashMap<Owner, usize>,
    waiting: VecDeque<Waiting<W>>,
    last_number: u64,
    closed: bool,
}

#[derive(Debug)]
struct Waiting<W> {
    number: u64,
    owner: Owner,
    give: oneshot::Sender<Grant<W>>,
}

impl<W> Clone for Scheduler<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W> Scheduler<W> {
    pub(super) fn new(permits: usize, max_waiting: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            permits,
            free: permits,
            max_waiting,
            spares: VecDeque::new(),
            starting: 0,
            by_owner: HashMap::new(),
            waiting: VecDeque::new(),
            last_number: 0,
            closed: false,
        })))
    }

    /// Queues a call of this owner; `None` if the queue is full or closed.
    pub(super) fn enqueue(&self, owner: &Owner) -> Option<Ticket<W>> {
        let (give, given) = oneshot::channel();
        let (number, displaced) = {
            let mut state = self.0.lock();
            if state.closed {
                return None;
            }
            let at_once = state.free > 0 || !state.spares.is_empty();
            let displaced = match at_once || state.waiting.len() < state.max_waiting {
                true => None,
                false => Some(state.displace(owner)?),
            };
            state.last_number += 1;
            let number = state.last_number;
            state.waiting.push_back(Waiting {
                number,
                owner: owner.clone(),
                give,
            });
            (number, displaced)
        };
        // Dropping its sender wakes the displaced call, which then fails.
        drop(displaced);
        self.grant_waiting();
        Some(Ticket {
            scheduler: self.clone(),
            number,
            grant: given,
        })
    }

    /// A permit, if one is free and no call waits for it.
    pub(super) fn try_permit(&self) -> Option<Permit<W>> {
        let mut state = self.0.lock();
        if state.closed || state.free == 0 {
            return None;
        }
        state.free -= 1;
        Some(Permit {
            scheduler: self.clone(),
            owner: None,
        })
    }

    /// A permit for one more spare, unless `wanted` spares exist or are being started.
    pub(super) fn permit_for_spare(&self, wanted: usize) -> Option<(StartingSpare<W>, Permit<W>)> {
        {
            let mut state = self.0.lock();
            if state.spares.len() + state.starting >= wanted {
                return None;
            }
            state.starting += 1;
        }
        let starting = StartingSpare {
            scheduler: self.clone(),
        };
        let permit = self.try_permit()?;
        Some((starting, permit))
    }

    /// Hands over an interpreter without an owner: to the next call, or as a spare. Returns it if the scheduler is
    /// closed.
    pub(super) fn add_spare(&self, mut permitted: Permitted<W>) -> Option<Permitted<W>> {
        {
            let mut state = self.0.lock();
            state.assign(&mut permitted.permit, None);
            if state.closed {
                return Some(permitted);
            }
            state.spares.push_back(permitted);
        }
        self.grant_waiting();
        None
    }

    /// Removes the spares that match.
    pub(super) fn take_spares(&self, retires: impl Fn(&W) -> bool) -> Vec<Permitted<W>> {
        let mut state = self.0.lock();
        let (old, spares): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut state.spares)
            .into_iter()
            .partition(|spare| retires(&spare.worker));
        state.spares = spares;
        old.into()
    }

    /// Removes all spares, rejects all waiting calls, and grants nothing any more.
    pub(super) fn close(&self) -> Vec<Permitted<W>> {
        let (spares, waiting) = {
            let mut state = self.0.lock();
            state.closed = true;
            (
                std::mem::take(&mut state.spares),
                std::mem::take(&mut state.waiting),
            )
        };
        drop(waiting);
        spares.into()
    }

    /// Interpreters, including those that are being started.
    pub(super) fn workers(&self) -> usize {
        let state = self.0.lock();
        state.permits - state.free
    }

    pub(super) fn spares(&self) -> usize {
        self.0.lock().spares.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Number of interpreters of an owner.
    pub(super) fn workers_of(&self, owner: &Owner) -> usize {
        self.0.lock().workers_of(owner)
    }

    /// Whether a call of an owner with fewer interpreters is waiting.
    pub(super) fn should_yield(&self, owner: &Owner) -> bool {
        let state = self.0.lock();
        let mine = state.workers_of(owner);
        let mut waiting = state.waiting.iter();
        waiting.any(|waiting| state.workers_of(&waiting.owner) < mine)
    }

    /// Grants free permits and spares to waiting calls.
    fn grant_waiting(&self) {
        loop {
            // A grant whose receiver has gone is returned outside the lock, because returning it takes the lock again.
            let unwanted = {
                let mut state = self.0.lock();
                let Some((next, given)) = state.next(self) else {
                    return;
                };
                next.give.send(given).err()
            };
            if let Some(given) = unwanted {
                self.reclaim(given);
            }
        }
    }

    fn reclaim(&self, given: Grant<W>) {
        match given {
            Grant::Permit(permit) => drop(permit),
            // If the scheduler is closed, dropping the interpreter ends it.
            Grant::Spare(permitted) => drop(self.add_spare(permitted)),
        }
    }
}

impl<W> State<W> {
    fn workers_of(&self, owner: &Owner) -> usize {
        self.by_owner.get(owner).copied().unwrap_or(0)
    }

    /// Removes the next call from the queue, together with its grant.
    fn next(&mut self, scheduler: &Scheduler<W>) -> Option<(Waiting<W>, Grant<W>)> {
        if self.free == 0 && self.spares.is_empty() {
            return None;
        }
        let places = self.waiting.iter().enumerate();
        // `min_by_key` returns the first of equals: the oldest call.
        let (place, _) = places.min_by_key(|(_, waiting)| self.workers_of(&waiting.owner))?;
        let next = self.waiting.remove(place)?;
        let owner = Some(&next.owner);
        let given = match self.spares.pop_front() {
            Some(mut permitted) => {
                self.assign(&mut permitted.permit, owner);
                Grant::Spare(permitted)
            }
            None => {
                self.free -= 1;
                let mut permit = Permit {
                    scheduler: scheduler.clone(),
                    owner: None,
                };
                self.assign(&mut permit, owner);
                Grant::Permit(permit)
            }
        };
        Some((next, given))
    }

    fn assign(&mut self, permit: &mut Permit<W>, owner: Option<&Owner>) {
        let before = std::mem::replace(&mut permit.owner, owner.cloned());
        if let Some(owner) = owner {
            *self.by_owner.entry(owner.clone()).or_default() += 1;
        }
        if let Some(before) = before {
            self.unassign(&before);
        }
    }

    fn unassign(&mut self, owner: &Owner) {
        if let Some(count) = self.by_owner.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.by_owner.remove(owner);
            }
        }
    }

    /// Removes a call from a full queue in favour of this owner: the newest call of the owner with the highest load.
    fn displace(&mut self, owner: &Owner) -> Option<Waiting<W>> {
        let mut asked: HashMap<&Owner, usize> = HashMap::new();
        for waiting in &self.waiting {
            *asked.entry(&waiting.owner).or_default() += 1;
        }
        let load = |owner: &Owner| self.workers_of(owner) + asked.get(owner).copied().unwrap_or(0);
        let places = self.waiting.iter().enumerate();
        // `max_by_key` returns the last of equals: the newest call.
        let (place, most) = places
            .map(|(place, waiting)| (place, load(&waiting.owner)))
            .max_by_key(|(_, load)| *load)?;
        // With a smaller difference the two owners would displace each other's calls for ever.
        if most <= load(owner) + 1 {
            return None;
        }
        self.waiting.remove(place)
    }
}

impl<W> Ticket<W> {
    /// Waits for the grant; `None` if the call was rejected.
    ///
    /// # Cancel safety
    /// If the future is dropped, a grant that has arrived is returned to the scheduler.
    pub(super) async fn granted(mut self) -> Option<Grant<W>> {
        (&mut self.grant).await.ok()
    }
}

impl<W> Drop for Ticket<W> {
    fn drop(&mut self) {
        self.scheduler
            .0
            .lock()
            .waiting
            .retain(|waiting| waiting.number != self.number);
        self.grant.close();
        if let Ok(given) = self.grant.try_recv() {
            self.scheduler.reclaim(given);
        }
    }
}

impl<W> Drop for Permit<W> {
    fn drop(&mut self) {
        {
            let mut state = self.scheduler.0.lock();
            state.free += 1;
            if let Some(owner) = self.owner.take() {
                state.unassign(&owner);
            }
        }
        self.scheduler.grant_waiting();
    }
}

impl<W> Drop for StartingSpare<W> {
    fn drop(&mut self) {
        self.scheduler.0.lock().starting -= 1;
    }
}

#[cfg(test)]
mod tests;
