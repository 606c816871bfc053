//! The timestamps of writes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;

/// Creates the timestamps of writes: Unix time in microseconds, strictly increasing, so that writes can be ordered by
/// their timestamps.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: AtomicI64,
}

impl Clock {
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

/// Converts microseconds to whole seconds.
pub(super) fn seconds(micros: i64) -> i64 {
    micros.div_euclid(MICROS_PER_SECOND)
}
