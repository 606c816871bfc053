//! The rate of requests to one provider.

use std::num::NonZeroU32;
use std::ops::Add;
use std::time::Duration;

use governor::clock::{Clock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::{Instant, sleep, timeout};

use crate::{LONGEST_WAIT, acting};
use quota::FairSemaphore;

/// Share of a minute's requests that may be made at once: a sixth.
const BURST_FRACTION: u32 = 6;

/// Limits the rate of requests.
#[derive(Debug)]
pub(super) struct RequestRate {
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Moment>>,
    /// One request at a time waits for the rate; owners take turns.
    turns: FairSemaphore,
}

/// The clock of the runtime, which tests can advance.
#[derive(Debug, Clone)]
struct TokioClock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(Instant);

impl RequestRate {
    pub(super) fn new(requests_per_minute: u32) -> Self {
        let per_minute = NonZeroU32::new(requests_per_minute).unwrap_or(NonZeroU32::MIN);
        let burst = NonZeroU32::new(per_minute.get() / BURST_FRACTION).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_minute(per_minute).allow_burst(burst);
        Self {
            limiter: RateLimiter::direct_with_clock(quota, TokioClock),
            turns: FairSemaphore::new(1),
        }
    }

    /// Waits until a request may be made; false if that would take too long.
    pub(super) async fn acquire(&self) -> bool {
        let owner = acting::owner();
        let Ok(_turn) = timeout(LONGEST_WAIT, self.turns.acquire(&owner)).await else {
            return false;
        };
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let Err(early) = self.limiter.check() else {
                return true;
            };
            let now = Instant::now();
            let wait = early.wait_time_from(Moment(now));
            if now + wait > deadline {
                return false;
            }
            sleep(wait).await;
        }
    }
}

impl Clock for TokioClock {
    type Instant = Moment;

    fn now(&self) -> Moment {
        Moment(Instant::now())
    }
}

impl Reference for Moment {
    fn duration_since(&self, earlier: Self) -> Nanos {
        self.0.saturating_duration_since(earlier.0).into()
    }

    fn saturating_sub(&self, duration: Nanos) -> Self {
        Self(self.0.checked_sub(duration.into()).unwrap_or(self.0))
    }
}

impl Add<Nanos> for Moment {
    type Output = Self;

    fn add(self, nanos: Nanos) -> Self {
        Self(self.0 + Duration::from(nanos))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use protocol::ids::Owner;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_later_requests_wait() {
        let rate = RequestRate::new(60);
        let begun = Instant::now();
        for _ in 0..10 {
            assert!(rate.acquire().await);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(rate.acquire().await);
        let waited = begun.elapsed();
        assert!(
            waited > Duration::from_millis(900) && waited < Duration::from_millis(1_100),
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn owners_take_turns() {
        let rate = RequestRate::new(60);
        let acquire = |owner: &str| {
            let owner = Owner::key(owner);
            let rate = &rate;
            async move { acting::on_behalf_of(&owner, rate.acquire()).await }
        };
        // More than the rate allows, at all times.
        let flood = join_all((0..20).map(|_| async {
            loop {
                acquire("greedy").await;
            }
        }));
        let other = async {
            for _ in 0..10 {
                assert!(acquire("other").await);
            }
        };
        tokio::select! {
            biased;
            _ = flood => unreachable!(),
            () = other => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_is_bounded() {
        let rate = RequestRate::new(2);
        let begun = Instant::now();
        assert!(rate.acquire().await);
        assert!(!rate.acquire().await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(rate.acquire().await);
    }
}
