//! The one driver of retries: the same server again after a delay, then the next server.
//!
//! [`super::retry`] decides, this waits and logs. The pass-through and the loop call a model server as
//! [`FailOver::upstream`] says and hand every failure to [`FailOver::recover`].

use std::sync::Arc;

use super::retry::{Attempts, RetryPolicy};
use super::router::Route;
use super::{Upstream, UpstreamError};

/// The tries of one call over the servers of a route.
#[derive(Debug, Clone)]
pub struct FailOver {
    route: Arc<Route>,
    attempts: Attempts,
    retries: usize,
}

impl FailOver {
    /// Begins with the first server of a route.
    pub fn new(policy: RetryPolicy, route: Arc<Route>) -> Self {
        Self {
            attempts: Attempts::new(policy, route.upstreams().len()),
            route,
            retries: 0,
        }
    }

    /// Moves on after a failure: waits, or goes to the next server.
    ///
    /// # Errors
    /// The same error when the policy allows no other try.
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

    /// The server of the present try.
    pub fn upstream(&self) -> &Arc<dyn Upstream> {
        self.route.candidate(self.attempts.upstream())
    }

    /// Failures so far that were followed by another try.
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
    async fn each_server_is_tried_as_often_as_the_policy_says_in_order() {
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
