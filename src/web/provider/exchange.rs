//! One request to a provider and its answer, bounded in time and size, with retries.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use ::http::header::{ACCEPT_ENCODING, RETRY_AFTER};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use rand::RngExt;
use reqwest::redirect::{Attempt, Policy};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::io::StreamReader;
use url::Url;

use super::{Problem, Provider, SetupError};
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
/// The delay before the first retry; it doubles with each further one.
const BASE_DELAY: Duration = Duration::from_millis(250);
/// Longest delay that a provider may ask for; beyond it the next provider is the better choice.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3);
/// The part of a delay that chance may add at most.
const JITTER: f64 = 0.5;
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
        let mut builder = reqwest::Client::builder();
        let encrypted = |url: &Url| url.scheme() == "https";
        if !settings
            .providers
            .iter()
            .any(|provider| provider.url.as_ref().is_none_or(encrypted))
        {
            // Nothing here is ever encrypted, so a machine without root certificates will do.
            builder = builder.tls_certs_only([]);
        }
        let client = builder
            .user_agent(settings.fetch.user_agent.as_str())
            .redirect(Policy::custom(follow))
            .referer(false)
            .no_proxy()
            .tcp_nodelay(true)
            .pool_idle_timeout(POOL_IDLE)
            .connect_timeout(CONNECT_TIMEOUT.min(settings.search.timeout))
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
        let least = match self {
            Self::Never => return None,
            Self::Soon => BASE_DELAY * 2_u32.saturating_pow(retries.min(8)),
            Self::After(delay) if *delay > MAX_RETRY_AFTER => return None,
            Self::After(delay) => (*delay).max(BASE_DELAY),
        };
        Some(least.mul_f64(1.0 + JITTER * rand::rng().random::<f64>()))
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

/// The delay of a `retry-after`, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(
        date.duration_since(SystemTime::now())
            .unwrap_or(Duration::ZERO),
    )
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
