//! The times of writes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;

/// Gives the times of writes: microseconds since 1970, each later than the one before, so that the order of writes is
/// the order of their times.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: AtomicI64,
}

impl Clock {
    /// The time now, or just after the last one given out.
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

/// Whole seconds of a time.
pub(super) fn seconds(micros: i64) -> i64 {
    micros.div_euclid(MICROS_PER_SECOND)
}
