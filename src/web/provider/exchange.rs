//! Sends requests to providers, bounded in time and size, and retries them. The texts of problems are for the model: what
//! happened and what can be done, without secrets.

use std::io;
use std::time::Duration;

use ::http::header::ACCEPT_ENCODING;
use ::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use futures_util::TryStreamExt;
use reqwest::redirect::{Attempt, Policy};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::{Provider, SetupError};
use crate::encoding::{DecodedBody, Encoding};
use crate::outcome::error_chain;
use crate::settings::Settings;
use crate::{LONGEST_WAIT, MAX_ANSWER};
use net::{Backoff, ClientOptions, certificate_remedy, retry_after};

/// Most bytes of an error answer; the rest is left out.
const MAX_REFUSAL: usize = 64 * 1024;
/// Longest time of all attempts and the delays between them, in units of the time-out of one. After it the next
/// provider is asked.
const OVERALL_TIMEOUTS: u32 = 2;
/// Pause before a request is sent again, growing with each failure.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(250),
    max: Duration::from_secs(64),
    jitter: 0.5,
};
/// The accepted encodings. SearXNG treats a client that accepts neither as a bot.
const ACCEPTED: &str = "gzip, deflate";
/// Most redirects, all on one host. After them the answer is an error.
const MAX_REDIRECTS: usize = 3;
/// How long a provider that refused or does not answer is avoided if it names no time.
const PENALTY: Duration = Duration::from_secs(60);
/// Longest time for which a provider is avoided.
const MAX_PENALTY: Duration = Duration::from_secs(600);

/// The HTTP client of all providers; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ProviderClient {
    client: reqwest::Client,
    timeout: Duration,
    max_retries: u32,
}

/// A search that one provider did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{provider} could not be used ({problem})")]
pub(crate) struct ProviderError {
    /// The provider's name.
    pub(crate) provider: &'static str,
    /// The reason.
    pub(crate) problem: ProviderProblem,
}

/// Why a provider gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderProblem {
    /// The key is wrong, or has no right to search.
    #[error("it refused its API key: the operator must check it")]
    KeyRefused,
    /// The account has no credits.
    #[error("its quota is used up: the operator must renew it")]
    Quota,
    #[error("it asks for fewer requests: try again later")]
    RateLimited {
        /// The time until the next request, as the provider says.
        retry_after: Option<Duration>,
    },
    /// The rate limit in the configuration.
    #[error("its configured rate of requests is used up: try again in a minute")]
    Paced,
    /// The provider treats this server as a bot.
    #[error(
        "it takes this server for a robot and wants a captcha solved: try again much later; the operator can configure \
         another provider"
    )]
    Blocked,
    /// SearXNG's JSON output is disabled.
    #[error("it does not send JSON: the operator must add json to search.formats of its settings")]
    FormatOff,
    /// All engines behind SearXNG failed.
    #[error("its engines did not answer: {0}; try again later")]
    Engines(String),
    /// The answer does not have the form of this API.
    #[error("its answer cannot be used: {0}")]
    Malformed(&'static str),
    /// The answer exceeds this many bytes.
    #[error("its answer is longer than {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// No answer within this time.
    #[error("it did not answer within {} s: try again later", .0.as_secs_f64())]
    TimedOut(Duration),
    /// No connection.
    #[error("it cannot be reached: try again later; the operator must check the connection to it")]
    Unreachable {
        /// The error of the system, for the operator.
        cause: String,
    },
    /// The connection failed during the exchange.
    #[error("the connection to it broke off: try again later")]
    Broken {
        /// The error of the system, for the operator.
        cause: String,
    },
    /// A redirect to another host.
    #[error(
        "it redirects to another address, which is not followed: the operator must check its URL"
    )]
    Redirect,
    /// The request was rejected.
    #[error("it refused the request with status {}: try a simpler query", .0.as_u16())]
    Refused(StatusCode),
    /// Any other status.
    #[error("it answered with status {}: try again later", .0.as_u16())]
    Status(StatusCode),
}

/// A failed attempt.
struct FailedAttempt {
    problem: ProviderProblem,
    retry: RetryAdvice,
}

/// Whether another attempt may succeed.
enum RetryAdvice {
    Never,
    /// After the usual delay.
    Soon,
    /// After the delay that the provider requests.
    After(Duration),
}

impl ProviderClient {
    /// Builds the client; opens no connection.
    ///
    /// # Errors
    /// When the client cannot be built.
    pub(crate) fn new(settings: &Settings) -> Result<Self, SetupError> {
        let encrypted = |url: &Url| url.scheme() == "https";
        let mut urls = settings.providers.iter().map(|provider| &provider.url);
        let user_agent = HeaderValue::from_str(&settings.fetch.user_agent);
        let options = ClientOptions {
            user_agent: Some(user_agent.map_err(|_| SetupError::UserAgent)?),
            redirects: Policy::custom(follow),
            // Without a configured URL the provider's public one is used.
            tls: urls.any(|url| url.as_ref().is_none_or(encrypted)),
            certificates: settings.certificates.clone(),
            ..ClientOptions::default()
        };
        let client = options.build();
        Ok(Self {
            client: client.map_err(|error| SetupError::client("the search providers", &error))?,
            timeout: settings.search.timeout,
            max_retries: settings.search.max_retries,
        })
    }

    /// Sends a request, with retries if they may help, and returns the body of the answer.
    pub(super) async fn run(
        &self,
        provider: &Provider,
        request: &reqwest::Request,
    ) -> Result<Bytes, ProviderProblem> {
        let deadline = Instant::now() + self.timeout * OVERALL_TIMEOUTS;
        let mut retries = 0;
        loop {
            let limit = self.timeout.min(deadline - Instant::now());
            let failed = match timeout(limit, self.attempt(provider, request)).await {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err(failed)) => failed,
                Err(_) => return Err(ProviderProblem::TimedOut(self.timeout)),
            };
            let delay = failed.retry.delay(retries);
            match delay {
                Some(delay) if retries < self.max_retries && Instant::now() + delay < deadline => {
                    retries += 1;
                    sleep(delay).await;
                }
                _ => return Err(failed.problem),
            }
        }
    }

    async fn attempt(
        &self,
        provider: &Provider,
        request: &reqwest::Request,
    ) -> Result<Bytes, FailedAttempt> {
        let Some(mut request) = request.try_clone() else {
            let problem = ProviderProblem::Malformed("its request is a stream");
            return Err(FailedAttempt::last(problem));
        };
        request
            .headers_mut()
            .insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
        let response = self
            .client
            .execute(request)
            .await
            .map_err(FailedAttempt::no_response)?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status == StatusCode::OK {
            let (body, cut) = read(response, MAX_ANSWER).await?;
            return match cut {
                false => Ok(body),
                true => Err(FailedAttempt::last(ProviderProblem::TooLarge(MAX_ANSWER))),
            };
        }
        // The status counts even if the body cannot be read.
        let body = read(response, MAX_REFUSAL)
            .await
            .map(|(body, _)| body)
            .unwrap_or_default();
        let wait = retry_after(&headers).or_else(|| provider.reset(&headers));
        let problem = provider.problem(status, &body);
        Err(FailedAttempt::status(problem, status, wait))
    }
}

impl FailedAttempt {
    fn last(problem: ProviderProblem) -> Self {
        let retry = RetryAdvice::Never;
        Self { problem, retry }
    }

    fn no_response(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let cause = match certificate_remedy(&error) {
            Some(remedy) => format!("{remedy}: {}", error_chain(&error)),
            None => error_chain(&error),
        };
        let problem = match error.is_connect() {
            true => ProviderProblem::Unreachable { cause },
            false => ProviderProblem::Broken { cause },
        };
        let retry = RetryAdvice::Soon;
        Self { problem, retry }
    }

    fn unreadable(error: io::Error) -> Self {
        let cause = match error.downcast::<reqwest::Error>() {
            Ok(error) => error_chain(&error.without_url()),
            Err(error) => format!("its compressed body cannot be read: {error}"),
        };
        let problem = ProviderProblem::Broken { cause };
        let retry = RetryAdvice::Soon;
        Self { problem, retry }
    }

    fn status(problem: ProviderProblem, status: StatusCode, wait: Option<Duration>) -> Self {
        match (problem, wait) {
            (ProviderProblem::RateLimited { .. }, Some(wait)) => Self {
                problem: ProviderProblem::RateLimited {
                    retry_after: Some(wait),
                },
                retry: RetryAdvice::After(wait),
            },
            (problem @ ProviderProblem::Status(_), wait) if status.is_server_error() => Self {
                problem,
                retry: wait.map_or(RetryAdvice::Soon, RetryAdvice::After),
            },
            (problem, _) => Self::last(problem),
        }
    }
}

impl RetryAdvice {
    /// The delay before another attempt, if there is to be one.
    fn delay(&self, retries: u32) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Soon => Some(BACKOFF.delay(retries)),
            Self::After(delay) if *delay > LONGEST_WAIT => None,
            Self::After(delay) => Some(BACKOFF.lengthened((*delay).max(BACKOFF.base))),
        }
    }
}

impl ProviderProblem {
    /// The usual meaning of a status.
    pub(super) fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            401 | 403 => Self::KeyRefused,
            402 => Self::Quota,
            429 => Self::RateLimited { retry_after: None },
            400 | 422 => Self::Refused(status),
            300..=399 => Self::Redirect,
            _ => Self::Status(status),
        }
    }

    /// How long other providers are preferred.
    pub(crate) fn penalty(&self) -> Option<Duration> {
        match self {
            Self::KeyRefused
            | Self::Quota
            | Self::Blocked
            | Self::FormatOff
            | Self::TimedOut(_)
            | Self::Unreachable { .. } => Some(PENALTY),
            Self::RateLimited { retry_after } => {
                Some(retry_after.map_or(PENALTY, |delay| delay.min(MAX_PENALTY)))
            }
            Self::Paced
            | Self::Engines(_)
            | Self::Malformed(_)
            | Self::TooLarge(_)
            | Self::Broken { .. }
            | Self::Redirect
            | Self::Refused(_)
            | Self::Status(_) => None,
        }
    }

    /// The part of an error that only the operator sees.
    pub(crate) fn cause(&self) -> Option<&str> {
        let (Self::Unreachable { cause } | Self::Broken { cause }) = self else {
            return None;
        };
        Some(cause)
    }
}

/// Follows redirects on the same host only, and none from an encrypted connection to an unencrypted one: the request
/// carries the API key.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let same = attempt
        .previous()
        .first()
        .is_some_and(|first| is_same_host(first, attempt.url()));
    if same && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

fn is_same_host(from: &Url, to: &Url) -> bool {
    let upgraded = from.scheme() == "http" && to.scheme() == "https";
    from.host() == to.host()
        && (upgraded
            || (from.scheme() == to.scheme()
                && from.port_or_known_default() == to.port_or_known_default()))
}

/// The first bytes of a body, decompressed, and whether its end is missing.
async fn read(
    response: reqwest::Response,
    max_bytes: usize,
) -> Result<(Bytes, bool), FailedAttempt> {
    let encoding = Encoding::of(response.headers());
    let Some(encoding @ (Encoding::Identity | Encoding::Gzip | Encoding::Deflate)) = encoding
    else {
        let problem = "it is compressed in a way that was not asked for";
        return Err(FailedAttempt::last(ProviderProblem::Malformed(problem)));
    };
    let chunks = response.bytes_stream().map_err(io::Error::other);
    let body = DecodedBody::new(encoding, chunks, max_bytes);
    body.read().await.map_err(FailedAttempt::unreadable)
}
