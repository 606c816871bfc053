//! Decides whether, where and when a failed call is retried.
//!
//! Pure: it does not wait. A retry is only allowed before the first delta has reached the client; the caller checks this.

mod hint;

use std::time::Duration;

use super::UpstreamError;
use ::http::{HeaderMap, StatusCode};
use net::Backoff;
use protocol::openai::error::ReportedError;

/// Error codes of an exhausted account. Waiting does not help.
const BILLING_WORDS: [&str; 3] = [
    "insufficient_quota",
    "billing_not_active",
    "billing_hard_limit_reached",
];
/// Error codes of a request that is too long, which some servers report with a 5xx status.
const TOO_LONG_WORDS: [&str; 1] = ["context_length_exceeded"];
/// Words with which servers refuse a prompt that is too long.
const LONG_PROMPT_WORDS: [&str; 8] = [
    "context_length_exceeded",
    "exceed_context_size",
    "context length",
    "context size",
    "context window",
    "prompt is too long",
    "input is too long",
    "too many tokens",
];
/// Words of transient errors inside a stream.
const TRANSIENT_WORDS: [&str; 13] = [
    "server_error",
    "internal server error",
    "internalservererror",
    "internal_error",
    "overloaded",
    "rate_limit",
    "rate limit",
    "resource_exhausted",
    "too many requests",
    "unavailable",
    "timeout",
    "timed out",
    "api_error",
];
/// Largest random addition to a computed delay, as a fraction of it.
const JITTER: f64 = 0.25;
/// Longest sum of the delays of one call, in units of `max_delay`. Then the failure is final.
/// Tried by `retry::the_sum_of_the_delays_is_bounded`.
const TOTAL_DELAYS: u32 = 2;

/// How failed calls are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most attempts per upstream, the first one included.
    pub max_attempts: u32,
    /// The delay before the first retry; doubled for each further one.
    pub base_delay: Duration,
    /// The longest delay. An upstream that asks for more is not retried. All delays of one call together are at most
    /// twice this.
    pub max_delay: Duration,
}

/// The attempts of one call over its candidates.
#[derive(Debug, Clone)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    upstreams: usize,
    upstream: usize,
    tries: u32,
    waited: Duration,
}

/// The next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextAttempt {
    /// The candidate, from 0.
    pub(crate) upstream: usize,
    /// The wait before it.
    pub(crate) delay: Duration,
}

/// What can help after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// A retry of the same upstream.
    Retry,
    /// Another upstream, but not this one.
    NextUpstream,
    /// The request is not repeated, because it is at fault itself.
    None,
}

/// Whether the upstream refused a prompt because it is too long for the model.
pub fn is_too_long(error: &UpstreamError) -> bool {
    let UpstreamError::Status { status, body, .. } = error else {
        return false;
    };
    let refuses = [400, 413, 422].contains(&status.as_u16()) || status.is_server_error();
    let body = String::from_utf8_lossy(body).to_lowercase();
    refuses && LONG_PROMPT_WORDS.iter().any(|word| body.contains(word))
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            base_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(30),
        }
    }
}

impl Attempts {
    /// Starts with the first attempt at the first candidate.
    pub(crate) fn new(policy: RetryPolicy, upstreams: usize) -> Self {
        Self {
            policy,
            upstreams,
            upstream: 0,
            tries: 1,
            waited: Duration::ZERO,
        }
    }

    /// The current candidate, from 0.
    pub(crate) fn upstream(&self) -> usize {
        self.upstream
    }

    /// Decides what follows the failure of the current attempt. `None` if the error is final.
    pub(crate) fn next(&mut self, error: &UpstreamError) -> Option<NextAttempt> {
        let delay = match remedy(error) {
            Remedy::None => return None,
            Remedy::NextUpstream => None,
            Remedy::Retry => self.delay(error),
        };
        if let Some(delay) = delay {
            self.tries += 1;
            self.waited += delay;
            return Some(NextAttempt {
                upstream: self.upstream,
                delay,
            });
        }
        if self.upstream + 1 >= self.upstreams {
            return None;
        }
        self.upstream += 1;
        self.tries = 1;
        Some(NextAttempt {
            upstream: self.upstream,
            delay: Duration::ZERO,
        })
    }

    /// The delay before a retry of the same upstream; `None` if there is no such retry.
    fn delay(&self, error: &UpstreamError) -> Option<Duration> {
        if self.tries >= self.policy.max_attempts {
            return None;
        }
        let backoff = Backoff {
            base: self.policy.base_delay,
            max: self.policy.max_delay,
            jitter: JITTER,
        };
        let computed = backoff.delay(self.tries.saturating_sub(1));
        let requested = server_delay(error).unwrap_or(Duration::ZERO);
        let delay = computed.max(requested);
        let budget = self.policy.max_delay.saturating_mul(TOTAL_DELAYS);
        (requested <= self.policy.max_delay && self.waited.saturating_add(delay) <= budget)
            .then_some(delay)
    }
}

/// Classifies a failure by its status and its body.
pub(crate) fn remedy(error: &UpstreamError) -> Remedy {
    match error {
        UpstreamError::Connect { .. }
        | UpstreamError::Timeout { .. }
        | UpstreamError::Broken { .. }
        | UpstreamError::Incomplete { .. }
        | UpstreamError::Malformed {
            retryable: true, ..
        } => Remedy::Retry,
        UpstreamError::Malformed {
            retryable: false, ..
        } => Remedy::NextUpstream,
        UpstreamError::RequestBody => Remedy::None,
        UpstreamError::Status {
            status,
            headers,
            body,
            ..
        } => status_remedy(*status, headers, body),
        UpstreamError::InStream { error, .. } => in_stream_remedy(error),
    }
}

/// The delay that the upstream asked for, if any.
pub(crate) fn server_delay(error: &UpstreamError) -> Option<Duration> {
    match error {
        UpstreamError::Status {
            status,
            headers,
            body,
            ..
        } => hint::in_headers(headers)
            .or_else(|| hint::in_text(&String::from_utf8_lossy(body)))
            .or_else(|| {
                // Other answers have these headers as well.
                let limited = *status == StatusCode::TOO_MANY_REQUESTS;
                limited.then(|| hint::of_limits(headers)).flatten()
            }),
        UpstreamError::InStream { error, .. } => hint::in_text(error),
        UpstreamError::Connect { .. }
        | UpstreamError::Timeout { .. }
        | UpstreamError::Broken { .. }
        | UpstreamError::Incomplete { .. }
        | UpstreamError::Malformed { .. }
        | UpstreamError::RequestBody => None,
    }
}

fn status_remedy(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Remedy {
    let names = |words: &[&str]| {
        words
            .iter()
            .any(|word| memchr::memmem::find(body, word.as_bytes()).is_some())
    };
    let forbids_retry = headers
        .get("x-should-retry")
        .is_some_and(|value| value == "false");
    let remedy = code_remedy(status.as_u16());
    match remedy {
        Remedy::Retry if names(&BILLING_WORDS) || forbids_retry => Remedy::NextUpstream,
        Remedy::Retry | Remedy::NextUpstream
            if status.is_server_error() && names(&TOO_LONG_WORDS) =>
        {
            Remedy::None
        }
        Remedy::Retry | Remedy::NextUpstream | Remedy::None => remedy,
    }
}

fn code_remedy(code: u16) -> Remedy {
    match code {
        408 | 409 | 425 | 429 | 500 | 502 | 503 | 504 | 529 => Remedy::Retry,
        501 | 505..=599 => Remedy::NextUpstream,
        _ => Remedy::None,
    }
}

fn in_stream_remedy(error: &str) -> Remedy {
    let lower = error.to_lowercase();
    let names = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if names(&BILLING_WORDS) {
        return Remedy::NextUpstream;
    }
    if names(&TOO_LONG_WORDS) {
        return Remedy::None;
    }
    match ReportedError::read(error).status {
        Some(status) => code_remedy(status),
        None if names(&TRANSIENT_WORDS) => Remedy::Retry,
        None => Remedy::None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;

    fn status(code: u16, headers: &[(&'static str, &str)], body: &str) -> UpstreamError {
        UpstreamError::Status {
            upstream: "u".into(),
            status: StatusCode::from_u16(code).unwrap(),
            headers: Box::new(
                headers
                    .iter()
                    .map(|(name, value)| {
                        (
                            ::http::HeaderName::from_static(name),
                            value.parse().unwrap(),
                        )
                    })
                    .collect(),
            ),
            body: body.to_owned().into(),
        }
    }

    fn in_stream(error: &str) -> UpstreamError {
        UpstreamError::InStream {
            upstream: "u".into(),
            error: error.into(),
        }
    }

    #[test]
    fn failures_are_classified_by_status_then_by_body() {
        for code in [408, 409, 425, 429, 500, 502, 503, 504, 529] {
            assert_eq!(remedy(&status(code, &[], "{}")), Remedy::Retry, "{code}");
        }
        for code in [302, 400, 401, 402, 403, 404, 413, 422] {
            assert_eq!(remedy(&status(code, &[], "")), Remedy::None, "{code}");
        }
        for (error, expected) in [
            (status(501, &[], ""), Remedy::NextUpstream),
            (
                status(429, &[], r#"{"error":{"code":"insufficient_quota"}}"#),
                Remedy::NextUpstream,
            ),
            (
                status(429, &[], r#"{"error":{"type":"billing_not_active"}}"#),
                Remedy::NextUpstream,
            ),
            (
                status(500, &[], r#"{"error":{"code":"context_length_exceeded"}}"#),
                Remedy::None,
            ),
            (
                status(500, &[("x-should-retry", "false")], ""),
                Remedy::NextUpstream,
            ),
            (in_stream(r#"{"code":503,"message":"x"}"#), Remedy::Retry),
            (in_stream(r#"{"code":"500"}"#), Remedy::Retry),
            (
                in_stream(r#"{"code":400,"message":"overloaded"}"#),
                Remedy::None,
            ),
            (
                in_stream(r#"{"type":"server_error","code":null}"#),
                Remedy::Retry,
            ),
            (in_stream(r#"{"type":"overloaded_error"}"#), Remedy::Retry),
            (
                in_stream(r#"{"code":"rate_limit_exceeded"}"#),
                Remedy::Retry,
            ),
            (
                in_stream(r#"{"code":"insufficient_quota"}"#),
                Remedy::NextUpstream,
            ),
            (
                in_stream(r#"{"type":"invalid_request_error"}"#),
                Remedy::None,
            ),
            (in_stream(r#""Internal Server Error""#), Remedy::Retry),
        ] {
            assert_eq!(remedy(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn failures_without_a_response_are_classified_by_kind() {
        let upstream: Arc<str> = "u".into();
        for (error, expected) in [
            (UpstreamError::RequestBody, Remedy::None),
            (
                UpstreamError::Connect {
                    upstream: upstream.clone(),
                    source: "refused".into(),
                },
                Remedy::Retry,
            ),
            (
                UpstreamError::Timeout {
                    upstream: upstream.clone(),
                    phase: "first byte",
                    limit: Duration::from_secs(1),
                },
                Remedy::Retry,
            ),
            (
                UpstreamError::Broken {
                    upstream: upstream.clone(),
                    reason: "reset".into(),
                },
                Remedy::Retry,
            ),
            (
                UpstreamError::Malformed {
                    upstream: upstream.clone(),
                    reason: "no JSON".into(),
                    retryable: true,
                },
                Remedy::Retry,
            ),
            (
                UpstreamError::Malformed {
                    upstream,
                    reason: "status 302".into(),
                    retryable: false,
                },
                Remedy::NextUpstream,
            ),
        ] {
            assert_eq!(remedy(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn the_servers_delay_is_read_from_every_place() {
        for (error, expected) in [
            (status(429, &[], ""), None),
            (status(429, &[("retry-after", "7")], ""), Some(7_000)),
            (status(429, &[("retry-after", "1.5")], ""), Some(1_500)),
            (
                status(429, &[("retry-after", "7"), ("retry-after-ms", "20")], ""),
                Some(20),
            ),
            (
                status(429, &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], ""),
                Some(0),
            ),
            (status(429, &[("retry-after", "soon")], ""), None),
            (status(429, &[("retry-after", "-3")], ""), None),
            (status(429, &[("retry-after", "NaN")], ""), None),
            (status(429, &[], r#"{"retry_after":2}"#), Some(2_000)),
            (
                status(429, &[], r#"{"error":{"retry_after":"2"}}"#),
                Some(2_000),
            ),
            (in_stream(r#"{"retry_after":3}"#), Some(3_000)),
        ] {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(server_delay(&error), expected, "{error:?}");
        }
        let far = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(600));
        let delay = server_delay(&status(429, &[("retry-after", &far)], "")).unwrap();
        assert!(delay > Duration::from_secs(590), "{delay:?}");
    }

    #[test]
    fn the_servers_delay_is_read_in_every_form() {
        for (error, expected) in [
            (status(429, &[("retry-after", "0.8s")], ""), Some(800)),
            (
                status(429, &[("retry-after-ms", "x"), ("retry-after", "1m1s")], ""),
                Some(61_000),
            ),
            (
                in_stream(r#"[{"error":{"details":[{"@type":"t"},{"retryDelay":"0.8s"}]}}]"#),
                Some(800),
            ),
            (
                status(429, &[], r#"{"error":{"retry_after_ms":20}}"#),
                Some(20),
            ),
            (
                status(
                    429,
                    &[],
                    r#"{"error":{"metadata":{"headers":{"X-RateLimit-Reset":"1445412480000"}}}}"#,
                ),
                Some(0),
            ),
            (
                status(
                    429,
                    &[],
                    r#"{"error":{"message":"Limit reached. Please try again in 800ms."}}"#,
                ),
                Some(800),
            ),
            (
                status(
                    429,
                    &[],
                    r#"{"error":{"message":"Please retry after 20 seconds."}}"#,
                ),
                Some(20_000),
            ),
            (
                status(429, &[], "Please retry in 1m2.5s. Bye"),
                Some(62_500),
            ),
            (
                status(429, &[], "try again in a while, then again after 3s"),
                Some(3_000),
            ),
        ] {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(server_delay(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn the_reset_of_a_limit_counts_where_nothing_remains_of_it() {
        for (error, expected) in [
            (
                status(
                    429,
                    &[
                        ("x-ratelimit-reset-tokens", "800ms"),
                        ("x-ratelimit-remaining-tokens", "0"),
                        ("x-ratelimit-reset-requests", "1h"),
                        ("x-ratelimit-remaining-requests", "17"),
                    ],
                    "",
                ),
                Some(800),
            ),
            (
                status(
                    429,
                    &[
                        ("x-ratelimit-reset-tokens", "1s"),
                        ("x-ratelimit-reset-requests", "1m2s"),
                    ],
                    "",
                ),
                Some(62_000),
            ),
            (
                status(
                    429,
                    &[
                        ("anthropic-ratelimit-tokens-reset", "2015-10-21T07:28:00Z"),
                        ("anthropic-ratelimit-tokens-remaining", "0"),
                    ],
                    "",
                ),
                Some(0),
            ),
            (status(429, &[("x-ratelimit-reset", "2")], ""), Some(2_000)),
            (status(503, &[("x-ratelimit-reset", "2")], ""), None),
        ] {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(server_delay(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn each_upstream_is_tried_in_turn_with_growing_delays() {
        let mut attempts = Attempts::new(RetryPolicy::default(), 2);
        let error = status(500, &[], "");
        let mut seen = Vec::new();
        while let Some(attempt) = attempts.next(&error) {
            assert_eq!(attempts.upstream(), attempt.upstream);
            seen.push((attempt.upstream, attempt.delay.as_secs_f64()));
        }
        let bounds = [(0, 0.5), (0, 1.0), (1, 0.0), (1, 0.5), (1, 1.0)];
        assert_eq!(seen.len(), bounds.len(), "{seen:?}");
        for ((upstream, delay), (expected, least)) in seen.into_iter().zip(bounds) {
            assert_eq!(upstream, expected);
            assert!(
                delay >= least && delay <= least * 1.25,
                "{delay} for {least}"
            );
        }
    }

    #[test]
    fn a_final_failure_ends_the_attempts_and_an_exhausted_account_changes_the_upstream() {
        let mut attempts = Attempts::new(RetryPolicy::default(), 2);
        assert_eq!(attempts.next(&status(400, &[], "")), None);
        let moved = NextAttempt {
            upstream: 1,
            delay: Duration::ZERO,
        };
        let quota = status(429, &[], "insufficient_quota");
        assert_eq!(attempts.next(&quota), Some(moved));
        assert_eq!(attempts.next(&quota), None);
    }

    #[test]
    fn an_upstream_that_asks_for_too_long_a_delay_is_not_retried() {
        let asks = |seconds: &str| status(429, &[("retry-after", seconds)], "");
        let mut attempts = Attempts::new(RetryPolicy::default(), 2);
        assert_eq!(
            attempts.next(&asks("20")).unwrap().delay,
            Duration::from_secs(20)
        );
        let moved = attempts.next(&asks("31")).unwrap();
        assert_eq!((moved.upstream, moved.delay), (1, Duration::ZERO));
        assert_eq!(attempts.next(&asks("99999999999")), None);
    }

    #[test]
    fn the_sum_of_the_delays_is_bounded() {
        let policy = RetryPolicy {
            max_attempts: 100,
            ..RetryPolicy::default()
        };
        let mut attempts = Attempts::new(policy, 1);
        let error = status(503, &[("retry-after", "25")], "");
        let waited: Duration = std::iter::from_fn(|| attempts.next(&error))
            .map(|attempt| attempt.delay)
            .sum();
        assert_eq!(waited, Duration::from_secs(50));
    }

    #[test]
    fn servers_say_in_many_ways_that_a_prompt_is_too_long() {
        for (code, body, expected) in [
            (400, r#"{"error":{"code":"context_length_exceeded"}}"#, true),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 8192 tokens."}"#,
                true,
            ),
            (
                400,
                r#"{"error":{"type":"exceed_context_size_error"}}"#,
                true,
            ),
            (500, r#"{"error":{"code":"context_length_exceeded"}}"#, true),
            (400, r#"{"error":{"message":"no such field"}}"#, false),
            (
                429,
                r#"{"error":{"message":"too many tokens per minute"}}"#,
                false,
            ),
        ] {
            assert_eq!(is_too_long(&status(code, &[], body)), expected, "{body}");
        }
    }
}
