//! The delay before another attempt, computed from the number of attempts.

use std::time::Duration;

use rand::RngExt;

/// Delays that double with each retry up to a maximum, lengthened at random so that clients do not retry in step.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// The delay before the first retry.
    pub base: Duration,
    /// The longest delay, before it is lengthened.
    pub max: Duration,
    /// The fraction of a delay that is added at most.
    pub jitter: f64,
}

impl Backoff {
    /// The delay before a retry, with the first retry being number 0.
    pub fn delay(&self, retry: u32) -> Duration {
        let doubled = self.base.saturating_mul(2_u32.saturating_pow(retry));
        self.lengthened(doubled.min(self.max))
    }

    /// A delay with the random addition.
    pub fn lengthened(&self, delay: Duration) -> Duration {
        delay.mul_f64(1.0 + self.jitter * rand::rng().random::<f64>())
    }
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
}
