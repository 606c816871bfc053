//! The timestamps of writes, and the time by which things expire.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Unit of times: microseconds in a second.
pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;
/// Unit of times: an hour, in microseconds.
const HOUR: i64 = 60 * 60 * MICROS_PER_SECOND;
/// Largest step by which the time of expiry may follow the wall clock at once: over a night. Less than idempotency keys
/// are kept, so that a step alone makes no request run twice.
/// Tried by `clock::a_step_of_the_clock_is_followed_as_far_as_time_passes`.
const LARGEST_STEP: i64 = 12 * HOUR;
/// Largest speed at which the time of expiry follows a wall clock that is further ahead. A server that runs during
/// working hours, 42 of 168, keeps up with it.
/// Tried by `clock::a_step_of_the_clock_is_followed_as_far_as_time_passes`.
const LARGEST_SPEED: i64 = 4;

/// Creates the timestamps of writes: Unix time in microseconds, strictly increasing, so that writes can be ordered by
/// their timestamps.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: AtomicI64,
    /// The expiry time, and when it was that.
    expiry: Mutex<Option<(ExpiryTime, Instant)>>,
    /// How far the wall clock is wrong, in microseconds.
    #[cfg(test)]
    pub(super) shift: AtomicI64,
}

/// The time by which things expire. It follows the wall clock, but a large step forward is followed with delay: a
/// machine with a wrong time would delete everything. The store keeps it, because neither the wall clock nor the newest
/// timestamp shows whether the wall clock is right: a write under a wrong clock has a wrong timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExpiryTime {
    /// The last time that was trusted. It never decreases.
    pub(super) trusted: i64,
    /// How much more than the time that passes the trusted time may increase. It grows with the time that passes.
    pub(super) credit: i64,
}

impl Clock {
    /// Lets the expiry time continue from the expiry time of a store.
    pub(super) fn continue_from(&self, expiry: ExpiryTime) {
        *self.expiry.lock() = Some((expiry, Instant::now()));
    }

    /// The time by which things expire.
    pub(super) fn expiry_time(&self) -> i64 {
        let wall = self.stamp();
        self.advance(wall).trusted.min(wall)
    }

    /// The expiry time for the store. Says in the log if it is far behind the wall clock.
    pub(super) fn kept_expiry_time(&self) -> ExpiryTime {
        let wall = self.stamp();
        let time = self.advance(wall);
        time.report(wall);
        time
    }

    fn advance(&self, wall: i64) -> ExpiryTime {
        let now = Instant::now();
        let mut expiry = self.expiry.lock();
        let (time, at) = expiry.unwrap_or_else(|| (ExpiryTime::trusting(wall), now));
        let time = time.advance(micros_between(at, now), wall);
        *expiry = Some((time, now));
        time
    }

    /// The current time, or one microsecond after the last timestamp if that is later.
    pub(super) fn stamp(&self) -> i64 {
        let now = wall();
        #[cfg(test)]
        let now = now + self.shift.load(Ordering::Relaxed);
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
    /// The expiry time of a store that has none yet.
    pub(super) fn trusting(trusted: i64) -> Self {
        Self {
            trusted,
            credit: LARGEST_STEP,
        }
    }

    /// The expiry time after `passed` microseconds, when the wall clock shows `wall`.
    pub(super) fn advance(self, passed: i64, wall: i64) -> Self {
        let passed = passed.max(0);
        let credit = passed.saturating_mul(LARGEST_SPEED - 1);
        let credit = self.credit.saturating_add(credit);
        let expected = self.trusted.saturating_add(passed);
        let trusted = wall.min(expected.saturating_add(credit)).max(self.trusted);
        let unused = credit - trusted.saturating_sub(expected).max(0);
        Self {
            trusted,
            credit: unused.min(LARGEST_STEP),
        }
    }

    /// Says in the log if this time is far behind the wall clock.
    pub(super) fn report(self, wall: i64) {
        let days = wall.saturating_sub(self.trusted) / (24 * HOUR);
        if days > 0 {
            tracing::warn!(
                days,
                "the clock is far ahead of the time for which this store was open; what expires does so later by these \
                 days, which decrease while the server runs"
            );
        }
    }
}

/// Unix time in microseconds.
fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// The microseconds from one time to a later one.
pub(super) fn micros_between(from: Instant, to: Instant) -> i64 {
    let passed = to.saturating_duration_since(from).as_micros();
    i64::try_from(passed).unwrap_or(i64::MAX)
}

/// A time in microseconds, within what a database can subtract from a time.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).map_or(i64::MAX / 4, |micros| micros.min(i64::MAX / 4))
}

/// Converts microseconds to whole seconds.
pub(super) fn seconds(micros: i64) -> i64 {
    micros.div_euclid(MICROS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * HOUR;

    #[test]
    fn a_step_of_the_clock_is_followed_as_far_as_time_passes() {
        let mut time = ExpiryTime::trusting(100 * DAY);
        for (wall, passed, expected) in [
            // A server that was off for some hours, and one that was off for a night.
            (100 * DAY + 5 * HOUR, 0, 100 * DAY + 5 * HOUR),
            (100 * DAY + 17 * HOUR, 2 * HOUR, 100 * DAY + 17 * HOUR),
            // Ten years ahead: what is left of the step, then four hours for each.
            (4000 * DAY, 0, 100 * DAY + 20 * HOUR),
            (4000 * DAY, 0, 100 * DAY + 20 * HOUR),
            (4000 * DAY, 2 * HOUR, 101 * DAY + 4 * HOUR),
            // Corrected, and before the first time of all.
            (101 * DAY, HOUR, 101 * DAY),
            (50 * DAY, HOUR, 50 * DAY),
            // A time before the first is corrected as well.
            (101 * DAY + 12 * HOUR, HOUR, 101 * DAY + 12 * HOUR),
            // A server that was off for a month has followed after some days.
            (131 * DAY, DAY, 105 * DAY + 14 * HOUR),
            (140 * DAY, 9 * DAY, 140 * DAY),
            (141 * DAY, DAY, 141 * DAY),
        ] {
            time = time.advance(passed, wall);
            let found = time.trusted.min(wall);
            assert_eq!(found / HOUR, expected / HOUR, "{wall} after {passed}");
        }
    }

    #[test]
    fn starts_of_the_server_are_no_passing_time() {
        let mut time = ExpiryTime::trusting(100 * DAY);
        for _ in 0..1000 {
            time = time.advance(1, 4000 * DAY);
        }
        assert!(time.trusted <= 101 * DAY + 4000, "{time:?}");
    }

    #[test]
    fn a_store_without_an_expiry_time_trusts_the_clock() {
        let clock = Clock::default();
        let wall = clock.stamp();
        assert!(clock.expiry_time() > wall);
        let old = Clock::default();
        old.continue_from(ExpiryTime::trusting(wall - 3 * DAY));
        assert!(old.expiry_time() < wall - DAY);
    }
}
