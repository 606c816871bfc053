//! The activity of each connection. When every connection is in use, the connections that have waited longest for a
//! request are closed, so that idle connections and slow heads keep no client out. Connections that do not read the
//! answer to a request without an API key are closed too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// All open connections of an address; clones share them.
#[derive(Debug, Clone)]
pub(super) struct Activities {
    began: Instant,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    connections: HashMap<u64, Arc<Activity>>,
    last_number: u64,
}

/// What one connection does.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// Nanoseconds after `began` at which the wait for a request began; 0 while one is answered.
    waits_since: AtomicU64,
    /// Nanoseconds after `began` at which a part of a response began to wait for the client; 0 while none waits.
    data_waits_since: AtomicU64,
    /// Whether the last response was to a request of no owner: one that was refused, or a probe.
    is_stranger: AtomicBool,
    close: Notify,
}

/// One open connection; counted until it is dropped.
#[derive(Debug)]
pub(super) struct ActivityGuard {
    all: Activities,
    number: u64,
    activity: Arc<Activity>,
}

/// A request that is being answered, to the end of its response.
#[derive(Debug)]
pub(super) struct RequestInProgress(Arc<Activity>);

impl Default for Activities {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            open: Arc::default(),
        }
    }
}

impl Activities {
    /// Adds a connection, which waits for its first request.
    pub(super) fn add(&self) -> ActivityGuard {
        let activity = Arc::new(Activity {
            began: self.began,
            waits_since: AtomicU64::new(0),
            data_waits_since: AtomicU64::new(0),
            is_stranger: AtomicBool::new(false),
            close: Notify::new(),
        });
        activity.wait_begins();
        let mut open = self.open.lock();
        open.last_number += 1;
        let number = open.last_number;
        open.connections.insert(number, activity.clone());
        ActivityGuard {
            all: self.clone(),
            number,
            activity,
        }
    }

    /// Asks the connections that have waited longest to close, at most `count`, and none that has waited for less than `least`:
    /// a new connection gets time to send a request and to read a refusal, however many others come meanwhile.
    pub(super) fn close_oldest(&self, count: usize, least: Duration) {
        let latest = nanoseconds(self.began.elapsed().saturating_sub(least));
        let mut waiting: Vec<(u64, Arc<Activity>)> = {
            let open = self.open.lock();
            let waiting = open.connections.values();
            waiting
                .filter_map(|it| Some((it.closable_since()?, it)))
                .filter(|(since, _)| *since <= latest)
                .map(|(since, it)| (since, it.clone()))
                .collect()
        };
        if count < waiting.len() {
            waiting.select_nth_unstable_by_key(count, |(since, _)| *since);
            waiting.truncate(count);
        }
        for (_, activity) in waiting {
            activity.close.notify_one();
        }
    }
}

impl Activity {
    pub(super) fn request_begins(self: &Arc<Self>) -> RequestInProgress {
        self.waits_since.store(0, Ordering::Relaxed);
        self.is_stranger.store(false, Ordering::Relaxed);
        RequestInProgress(self.clone())
    }

    /// Whether no request is being answered.
    pub(super) fn waits(&self) -> bool {
        self.waits_since.load(Ordering::Relaxed) != 0
    }

    /// Notes whether a part of a response waits for the client.
    pub(super) fn set_data_waits(&self, waits: bool) {
        let since = if waits { self.now() } else { 0 };
        self.data_waits_since.store(since, Ordering::Relaxed);
    }

    /// Resolves when the connection has to close. It waits for its peer then.
    pub(super) async fn closed(&self) {
        loop {
            self.close.notified().await;
            // A request may have arrived since.
            if self.closable_since().is_some() {
                return;
            }
        }
    }

    /// When the connection began to wait for its peer, if it may be closed for that.
    fn closable_since(&self) -> Option<u64> {
        match self.data_waits_since.load(Ordering::Relaxed) {
            0 => Some(self.waits_since.load(Ordering::Relaxed)).filter(|since| *since != 0),
            since => self.is_stranger.load(Ordering::Relaxed).then_some(since),
        }
    }

    fn wait_begins(&self) {
        self.waits_since.store(self.now(), Ordering::Relaxed);
    }

    /// The time as it is noted; never 0.
    fn now(&self) -> u64 {
        nanoseconds(self.began.elapsed()).max(1)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl ActivityGuard {
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.all.open.lock().connections.remove(&self.number);
    }
}

impl RequestInProgress {
    /// Notes that the request has no owner, and is answered.
    pub(super) fn answers_stranger(&self) {
        self.0.is_stranger.store(true, Ordering::Relaxed);
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.wait_begins();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_connections_that_wait_longest_are_closed_and_no_others() {
        let all = Activities::default();
        let connections = [(); 5].map(|()| all.add());
        let closed = || {
            let closed = connections.iter().map(|it| it.activity().closed());
            let closed = closed.enumerate();
            let closed = closed.filter_map(|(at, it)| it.now_or_never().map(|()| at));
            closed.collect::<Vec<_>>()
        };
        let answering = connections[0].activity().request_begins();
        connections[1].activity().set_data_waits(true);
        all.close_oldest(1, Duration::ZERO);
        assert_eq!(closed(), [2]);
        all.close_oldest(2, Duration::ZERO);
        assert_eq!(closed(), [2, 3], "2 has not ended yet");
        all.close_oldest(9, Duration::from_secs(60));
        assert!(closed().is_empty(), "none has waited for a minute");
        // What has answered a request has waited for the next one only since then.
        drop(answering);
        all.close_oldest(3, Duration::ZERO);
        assert_eq!(closed(), [2, 3, 4]);
        all.close_oldest(4, Duration::ZERO);
        assert_eq!(closed(), [0, 2, 3, 4]);
        // A request that comes in time keeps its connection.
        all.close_oldest(4, Duration::ZERO);
        let _answering = connections[2].activity().request_begins();
        assert_eq!(closed(), [0, 3, 4]);
        drop(connections);
        assert!(all.open.lock().connections.is_empty());
    }

    #[test]
    fn an_answer_that_is_not_read_keeps_its_connection_if_it_has_an_owner() {
        let all = Activities::default();
        let connections = [(); 3].map(|()| all.add());
        let closed = || {
            let closed = connections.iter().map(|it| it.activity().closed());
            let closed = closed.map(|it| it.now_or_never().is_some());
            closed.collect::<Vec<_>>()
        };
        let [read_by_owner, refused, pipelined] = connections.each_ref();
        for connection in &connections {
            connection.activity().set_data_waits(true);
        }
        drop(read_by_owner.activity().request_begins());
        refused.activity().request_begins().answers_stranger();
        pipelined.activity().request_begins().answers_stranger();
        // A later request, whose owner is not known yet.
        let _in_progress = pipelined.activity().request_begins();
        all.close_oldest(3, Duration::from_secs(60));
        assert_eq!(closed(), [false; 3], "none has waited for a minute");
        all.close_oldest(3, Duration::ZERO);
        assert_eq!(closed(), [false, true, false]);
        // What was read after all.
        all.close_oldest(3, Duration::ZERO);
        let _in_progress = refused.activity().request_begins();
        refused.activity().set_data_waits(false);
        assert_eq!(closed(), [false; 3]);
    }
}
