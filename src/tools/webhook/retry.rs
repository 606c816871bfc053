//! Failures of calls, and when a call is repeated.

use std::error::Error;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode};

use crate::net::{Backoff, BodyError, retry_after};
use crate::tools::ToolError;

/// Longest delay that the endpoint does not request.
const MAX_DELAY: Duration = Duration::from_secs(10);
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(250),
    max: MAX_DELAY,
    jitter: 0.25,
};
/// Longest delay that an endpoint may request. Beyond it the call fails at once.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) problem: Problem,
    pub(super) retry: RetryCondition,
    /// The delay that the endpoint requests.
    pub(super) retry_after: Option<Duration>,
}

/// When a failed call may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryCondition {
    /// Always: the call had no effect.
    Always,
    /// Only for idempotent tools: the call may have had an effect.
    IfIdempotent,
    /// Never: the answer is final.
    Never,
}

/// Why a call failed. The texts are for the model and hold no URL, header or part of the answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("the tool endpoint could not be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the connection to the tool endpoint broke off")]
    Broken(#[source] reqwest::Error),
    #[error("the tool endpoint answered with status {}", .0.as_u16())]
    Status(StatusCode),
    #[error("the tool endpoint answered with status {}: redirects are not followed", .0.as_u16())]
    Redirect(StatusCode),
    #[error("the tool endpoint answered with more than {0} bytes")]
    TooLarge(usize),
    #[error("the tool endpoint answered with {0}, which is not text")]
    Binary(String),
    #[error("the tool endpoint answered with a compressed body that was not asked for")]
    Compressed,
    #[error("the tool endpoint's answer cannot be used: '{field}' must be {expected}")]
    Field {
        field: String,
        expected: &'static str,
    },
    #[error("the tool endpoint's event stream ended without a result")]
    NoResult,
    #[error("the call could not be signed")]
    Unsigned,
}

impl Failure {
    /// There was no response.
    pub(super) fn no_head(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let (problem, retry) = if error.is_connect() {
            (Problem::Unreachable(error), RetryCondition::Always)
        } else {
            (Problem::Broken(error), RetryCondition::IfIdempotent)
        };
        Self {
            problem,
            retry,
            retry_after: None,
        }
    }

    /// The status is not a success.
    pub(super) fn status(status: StatusCode, headers: &HeaderMap) -> Self {
        let retry_after = retry_after(headers);
        let retry = match status.as_u16() {
            429 => RetryCondition::Always,
            503 if retry_after.is_some() => RetryCondition::Always,
            500..=599 => RetryCondition::IfIdempotent,
            _ => RetryCondition::Never,
        };
        let problem = if status.is_redirection() {
            Problem::Redirect(status)
        } else {
            Problem::Status(status)
        };
        Self {
            problem,
            retry,
            retry_after,
        }
    }
}

impl From<Problem> for Failure {
    /// A failure that another attempt would repeat.
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            retry: RetryCondition::Never,
            retry_after: None,
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => Problem::TooLarge(limit).into(),
            BodyError::Broken(error) => Self {
                problem: Problem::Broken(error.without_url()),
                retry: RetryCondition::IfIdempotent,
                retry_after: None,
            },
        }
    }
}

impl From<Problem> for ToolError {
    fn from(problem: Problem) -> Self {
        Self::Failed {
            message: problem.to_string(),
            source: Some(Box::new(problem) as Box<dyn Error + Send + Sync>),
        }
    }
}

/// The delays between the attempts of one call, which increase.
#[derive(Debug)]
pub(super) struct RetryDelays {
    made: u32,
    most: u32,
}

impl RetryDelays {
    pub(super) fn new(most: u32) -> Self {
        Self { made: 0, most }
    }

    /// The delay before the next attempt. There is no further attempt if the retries are used up, the endpoint requests too
    /// long a delay, or the delay exceeds the time that is left.
    pub(super) fn next(
        &mut self,
        asked: Option<Duration>,
        left: Option<Duration>,
    ) -> Option<Duration> {
        let asked = asked.unwrap_or_default();
        if self.made >= self.most || asked > MAX_RETRY_AFTER {
            return None;
        }
        let delay = BACKOFF.delay(self.made).min(MAX_DELAY).max(asked);
        self.made += 1;
        left.is_none_or(|left| delay < left).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::RETRY_AFTER;

    use super::*;

    fn failure(status: u16, retry_after: Option<&str>) -> Failure {
        let headers = retry_after
            .map(|value| (RETRY_AFTER, value.parse().unwrap()))
            .into_iter()
            .collect();
        Failure::status(StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn only_what_surely_did_nothing_is_retried_for_every_tool() {
        for (status, retry_after, expected) in [
            (429, None, RetryCondition::Always),
            (503, Some("1"), RetryCondition::Always),
            (503, None, RetryCondition::IfIdempotent),
            (503, Some("soon"), RetryCondition::IfIdempotent),
            (500, Some("1"), RetryCondition::IfIdempotent),
            (502, None, RetryCondition::IfIdempotent),
            (400, Some("1"), RetryCondition::Never),
            (404, None, RetryCondition::Never),
            (408, None, RetryCondition::Never),
            (302, None, RetryCondition::Never),
        ] {
            assert_eq!(
                failure(status, retry_after).retry,
                expected,
                "{status} {retry_after:?}"
            );
        }
    }

    #[test]
    fn delays_grow_to_a_cap_and_end() {
        let mut delays = RetryDelays::new(9);
        let all: Vec<f64> = std::iter::from_fn(|| delays.next(None, None))
            .map(|delay| delay.as_secs_f64())
            .collect();
        assert_eq!(all.len(), 9);
        for (index, delay) in all.iter().enumerate() {
            let least = (0.25 * 2_f64.powi(index as i32)).min(10.0);
            assert!(
                *delay >= least && *delay <= (least * 1.25).min(10.0),
                "{all:?}"
            );
        }
    }

    #[test]
    fn what_the_endpoint_asks_for_is_waited_or_not_at_all() {
        let seconds = Duration::from_secs;
        let mut delays = RetryDelays::new(5);
        assert_eq!(delays.next(Some(seconds(60)), None), Some(seconds(60)));
        assert_eq!(delays.next(Some(seconds(61)), None), None);
        assert_eq!(delays.next(Some(seconds(5)), Some(seconds(5))), None);
        assert_eq!(
            delays.next(Some(seconds(20)), Some(seconds(21))),
            Some(seconds(20))
        );
        assert_eq!(delays.next(None, Some(Duration::from_millis(100))), None);
    }
}
