//! The limits per host: concurrent requests, and the interval between them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::acting;
use quota::{FairPermit, FairSemaphore};

/// Threshold of hosts from which on idle ones are removed.
const SWEEP_FROM: usize = 64;

/// The hosts with recent requests.
#[derive(Debug)]
pub(super) struct Hosts {
    per_host: usize,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    hosts: HashMap<String, Arc<Host>>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Host {
    permits: FairSemaphore,
    /// The time at which the next request may begin. The request that waits for it holds the lock: others queue behind it,
    /// and a request that is dropped leaves no gap.
    next: tokio::sync::Mutex<Instant>,
}

/// The permit for one request; returned when dropped.
#[derive(Debug)]
pub(super) struct HostPermit {
    _permit: FairPermit,
}

impl Hosts {
    /// Permits `per_host` concurrent requests to each host.
    pub(super) fn new(per_host: usize) -> Self {
        Self {
            per_host,
            known: Mutex::new(Known {
                hosts: HashMap::new(),
                sweep_at: SWEEP_FROM,
            }),
        }
    }

    /// Waits until a request to a host may begin. The next one may begin `interval` later. Owners take turns.
    ///
    /// # Cancel safety
    /// A dropped future takes no permit.
    pub(super) async fn enter(&self, host: &str, interval: Duration) -> HostPermit {
        let host = self.host(host);
        let permit = host.permits.acquire(&acting::owner()).await;
        if !interval.is_zero() {
            let mut next = host.next.lock().await;
            sleep_until(*next).await;
            *next = Instant::now() + interval;
        }
        HostPermit { _permit: permit }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let known = &mut *self.known.lock();
        if let Some(host) = known.hosts.get(name) {
            return Arc::clone(host);
        }
        if known.hosts.len() >= known.sweep_at {
            let now = Instant::now();
            known.hosts.retain(|_, host| !host.is_idle(now));
            known.sweep_at = SWEEP_FROM.max(known.hosts.len() * 2);
        }
        let host = Arc::new(Host {
            permits: FairSemaphore::new(self.per_host),
            next: tokio::sync::Mutex::new(Instant::now()),
        });
        known.hosts.insert(name.to_owned(), Arc::clone(&host));
        host
    }
}

impl Host {
    /// Whether no request runs or waits, and the interval is over.
    fn is_idle(self: &Arc<Self>, now: Instant) -> bool {
        Arc::strong_count(self) == 1
            && self.permits.is_idle()
            && self.next.try_lock().is_ok_and(|next| *next <= now)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::time::timeout;

    use super::*;
    use protocol::ids::Owner;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_to_a_host_are_limited() {
        let hosts = Hosts::new(2);
        let first = hosts.enter("a", Duration::ZERO).await;
        let _second = hosts.enter("a", Duration::ZERO).await;
        let third = timeout(SECOND, hosts.enter("a", Duration::ZERO)).await;
        assert!(third.is_err());
        let _elsewhere = hosts.enter("b", Duration::ZERO).await;
        drop(first);
        let third = timeout(SECOND, hosts.enter("a", Duration::ZERO)).await;
        assert!(third.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_begin_an_interval_apart_and_a_dropped_one_leaves_no_gap() {
        let hosts = Hosts::new(10);
        let start = Instant::now();
        let enter = async |gives_up: bool| {
            let patience = if gives_up { SECOND / 2 } else { SECOND * 60 };
            let turn = timeout(patience, hosts.enter("a", SECOND)).await;
            turn.ok().map(|_| start.elapsed())
        };
        // Two requests give up; the others begin one second after another.
        let began = join_all([false, true, true, false, false].map(enter)).await;
        let began: Vec<u64> = began.into_iter().flatten().map(|at| at.as_secs()).collect();
        assert_eq!(began, [0, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn owners_take_turns_at_a_host() {
        let hosts = Hosts::new(2);
        let enter = |owner: &str| {
            let owner = Owner::key(owner);
            let hosts = &hosts;
            async move { drop(acting::on_behalf_of(&owner, hosts.enter("a", SECOND)).await) }
        };
        let flood = join_all((0..1000).map(|_| enter("greedy")));
        let start = Instant::now();
        let other = async {
            for _ in 0..3 {
                enter("other").await;
            }
            start.elapsed()
        };
        tokio::select! {
            biased;
            _ = flood => panic!("the flood came first"),
            waited = other => assert!(waited <= SECOND * 10, "{waited:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_idle_hosts_are_removed() {
        let hosts = Hosts::new(1);
        let _held = hosts.enter("held", Duration::ZERO).await;
        hosts.enter("recent", SECOND * 3600).await;
        for number in 0..10_000 {
            hosts.enter(&number.to_string(), SECOND / 1000).await;
            tokio::time::advance(SECOND / 100).await;
        }
        let known = hosts.known.lock();
        assert!(known.hosts.len() <= SWEEP_FROM + 2, "{}", known.hosts.len());
        assert!(known.hosts.contains_key("held") && known.hosts.contains_key("recent"));
    }
}
