//! How fast a provider may be asked.

use std::num::NonZeroU32;
use std::ops::Add;
use std::time::Duration;

use governor::clock::{Clock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::{Instant, sleep};

/// Longest wait for a turn; beyond it the next provider is the better choice.
const MAX_WAIT: Duration = Duration::from_secs(3);
/// The part of a minute's requests that may be made at once.
const BURST_PART: u32 = 6;

/// The turns of one provider.
#[derive(Debug)]
pub(super) struct Pace {
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Moment>>,
}

/// The clock of the runtime, so that tests can turn it.
#[derive(Debug, Clone)]
struct TokioClock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(Instant);

impl Pace {
    pub(super) fn new(requests_per_minute: u32) -> Self {
        let rate = NonZeroU32::new(requests_per_minute).unwrap_or(NonZeroU32::MIN);
        let burst = NonZeroU32::new(rate.get() / BURST_PART).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_minute(rate).allow_burst(burst);
        Self {
            limiter: RateLimiter::direct_with_clock(quota, TokioClock),
        }
    }

    /// Waits for a turn; false when it would take too long.
    pub(super) async fn turn(&self) -> bool {
        let deadline = Instant::now() + MAX_WAIT;
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
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_then_turns_come_at_the_rate() {
        let pace = Pace::new(60);
        let begun = Instant::now();
        for _ in 0..10 {
            assert!(pace.turn().await);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(pace.turn().await);
        let waited = begun.elapsed();
        assert!(
            waited > Duration::from_millis(900) && waited < Duration::from_millis(1_100),
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_long() {
        let pace = Pace::new(2);
        let begun = Instant::now();
        assert!(pace.turn().await);
        assert!(!pace.turn().await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(pace.turn().await);
    }
}
