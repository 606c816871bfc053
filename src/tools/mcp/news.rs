//! Change notifications of a server's list of tools, and up to which of them the list was read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// How long a call waits for the list that it has changed. Lists are read at most once a second. After it the turn goes
/// on with the list that there is.
const LIST_WAIT: Duration = Duration::from_secs(3);

/// The change notifications of a connection.
#[derive(Debug, Default)]
pub(super) struct ListNews {
    /// The number of notifications.
    count: AtomicU64,
    unread: Notify,
    /// The count at which the list was last read.
    read: watch::Sender<u64>,
}

impl ListNews {
    /// The list has changed.
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.unread.notify_one();
    }

    /// The number of notifications so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Resolves when there was a notification since the last call.
    pub(super) async fn notified(&self) {
        self.unread.notified().await;
    }

    /// Records that the offered list reflects this number of notifications.
    pub(super) fn set_read(&self, count: u64) {
        self.read.send_replace(count);
    }

    /// Waits, within a bound, until the offered list reflects the given number of change notifications.
    pub(super) async fn offered(&self, count: u64) {
        let mut read = self.read.subscribe();
        let _late = timeout(LIST_WAIT, read.wait_for(|read| *read >= count)).await;
    }
}
