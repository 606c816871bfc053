//! The timestamps of writes, and the time by which things expire.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;
/// A step forward of the wall clock that may be a mistake.
const DOUBTFUL_STEP: i64 = 24 * 60 * 60 * MICROS_PER_SECOND;
/// How long a doubtful time has to hold before things expire by it. A wrong clock is usually set right sooner.
const DOUBT: Duration = Duration::from_secs(60 * 60);

/// Creates the timestamps of writes: Unix time in microseconds, strictly increasing, so that writes can be ordered by
/// their timestamps.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: AtomicI64,
    expiry: Mutex<Option<ExpiryTime>>,
}

/// A time that follows the wall clock, but not at once where that steps far forward: a machine that starts with a wrong
/// time would delete everything.
#[derive(Debug, Clone, Copy)]
struct ExpiryTime {
    /// The last time that was trusted, and when that was.
    trusted: i64,
    at: Instant,
    /// Since when the wall clock is doubtful.
    doubtful_since: Option<Instant>,
}

impl Clock {
    /// A clock that continues from the newest timestamp in a store, if there is one.
    pub(super) fn after(newest: Option<i64>) -> Self {
        let expiry = newest.map(|newest| ExpiryTime::trusting(newest, Instant::now()));
        Self {
            expiry: Mutex::new(expiry),
            ..Self::default()
        }
    }

    /// The time by which things expire.
    pub(super) fn expiry_time(&self) -> i64 {
        let (wall, now) = (self.stamp(), Instant::now());
        let mut expiry = self.expiry.lock();
        expiry
            .get_or_insert_with(|| ExpiryTime::trusting(wall, now))
            .advance(wall, now)
    }

    /// The current time, or one microsecond after the last timestamp if that is later.
    pub(super) fn stamp(&self) -> i64 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
            });
        let after = |last: i64| now.max(last.saturating_add(1));
        after(
            self.last
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                    Some(after(last))
                })
                .unwrap_or_else(|last| last),
        )
    }
}

impl ExpiryTime {
    fn trusting(trusted: i64, at: Instant) -> Self {
        Self {
            trusted,
            at,
            doubtful_since: None,
        }
    }

    /// The time when the wall clock shows `wall`.
    fn advance(&mut self, wall: i64, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.at).as_micros();
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        let expected = self.trusted.saturating_add(passed);
        if wall > expected.saturating_add(DOUBTFUL_STEP) {
            if self.doubtful_since.is_none() {
                let days = (wall - expected) / DOUBTFUL_STEP;
                tracing::warn!(
                    days,
                    "the clock is far ahead of the last write; nothing expires by it for an hour"
                );
            }
            let since = *self.doubtful_since.get_or_insert(now);
            if now.saturating_duration_since(since) < DOUBT {
                return expected;
            }
        }
        *self = Self::trusting(wall, now);
        wall
    }
}

/// Converts microseconds to whole seconds.
pub(super) fn seconds(micros: i64) -> i64 {
    micros.div_euclid(MICROS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_clock_is_followed_only_if_it_lasts() {
        const DAY: i64 = DOUBTFUL_STEP;
        let start = Instant::now();
        let minutes = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let micros = |minutes: i64| minutes * 60 * MICROS_PER_SECOND;
        let mut time = ExpiryTime::trusting(100 * DAY, start);
        for (wall, at, expected) in [
            // A server that was off for some hours.
            (100 * DAY + micros(300), 1, 100 * DAY + micros(300)),
            // Ten years ahead, and corrected before the hour is over.
            (4000 * DAY, 2, 100 * DAY + micros(301)),
            (4000 * DAY, 61, 100 * DAY + micros(360)),
            (100 * DAY + micros(361), 62, 100 * DAY + micros(361)),
            // Backward.
            (50 * DAY, 63, 50 * DAY),
            // A server that was off for a month: true after an hour.
            (80 * DAY, 64, 50 * DAY + micros(1)),
            (80 * DAY, 123, 50 * DAY + micros(60)),
            (80 * DAY + micros(60), 124, 80 * DAY + micros(60)),
        ] {
            assert_eq!(time.advance(wall, minutes(at)), expected, "{wall} at {at}");
        }
    }

    #[test]
    fn a_store_without_writes_trusts_the_clock() {
        let clock = Clock::after(None);
        let wall = clock.stamp();
        assert!(clock.expiry_time() > wall);
        let old = Clock::after(Some(wall - 2 * DOUBTFUL_STEP));
        assert!(old.expiry_time() < wall - DOUBTFUL_STEP);
    }
}
