//! News of a server that its list of tools has changed, and how far the list was read since.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// How long a call waits for the list that it has changed. Lists are read at most once a second. After it the turn goes
/// on with the list that there is.
const LIST_WAIT: Duration = Duration::from_secs(3);

/// The news of a connection.
#[derive(Debug, Default)]
pub(super) struct ListNews {
    /// How many there were.
    count: AtomicU64,
    unread: Notify,
    /// The count at which the list was last read.
    read: watch::Sender<u64>,
}

impl ListNews {
    /// The list has changed.
    pub(super) fn announce(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.unread.notify_one();
    }

    /// How many news there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Resolves when there are news since the last call.
    pub(super) async fn announced(&self) {
        self.unread.notified().await;
    }

    /// The list was read, and is offered, as it was after so many news.
    pub(super) fn set_read(&self, count: u64) {
        self.read.send_replace(count);
    }

    /// Waits until the list is offered as it is after so many news, but not for long.
    pub(super) async fn offered(&self, count: u64) {
        let mut read = self.read.subscribe();
        let _late = timeout(LIST_WAIT, read.wait_for(|read| *read >= count)).await;
    }
}
