//! The delay before another attempt: computed from the number of attempts, or requested by the server.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;
use rand::RngExt;

/// Delays that double with each retry up to a maximum, lengthened at random so that clients do not retry in step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    /// The delay before the first retry.
    pub(crate) base: Duration,
    /// The longest delay, before it is lengthened.
    pub(crate) max: Duration,
    /// The fraction of a delay that is added at most.
    pub(crate) jitter: f64,
}

impl Backoff {
    /// The delay before a retry, with the first retry being number 0.
    pub(crate) fn delay(&self, retry: u32) -> Duration {
        let doubled = self.base.saturating_mul(2_u32.saturating_pow(retry));
        self.lengthened(doubled.min(self.max))
    }

    /// A delay with the random addition.
    pub(crate) fn lengthened(&self, delay: Duration) -> Duration {
        delay.mul_f64(1.0 + self.jitter * rand::rng().random::<f64>())
    }
}

/// The delay of a `retry-after` header, in seconds or as a date. A date in the past is no delay, and a number that is too
/// large for a duration is the longest one.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        let delay = || Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        return (seconds >= 0.0).then(delay);
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_are_lengthened() {
        let backoff = Backoff {
            base: Duration::from_millis(250),
            max: Duration::from_secs(10),
            jitter: 0.25,
        };
        for retry in [0, 1, 2, 5, 6, 40, u32::MAX] {
            let least = (0.25 * 2_f64.powf(f64::from(retry))).min(10.0);
            let delay = backoff.delay(retry).as_secs_f64();
            assert!((least..=least * 1.25).contains(&delay), "{retry}: {delay}");
        }
    }

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let delay = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            retry_after(&headers).map(|delay| delay.as_secs_f64())
        };
        assert_eq!(delay("7"), Some(7.0));
        assert_eq!(delay(" 1.5 "), Some(1.5));
        assert_eq!(delay("-1"), None);
        assert_eq!(delay("NaN"), None);
        assert_eq!(delay("soon"), None);
        assert_eq!(delay("Wed, 21 Oct 2015 07:28:00 GMT"), Some(0.0));
        assert!(delay("1e300").unwrap() > 1e18);
        let far = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(40));
        assert!((38.0..=40.0).contains(&delay(&far).unwrap()));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
