//! Refusals of requests that may not be sent: counted, and logged within a rate.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use agent::metrics::{Metrics, RefusedLabel};

/// How long further refusals of a kind, and connections that cannot be accepted, are not logged after one was.
/// Tried by `refused::each_kind_is_logged_once_in_a_minute_with_the_number_of_the_others`.
pub(in crate::http) const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The log of refusals.
#[derive(Debug, Default)]
pub(in crate::http) struct RefusalLog([Mutex<Shown>; RefusedLabel::ALL.len()]);

/// The last refusal of a kind that was logged, and how many came since.
#[derive(Debug, Default)]
struct Shown {
    at: Option<Instant>,
    not_shown: u64,
}

impl RefusalLog {
    /// Counts a refusal, and logs it unless one of its kind was logged within the interval.
    pub(in crate::http) fn refused(&self, why: RefusedLabel, metrics: &Metrics) {
        metrics.request_refused(why);
        if let Some(not_shown) = self.line(why) {
            let reason = why.as_str();
            tracing::warn!(reason, not_shown, "a request was refused: {}", why.remedy());
        }
    }

    /// How many were not logged before this one; none if this one is not to be logged.
    fn line(&self, why: RefusedLabel) -> Option<u64> {
        let index = RefusedLabel::ALL.iter().position(|label| *label == why)?;
        let mut shown = self.0.get(index)?.lock();
        if shown.at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            shown.not_shown = shown.not_shown.saturating_add(1);
            return None;
        }
        shown.at = Some(Instant::now());
        Some(std::mem::take(&mut shown.not_shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_kind_is_logged_once_in_a_minute_with_the_number_of_the_others() {
        let log = RefusalLog::default();
        for kind in RefusedLabel::ALL {
            assert_eq!(log.line(kind), Some(0));
            assert_eq!(log.line(kind), None);
            assert_eq!(log.line(kind), None);
        }
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!(log.line(RefusedLabel::ApiKey), Some(2));
        assert_eq!(log.line(RefusedLabel::ApiKey), None);
    }
}
