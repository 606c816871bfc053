//! One request to a provider and its answer, bounded in time and size, with retries.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::http::header::ACCEPT_ENCODING;
use ::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use reqwest::redirect::{Attempt, Policy};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::io::StreamReader;
use url::Url;

use super::{Problem, Provider, SetupError};
use crate::net::{Backoff, ClientOptions, retry_after};
use crate::web::encoding::Encoding;
use crate::web::settings::Settings;

/// Most bytes of an answer. With the text of twenty pages one is well below this.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Most bytes of a refusal, which is read for what it means.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// All attempts and the waits between them, in units of the longest time for one.
const OVERALL_TIMEOUTS: u32 = 2;
/// The delay before the first retry.
const BASE_DELAY: Duration = Duration::from_millis(250);
const BACKOFF: Backoff = Backoff {
    base: BASE_DELAY,
    max: Duration::from_secs(64),
    jitter: 0.5,
};
/// Longest delay that a provider may ask for; beyond it the next provider is the better choice.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3);
/// What answers may be compressed with. SearXNG takes a client that accepts neither for a robot.
const ACCEPTED: &str = "gzip, deflate";
/// Most redirects, all on one host.
const MAX_REDIRECTS: usize = 3;

/// What carries requests to providers; cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::web) struct Exchange {
    client: reqwest::Client,
    timeout: Duration,
    max_retries: u32,
}

/// An attempt that failed.
struct Failure {
    problem: Problem,
    retry: Retry,
}

/// Whether another attempt may help.
enum Retry {
    Never,
    /// Soon.
    Soon,
    /// After a time that the provider names.
    After(Duration),
}

impl Exchange {
    /// Makes the client; connects to nothing yet.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub(in crate::web) fn new(settings: &Settings) -> Result<Self, SetupError> {
        let encrypted = |url: &Url| url.scheme() == "https";
        let mut urls = settings.providers.iter().map(|provider| &provider.url);
        let user_agent = HeaderValue::from_str(&settings.fetch.user_agent);
        let options = ClientOptions {
            user_agent: Some(user_agent.map_err(|error| SetupError::Client(error.to_string()))?),
            connect_timeout: CONNECT_TIMEOUT.min(settings.search.timeout),
            pool_idle_timeout: POOL_IDLE,
            redirects: Policy::custom(follow),
            // Without a configured URL the provider's public one is used.
            tls: urls.any(|url| url.as_ref().is_none_or(encrypted)),
            ..ClientOptions::default()
        };
        let client = options
            .build()
            .map_err(|error| SetupError::Client(causes(&error)))?;
        Ok(Self {
            client,
            timeout: settings.search.timeout,
            max_retries: settings.search.max_retries,
        })
    }

    /// Makes a request, again if that may help, and gives the body of the answer.
    pub(super) async fn run(
        &self,
        provider: &Provider,
        request: &reqwest::Request,
    ) -> Result<Bytes, Problem> {
        let deadline = Instant::now() + self.timeout * OVERALL_TIMEOUTS;
        let mut retries = 0;
        loop {
            let limit = self.timeout.min(deadline - Instant::now());
            let failure = match timeout(limit, self.attempt(provider, request)).await {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err(failure)) => failure,
                Err(_) => return Err(Problem::TimedOut(self.timeout)),
            };
            let delay = failure.retry.delay(retries);
            match delay {
                Some(delay) if retries < self.max_retries && Instant::now() + delay < deadline => {
                    retries += 1;
                    sleep(delay).await;
                }
                _ => return Err(failure.problem),
            }
        }
    }

    async fn attempt(
        &self,
        provider: &Provider,
        request: &reqwest::Request,
    ) -> Result<Bytes, Failure> {
        let Some(mut request) = request.try_clone() else {
            return Err(Failure::last(Problem::Malformed("its request is a stream")));
        };
        request
            .headers_mut()
            .insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
        let response = self
            .client
            .execute(request)
            .await
            .map_err(Failure::no_head)?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status == StatusCode::OK {
            let (body, whole) = read(response, MAX_ANSWER_BYTES).await?;
            return if whole {
                Ok(body)
            } else {
                Err(Failure::last(Problem::TooLarge(MAX_ANSWER_BYTES)))
            };
        }
        // A refusal whose body does not come is a refusal all the same.
        let body = read(response, MAX_REFUSAL_BYTES)
            .await
            .map(|(body, _)| body)
            .unwrap_or_default();
        let wait = retry_after(&headers).or_else(|| provider.reset(&headers));
        Err(Failure::status(
            provider.problem(status, &body),
            status,
            wait,
        ))
    }
}

impl Failure {
    fn last(problem: Problem) -> Self {
        let retry = Retry::Never;
        Self { problem, retry }
    }

    fn no_head(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let cause = causes(&error);
        if error.is_connect() {
            let retry = Retry::Soon;
            let problem = Problem::Unreachable { cause };
            return Self { problem, retry };
        }
        Self::broken(cause)
    }

    fn broken(cause: String) -> Self {
        let retry = Retry::Soon;
        let problem = Problem::Broken { cause };
        Self { problem, retry }
    }

    fn status(problem: Problem, status: StatusCode, wait: Option<Duration>) -> Self {
        match (problem, wait) {
            (Problem::RateLimited { .. }, Some(wait)) => Self {
                problem: Problem::RateLimited {
                    retry_after: Some(wait),
                },
                retry: Retry::After(wait),
            },
            (problem @ Problem::Status(_), Some(wait)) if status.is_server_error() => Self {
                problem,
                retry: Retry::After(wait),
            },
            (problem @ Problem::Status(_), None) if status.is_server_error() => Self {
                problem,
                retry: Retry::Soon,
            },
            (problem, _) => Self::last(problem),
        }
    }
}

impl Retry {
    /// The delay before another attempt, if there is to be one.
    fn delay(&self, retries: u32) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Soon => Some(BACKOFF.delay(retries)),
            Self::After(delay) if *delay > MAX_RETRY_AFTER => None,
            Self::After(delay) => Some(BACKOFF.lengthened((*delay).max(BASE_DELAY))),
        }
    }
}

/// A key goes to the host that it was given for and to no other, and never from an encrypted connection to one that is
/// not.
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

/// The beginning of a body, decompressed, and whether that is all of it. As many bytes may be sent as may come of them.
async fn read(response: reqwest::Response, most: usize) -> Result<(Bytes, bool), Failure> {
    let encoding = Encoding::of(response.headers());
    let Some(encoding @ (Encoding::Identity | Encoding::Gzip | Encoding::Deflate)) = encoding
    else {
        return Err(Failure::last(Problem::Malformed(
            "it is compressed in a way that was not asked for",
        )));
    };
    let is_capped = Arc::new(AtomicBool::new(false));
    let sending = (response, most, Arc::clone(&is_capped));
    let sent = stream::try_unfold(sending, async |(mut response, room, is_capped)| {
        let chunk = response.chunk().await.map_err(io::Error::other)?;
        if chunk.as_ref().is_some_and(|chunk| chunk.len() > room) {
            is_capped.store(true, Ordering::Relaxed);
            return Ok::<_, io::Error>(None);
        }
        Ok(chunk.map(|chunk| {
            let room = room - chunk.len();
            (chunk, (response, room, is_capped))
        }))
    });
    let decoder = encoding.decoder(StreamReader::new(Box::pin(sent)));
    let mut body = Vec::new();
    // One more than is kept, to know whether there is more.
    let room = (most + 1) as u64;
    let read = decoder.take(room).read_to_end(&mut body).await;
    let is_capped = is_capped.load(Ordering::Relaxed);
    match read {
        // A compressed stream that is not read to its end breaks off.
        Err(error) if !is_capped => return Err(Failure::broken(unread(error))),
        Ok(_) | Err(_) => {}
    }
    let is_whole = !is_capped && body.len() <= most;
    body.truncate(most);
    Ok((body.into(), is_whole))
}

fn unread(error: io::Error) -> String {
    match error.downcast::<reqwest::Error>() {
        Ok(error) => causes(&error.without_url()),
        Err(error) => format!("its compressed body cannot be read: {error}"),
    }
}

/// An error and what lies below it.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
