//! Who gets the next interpreter: rooms for interpreters, spares, and the calls that wait.
//!
//! Fair among owners. What becomes free goes to the waiting call whose owner has the fewest interpreters, and of those to
//! the one that has waited longest. The queue is bounded; where it is full, a call of an owner who has and asks for less
//! takes the place of the newest call of the one who has and asks for most. An owner's own calls stay in their order.
//!
//! Knows nothing of what an interpreter is.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ids::Owner;

/// The rooms and the queue; cheap to clone.
#[derive(Debug)]
pub(in crate::sandbox) struct Turns<W>(Arc<Mutex<State<W>>>);

/// Room for one interpreter. Whoever is next gets it when this is dropped.
#[derive(Debug)]
pub(in crate::sandbox) struct Room<W> {
    turns: Turns<W>,
    /// None where it is nobody's yet.
    owner: Option<Owner>,
}

/// An interpreter and the room that it takes.
#[derive(Debug)]
pub(in crate::sandbox) struct Counted<W> {
    pub(in crate::sandbox) worker: W,
    pub(super) room: Room<W>,
}

/// What a call is given.
#[derive(Debug)]
pub(super) enum Given<W> {
    /// Room to start an interpreter.
    Room(Room<W>),
    /// An interpreter that is ready.
    Ready(Counted<W>),
}

/// A call's place in the queue, or what it was given; dropping it gives either back.
#[derive(Debug)]
pub(super) struct Turn<W> {
    turns: Turns<W>,
    ticket: u64,
    given: oneshot::Receiver<Given<W>>,
}

/// Room for a spare that is on its way.
#[derive(Debug)]
pub(super) struct Expected<W> {
    turns: Turns<W>,
}

#[derive(Debug)]
struct State<W> {
    rooms: usize,
    /// Rooms that nobody has.
    free: usize,
    max_waiting: usize,
    ready: VecDeque<Counted<W>>,
    /// Spares on their way.
    expected: usize,
    /// Interpreters by owner, of those who have any.
    held: HashMap<Owner, usize>,
    waiting: VecDeque<Waiting<W>>,
    last_ticket: u64,
    closed: bool,
}

#[derive(Debug)]
struct Waiting<W> {
    ticket: u64,
    owner: Owner,
    give: oneshot::Sender<Given<W>>,
}

impl<W> Clone for Turns<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W> Turns<W> {
    pub(super) fn new(rooms: usize, max_waiting: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            rooms,
            free: rooms,
            max_waiting,
            ready: VecDeque::new(),
            expected: 0,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            last_ticket: 0,
            closed: false,
        })))
    }

    /// Asks for an interpreter; none where too many wait already.
    pub(super) fn ask(&self, owner: &Owner) -> Option<Turn<W>> {
        let (give, given) = oneshot::channel();
        let (ticket, pushed_out) = {
            let mut state = self.0.lock();
            if state.closed {
                return None;
            }
            let at_once = state.free > 0 || !state.ready.is_empty();
            let pushed_out = match at_once || state.waiting.len() < state.max_waiting {
                true => None,
                false => Some(state.push_out(owner)?),
            };
            state.last_ticket += 1;
            let ticket = state.last_ticket;
            state.waiting.push_back(Waiting {
                ticket,
                owner: owner.clone(),
                give,
            });
            (ticket, pushed_out)
        };
        // Its call is told by this.
        drop(pushed_out);
        self.serve();
        Some(Turn {
            turns: self.clone(),
            ticket,
            given,
        })
    }

    /// Room that is free at this moment and that nobody waits for.
    pub(super) fn spare_room(&self) -> Option<Room<W>> {
        let mut state = self.0.lock();
        if state.closed || state.free == 0 {
            return None;
        }
        state.free -= 1;
        Some(Room {
            turns: self.clone(),
            owner: None,
        })
    }

    /// Room for one more spare, unless there are enough.
    pub(super) fn expect(&self, wanted: usize) -> Option<(Expected<W>, Room<W>)> {
        {
            let mut state = self.0.lock();
            if state.ready.len() + state.expected >= wanted {
                return None;
            }
            state.expected += 1;
        }
        let expected = Expected {
            turns: self.clone(),
        };
        let room = self.spare_room()?;
        Some((expected, room))
    }

    /// An interpreter that nobody has: for the next call, or a spare; given back where none are taken any more.
    pub(super) fn offer(&self, mut counted: Counted<W>) -> Option<Counted<W>> {
        {
            let mut state = self.0.lock();
            state.belongs_to(&mut counted.room, None);
            if state.closed {
                return Some(counted);
            }
            state.ready.push_back(counted);
        }
        self.serve();
        None
    }

    /// Takes out the spares that are like this.
    pub(super) fn retire(&self, retires: impl Fn(&W) -> bool) -> Vec<Counted<W>> {
        let mut state = self.0.lock();
        let (old, ready): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut state.ready)
            .into_iter()
            .partition(|spare| retires(&spare.worker));
        state.ready = ready;
        old.into()
    }

    /// Takes out all spares, sends away those who wait, and serves nobody any more.
    pub(super) fn close(&self) -> Vec<Counted<W>> {
        let (spares, waiting) = {
            let mut state = self.0.lock();
            state.closed = true;
            (
                std::mem::take(&mut state.ready),
                std::mem::take(&mut state.waiting),
            )
        };
        drop(waiting);
        spares.into()
    }

    /// Interpreters, those that are being started included.
    pub(super) fn workers(&self) -> usize {
        let state = self.0.lock();
        state.rooms - state.free
    }

    pub(super) fn spares(&self) -> usize {
        self.0.lock().ready.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// How many interpreters an owner has.
    pub(super) fn held_by(&self, owner: &Owner) -> usize {
        self.0.lock().held_by(owner)
    }

    /// Whether somebody waits who has fewer interpreters than this owner.
    pub(super) fn is_outranked(&self, owner: &Owner) -> bool {
        let state = self.0.lock();
        let mine = state.held_by(owner);
        let mut waiting = state.waiting.iter();
        waiting.any(|waiting| state.held_by(&waiting.owner) < mine)
    }

    /// Gives what is free to those who wait.
    fn serve(&self) {
        loop {
            // What cannot be given any more is given back outside the lock, as that takes it again.
            let unwanted = {
                let mut state = self.0.lock();
                let Some((next, given)) = state.next(self) else {
                    return;
                };
                next.give.send(given).err()
            };
            if let Some(given) = unwanted {
                self.give_back(given);
            }
        }
    }

    fn give_back(&self, given: Given<W>) {
        match given {
            Given::Room(room) => drop(room),
            // Where none are taken any more, dropping it ends it.
            Given::Ready(counted) => drop(self.offer(counted)),
        }
    }
}

impl<W> State<W> {
    fn held_by(&self, owner: &Owner) -> usize {
        self.held.get(owner).copied().unwrap_or(0)
    }

    /// Who is next, and what they get.
    fn next(&mut self, turns: &Turns<W>) -> Option<(Waiting<W>, Given<W>)> {
        if self.free == 0 && self.ready.is_empty() {
            return None;
        }
        let places = self.waiting.iter().enumerate();
        // Of equals the first one is taken: the one that has waited longest.
        let (place, _) = places.min_by_key(|(_, waiting)| self.held_by(&waiting.owner))?;
        let next = self.waiting.remove(place)?;
        let owner = Some(&next.owner);
        let given = match self.ready.pop_front() {
            Some(mut counted) => {
                self.belongs_to(&mut counted.room, owner);
                Given::Ready(counted)
            }
            None => {
                self.free -= 1;
                let mut room = Room {
                    turns: turns.clone(),
                    owner: None,
                };
                self.belongs_to(&mut room, owner);
                Given::Room(room)
            }
        };
        Some((next, given))
    }

    fn belongs_to(&mut self, room: &mut Room<W>, owner: Option<&Owner>) {
        let before = std::mem::replace(&mut room.owner, owner.cloned());
        if let Some(owner) = owner {
            *self.held.entry(owner.clone()).or_default() += 1;
        }
        if let Some(before) = before {
            self.leaves(&before);
        }
    }

    fn leaves(&mut self, owner: &Owner) {
        if let Some(held) = self.held.get_mut(owner) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(owner);
            }
        }
    }

    /// Makes a place in a full queue for a call of this owner, at the cost of an owner who has and asks for more.
    fn push_out(&mut self, owner: &Owner) -> Option<Waiting<W>> {
        let mut asked: HashMap<&Owner, usize> = HashMap::new();
        for waiting in &self.waiting {
            *asked.entry(&waiting.owner).or_default() += 1;
        }
        let load = |owner: &Owner| self.held_by(owner) + asked.get(owner).copied().unwrap_or(0);
        let places = self.waiting.iter().enumerate();
        // Of equals the last one is taken: the newest.
        let (place, most) = places
            .map(|(place, waiting)| (place, load(&waiting.owner)))
            .max_by_key(|(_, load)| *load)?;
        // Otherwise the two would only change sides, and could again.
        if most <= load(owner) + 1 {
            return None;
        }
        self.waiting.remove(place)
    }
}

impl<W> Turn<W> {
    /// Waits until it is this call's turn; nothing where the call was sent away.
    ///
    /// # Cancel safety
    /// What was given meanwhile is given back.
    pub(super) async fn given(mut self) -> Option<Given<W>> {
        (&mut self.given).await.ok()
    }
}

impl<W> Drop for Turn<W> {
    fn drop(&mut self) {
        self.turns
            .0
            .lock()
            .waiting
            .retain(|waiting| waiting.ticket != self.ticket);
        self.given.close();
        if let Ok(given) = self.given.try_recv() {
            self.turns.give_back(given);
        }
    }
}

impl<W> Drop for Room<W> {
    fn drop(&mut self) {
        {
            let mut state = self.turns.0.lock();
            state.free += 1;
            if let Some(owner) = self.owner.take() {
                state.leaves(&owner);
            }
        }
        self.turns.serve();
    }
}

impl<W> Drop for Expected<W> {
    fn drop(&mut self) {
        self.turns.0.lock().expected -= 1;
    }
}

#[cfg(test)]
mod tests;
