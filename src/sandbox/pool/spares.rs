//! Interpreters that are ready before anybody asks. One is used by one workspace only.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Counted;

/// A spare of this age is replaced.
const MAX_AGE: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Spares(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    ready: VecDeque<Counted>,
    /// On their way.
    expected: usize,
    closed: bool,
}

/// A spare that is being started; dropped, whether or not that works.
#[derive(Debug)]
pub(super) struct Expected(Arc<Shared>);

impl Spares {
    /// The spare that has waited longest.
    pub(super) fn take(&self) -> Option<Counted> {
        self.0.inner.lock().ready.pop_front()
    }

    /// Waits until a spare may be there.
    pub(super) async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    /// Announces one more, unless there are enough.
    pub(super) fn expect(&self, wanted: usize) -> Option<Expected> {
        let mut inner = self.0.inner.lock();
        let short = !inner.closed && inner.ready.len() + inner.expected < wanted;
        short.then(|| {
            inner.expected += 1;
            Expected(self.0.clone())
        })
    }

    pub(super) fn count(&self) -> usize {
        self.0.inner.lock().ready.len()
    }

    /// Takes out those that are too old.
    pub(super) fn retire(&self) -> Vec<Counted> {
        let mut inner = self.0.inner.lock();
        let (old, ready): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut inner.ready)
            .into_iter()
            .partition(|spare| spare.worker.started.elapsed() > MAX_AGE);
        inner.ready = ready;
        old.into()
    }

    /// Takes out all of them and takes no more.
    pub(super) fn close(&self) -> Vec<Counted> {
        let mut inner = self.0.inner.lock();
        inner.closed = true;
        std::mem::take(&mut inner.ready).into()
    }
}

impl Expected {
    /// It is ready; given back where none are taken any more.
    pub(super) fn fulfil(self, spare: Counted) -> Option<Counted> {
        let mut inner = self.0.inner.lock();
        if inner.closed {
            return Some(spare);
        }
        inner.ready.push_back(spare);
        drop(inner);
        self.0.arrived.notify_one();
        None
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.0.inner.lock().expected -= 1;
    }
}
