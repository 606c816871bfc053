//! The driver of retries: first the same upstream after a delay, then the next one.
//!
//! [`super::retry`] decides; [`FailOver`] waits and logs. The pass-through route and the loop call the upstream that
//! [`FailOver::upstream`] returns, and give every failure to [`FailOver::recover`].

use std::sync::Arc;

use super::retry::{Attempts, RetryPolicy};
use super::route::Route;
use super::{Upstream, UpstreamError};

/// The attempts of one call over the upstreams of a route.
#[derive(Debug, Clone)]
pub struct FailOver {
    route: Arc<Route>,
    attempts: Attempts,
    retries: usize,
}

impl FailOver {
    /// Starts with the first upstream of a route.
    pub fn new(policy: RetryPolicy, route: Arc<Route>) -> Self {
        Self {
            attempts: Attempts::new(policy, route.upstreams().len()),
            route,
            retries: 0,
        }
    }

    /// Prepares the next attempt after a failure: waits, or changes to the next upstream.
    ///
    /// # Errors
    /// The same error when the policy allows no further attempt.
    pub async fn recover(&mut self, error: UpstreamError) -> Result<(), UpstreamError> {
        let failed = self.upstream().clone();
        let Some(next) = self.attempts.next(&error) else {
            return Err(error);
        };
        self.retries += 1;
        tracing::warn!(upstream = failed.name(), %error, "request failed, trying again");
        if !next.delay.is_zero() {
            tokio::time::sleep(next.delay).await;
        }
        Ok(())
    }

    /// The upstream of the current attempt.
    pub fn upstream(&self) -> &Arc<dyn Upstream> {
        self.route.candidate(self.attempts.upstream())
    }

    /// The index of that upstream among the candidates of the route.
    pub fn candidate(&self) -> usize {
        self.attempts.upstream()
    }

    /// The number of failures that were followed by another attempt.
    pub fn retries(&self) -> usize {
        self.retries
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::settings::Quirks;
    use super::super::testing::FakeUpstream;
    use super::*;

    fn broken(upstream: &dyn Upstream) -> UpstreamError {
        UpstreamError::Broken {
            upstream: upstream.name().into(),
            reason: "in a test".into(),
        }
    }

    fn fail_over(names: &[&str]) -> FailOver {
        let fake = |name: &&str| -> Arc<dyn Upstream> {
            Arc::new(FakeUpstream::new(name, Quirks::default()))
        };
        let route = Route::new(names.iter().map(fake).collect()).unwrap();
        let policy = RetryPolicy {
            max_attempts: 2,
            base_delay: Duration::from_millis(10),
            max_delay: Duration::from_secs(1),
        };
        FailOver::new(policy, Arc::new(route))
    }

    #[tokio::test(start_paused = true)]
    async fn each_upstream_is_tried_in_order_as_often_as_the_policy_allows() {
        let mut fail_over = fail_over(&["a", "b"]);
        let mut tried = vec![fail_over.upstream().name().to_owned()];
        let last = loop {
            let error = broken(fail_over.upstream().as_ref());
            match fail_over.recover(error).await {
                Ok(()) => tried.push(fail_over.upstream().name().to_owned()),
                Err(error) => break error,
            }
        };
        assert!(matches!(last, UpstreamError::Broken { upstream, .. } if &*upstream == "b"));
        assert_eq!(tried, ["a", "a", "b", "b"]);
        assert_eq!(fail_over.retries(), 3);
    }
}
