//! Errors of calls, and when a call is retried.

use std::error::Error;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode};

use crate::ToolError;
use net::{Backoff, BodyError, ClientError, retry_after};

/// Pause before a call is sent again, growing with each failure.
/// Tried by `retry::delays_increase_to_a_maximum_and_are_limited_in_number`.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(250),
    max: Duration::from_secs(10),
    jitter: 0.25,
};
/// Longest delay that an endpoint may request. Beyond it the call fails at once.
/// Tried by `retry::a_requested_delay_is_kept_or_the_call_fails`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The failure of one attempt, and whether another attempt may follow.
#[derive(Debug)]
pub(super) struct AttemptError {
    pub(super) error: WebhookError,
    pub(super) retry: RetryCondition,
    /// The delay that the endpoint requests.
    pub(super) retry_after: Option<Duration>,
}

/// When a failed call may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryCondition {
    /// Always: the call had no effect.
    Always,
    /// Only for idempotent tools: the call may have had an effect.
    IfIdempotent,
    /// Never: another attempt would fail in the same way.
    Never,
}

/// Why a call failed. The texts are sent to the model, and logged; they contain no URL, header or part of the response body.
#[derive(Debug, thiserror::Error)]
pub(super) enum WebhookError {
    #[error("the tool endpoint could not be reached")]
    Unreachable(#[source] ClientError),
    #[error("the connection to the tool endpoint was lost")]
    ConnectionLost(#[source] ClientError),
    #[error("the tool endpoint answered with status {}", .status.as_u16())]
    Status {
        status: StatusCode,
        /// What the body says, for the model alone.
        words: Option<String>,
    },
    #[error("the tool endpoint answered with status {}: redirects are not followed", .0.as_u16())]
    Redirect(StatusCode),
    #[error("the tool endpoint answered with more than {0} bytes")]
    TooLarge(usize),
    #[error("the tool endpoint answered with {0}, which is not text")]
    Binary(String),
    #[error("the tool endpoint answered with a compressed body, which is not supported")]
    Compressed,
    #[error("the tool endpoint's answer cannot be used: '{field}' must be {expected}")]
    InvalidField {
        field: String,
        expected: &'static str,
    },
    #[error("the tool endpoint's event stream ended without a result")]
    NoResult,
    #[error("the tool endpoint's URL cannot be requested")]
    Url,
    #[error("the call could not be signed")]
    Unsigned,
}

impl AttemptError {
    /// The request failed before a response head arrived.
    pub(super) fn no_response(error: ClientError) -> Self {
        let unsent = matches!(
            error,
            ClientError::Uri
                | ClientError::Connect(_)
                | ClientError::Certificate(..)
                | ClientError::ConnectTimeout(_)
        );
        let (error, retry) = if unsent {
            (WebhookError::Unreachable(error), RetryCondition::Always)
        } else {
            (
                WebhookError::ConnectionLost(error),
                RetryCondition::IfIdempotent,
            )
        };
        Self {
            error,
            retry,
            retry_after: None,
        }
    }

    /// The response has a status other than success.
    pub(super) fn from_status(status: StatusCode, headers: &HeaderMap) -> Self {
        let retry_after = retry_after(headers);
        let retry = match status.as_u16() {
            429 => RetryCondition::Always,
            503 if retry_after.is_some() => RetryCondition::Always,
            500..=599 => RetryCondition::IfIdempotent,
            _ => RetryCondition::Never,
        };
        let error = if status.is_redirection() {
            WebhookError::Redirect(status)
        } else {
            WebhookError::Status {
                status,
                words: None,
            }
        };
        Self {
            error,
            retry,
            retry_after,
        }
    }
}

impl From<WebhookError> for AttemptError {
    /// An error that is not retried.
    fn from(error: WebhookError) -> Self {
        Self {
            error,
            retry: RetryCondition::Never,
            retry_after: None,
        }
    }
}

impl From<BodyError> for AttemptError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => WebhookError::TooLarge(limit).into(),
            BodyError::Broken(error) => Self {
                error: WebhookError::ConnectionLost(error),
                retry: RetryCondition::IfIdempotent,
                retry_after: None,
            },
        }
    }
}

impl From<WebhookError> for ToolError {
    fn from(error: WebhookError) -> Self {
        let message = match &error {
            WebhookError::Status {
                words: Some(words), ..
            } => format!("{error}: {words}"),
            other => other.to_string(),
        };
        Self::Failed {
            message,
            source: Some(Box::new(error) as Box<dyn Error + Send + Sync>),
        }
    }
}

/// The delays between the attempts of one call, which increase.
#[derive(Debug)]
pub(super) struct RetryDelays {
    retries: u32,
    max_retries: u32,
}

impl RetryDelays {
    pub(super) fn new(max_retries: u32) -> Self {
        Self {
            retries: 0,
            max_retries,
        }
    }

    /// The delay before the next attempt. `None` if the retries are used up, the endpoint requests too long a delay, or
    /// the delay exceeds the remaining time.
    pub(super) fn next(
        &mut self,
        requested: Option<Duration>,
        remaining: Option<Duration>,
    ) -> Option<Duration> {
        let requested = requested.unwrap_or_default();
        if self.retries >= self.max_retries || requested > MAX_RETRY_AFTER {
            return None;
        }
        let delay = BACKOFF.delay(self.retries).min(BACKOFF.max).max(requested);
        self.retries += 1;
        remaining
            .is_none_or(|remaining| delay < remaining)
            .then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::RETRY_AFTER;

    use super::*;

    fn failure(status: u16, retry_after: Option<&str>) -> AttemptError {
        let headers = retry_after
            .map(|value| (RETRY_AFTER, value.parse().unwrap()))
            .into_iter()
            .collect();
        AttemptError::from_status(StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn only_calls_without_effect_are_retried_for_every_tool() {
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
    fn delays_increase_to_a_maximum_and_are_limited_in_number() {
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
    fn a_requested_delay_is_kept_or_the_call_fails() {
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
