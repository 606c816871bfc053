//! Spares: interpreters that are started before a call needs them.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The spares, and how many there may be.
#[derive(Debug)]
pub(super) struct Spares<W> {
    /// One permit for each spare that is missing: neither ready nor being started.
    missing: Arc<Semaphore>,
    ready: Mutex<VecDeque<(W, OwnedSemaphorePermit)>>,
    added: Notify,
}

impl<W> Spares<W> {
    pub(super) fn new(wanted: usize) -> Self {
        Self {
            missing: Arc::new(Semaphore::new(wanted)),
            ready: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// Reserves a slot for a spare; `None` if enough exist or the pool is closing.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.missing.clone().try_acquire_owned().ok()
    }

    /// Adds a spare. Returns it if the pool is closing.
    pub(super) fn add(&self, spare: W, place: OwnedSemaphorePermit) -> Option<W> {
        {
            let mut ready = self.ready.lock();
            if self.missing.is_closed() {
                return Some(spare);
            }
            ready.push_back((spare, place));
        }
        self.added.notify_one();
        None
    }

    /// Waits for a spare.
    ///
    /// # Cancel safety
    /// Dropping the future takes none.
    pub(super) async fn take(&self) -> W {
        loop {
            let mut added = pin!(self.added.notified());
            added.as_mut().enable();
            let ready = self.ready.lock().pop_front();
            if let Some((spare, _place)) = ready {
                return spare;
            }
            added.await;
        }
    }

    /// Removes the spares that match.
    pub(super) fn remove(&self, is_old: impl Fn(&W) -> bool) -> Vec<W> {
        let mut ready = self.ready.lock();
        let (old, spares): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut *ready)
            .into_iter()
            .partition(|(spare, _)| is_old(spare));
        *ready = spares;
        old.into_iter().map(|(spare, _)| spare).collect()
    }

    /// Removes all spares, and accepts no further ones.
    pub(super) fn close(&self) -> Vec<W> {
        let ready = {
            let mut ready = self.ready.lock();
            self.missing.close();
            std::mem::take(&mut *ready)
        };
        ready.into_iter().map(|(spare, _)| spare).collect()
    }

    /// How many are ready.
    pub(super) fn ready(&self) -> usize {
        self.ready.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn there_are_as_many_spares_as_are_wanted() {
        let spares = Spares::new(1);
        let place = spares.place().unwrap();
        assert!(spares.place().is_none(), "one is being started");
        let mut first = Box::pin(spares.take());
        let mut second = Box::pin(spares.take());
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(spares.add(1, place), None);
        assert!(spares.place().is_none() && spares.ready() == 1);
        // A call that leaves takes none with it.
        drop(first);
        assert_eq!(second.as_mut().now_or_never(), Some(1));
        let place = spares.place().unwrap();
        assert_eq!(spares.add(2, place), None);
        assert!(spares.remove(|spare| *spare != 2).is_empty());
        assert_eq!(spares.remove(|spare| *spare == 2), [2]);
        let place = spares.place().unwrap();
        assert!(spares.close().is_empty());
        assert_eq!(spares.add(3, place), Some(3));
        assert!(spares.place().is_none());
    }
}
