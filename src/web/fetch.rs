//! The one client for every URL that a request, a model or a page chose.
//!
//! A URL is judged before anything happens ([`Policy`]), its name is looked up once and checked, and the very addresses
//! that were checked are connected to ([`Lookup`]); each redirect is a new URL. What answers is checked once more. No
//! proxy, cookie, credential or referrer is ever sent, and nothing that comes back is unbounded: header fields, bytes as
//! sent and as decompressed, redirects, time, and slowness.
//!
//! A connection is used again only for the same scheme, host and port, for which it was checked when it was made;
//! neither `refresh` nor alternative services are followed.

mod body;
mod error;
mod failure;
mod media;
#[cfg(test)]
pub(super) mod serving;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};
use url::Url;

pub use self::error::FetchError;

use self::body::{Bounds, Pace, Wanted};
use self::failure::no_head;
use super::DomainFilter;
use super::address::is_public;
use super::hosts::{Hosts, Turn};
use super::lookup::Lookup;
use super::robots::{Answer, Robots};
use super::settings::FetchSettings;
use super::target::{Policy, Target};
use crate::net::{self, ClientOptions, UntrustedHosts};

/// How long an unused connection is kept, and how many to one host.
const POOL_IDLE: Duration = Duration::from_secs(15);
const POOL_PER_HOST: usize = 2;
/// Most header fields of an answer, and most bytes of them.
const MAX_HEADERS: usize = 100;
const MAX_HEADER_BYTES: u32 = 64 * 1024;
/// What is told to the model of when to try again, at most.
const MAX_RETRY_AFTER: u64 = 300;
/// What can be read, best first.
const ACCEPT: &str = "text/html, application/xhtml+xml, text/markdown;q=0.9, text/plain;q=0.9, \
                      application/json;q=0.9, application/xml;q=0.9, application/pdf;q=0.8, */*;q=0.1";
const ACCEPT_LANGUAGE: &str = "en, *;q=0.5";
const ACCEPT_ENCODING: &str = "gzip, br, zstd, deflate";
/// Most bytes, redirects and time for a `robots.txt`; RFC 9309 asks for no fewer.
const ROBOTS_BYTES: usize = 500 * 1024;
const ROBOTS_REDIRECTS: usize = 5;
const ROBOTS_TIME: Duration = Duration::from_secs(10);

/// Fetches pages. Cheap to clone: clones share connections, `robots.txt` files and politeness.
#[derive(Clone)]
pub struct Fetcher(Arc<Inner>);

struct Inner {
    client: reqwest::Client,
    policy: Arc<Policy>,
    hosts: Hosts,
    robots: Option<Robots>,
    settings: FetchSettings,
    pace: Pace,
}

/// A page.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Where it was found in the end.
    pub url: Url,
    /// Its type, as the server says.
    pub content_type: Option<String>,
    /// What it holds, decompressed.
    pub body: Bytes,
    /// Whether its end is missing, because it is longer than what is read of a page.
    pub cut: bool,
}

/// Why nothing can be fetched at all; for the operator.
#[derive(Debug, thiserror::Error)]
pub enum FetcherError {
    /// A list of hosts cannot be read.
    #[error("the glob '{glob}' of the hosts to {setting} cannot be read")]
    Glob {
        /// The list.
        setting: &'static str,
        /// What cannot be read.
        glob: String,
        /// Why.
        source: globset::Error,
    },
    /// The user agent is no value of a header field.
    #[error(
        "the user agent cannot be sent: it must consist of visible ASCII characters and spaces"
    )]
    UserAgent,
    /// The client cannot be made.
    #[error("the client for web pages cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// What came of one request.
enum Hop {
    /// A head, and the right to read on.
    Response(Response, Turn),
    /// It is elsewhere.
    Redirect(String),
}

/// A page, and whether it may be kept.
pub(super) struct Kept {
    pub(super) page: Fetched,
    pub(super) may_be_kept: bool,
}

impl Fetcher {
    /// Sets the client up.
    ///
    /// # Errors
    /// When the settings cannot be used, or TLS is not to be had.
    pub fn new(settings: &FetchSettings) -> Result<Self, FetcherError> {
        Self::with_pace(settings, Pace::default())
    }

    fn with_pace(settings: &FetchSettings, pace: Pace) -> Result<Self, FetcherError> {
        let policy = Arc::new(Policy::new(settings)?);
        let agent = HeaderValue::try_from(&settings.user_agent);
        let agent = agent.map_err(|_| FetcherError::UserAgent)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPT));
        headers.insert(
            header::ACCEPT_LANGUAGE,
            HeaderValue::from_static(ACCEPT_LANGUAGE),
        );
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static(ACCEPT_ENCODING),
        );
        let options = ClientOptions {
            user_agent: Some(agent),
            headers,
            connect_timeout: settings.connect_timeout,
            pool_idle_timeout: POOL_IDLE,
            untrusted: Some(UntrustedHosts {
                resolver: Arc::new(Lookup::new(Arc::clone(&policy))),
                max_idle_per_host: POOL_PER_HOST,
                max_header_fields: MAX_HEADERS,
                max_header_bytes: MAX_HEADER_BYTES,
            }),
            ..ClientOptions::default()
        };
        let client = options.build().map_err(FetcherError::Client)?;
        Ok(Self(Arc::new(Inner {
            client,
            policy,
            hosts: Hosts::new(settings.per_host),
            robots: settings.robots.then(|| Robots::new(&settings.user_agent)),
            settings: settings.clone(),
            pace,
        })))
    }

    /// Fetches a page.
    ///
    /// # Errors
    /// When it may not be fetched, is not to be had, or is nothing that can be read.
    ///
    /// # Cancel safety
    /// Can be dropped at any time: the request ends with it.
    pub async fn get(&self, url: &str, domains: &DomainFilter) -> Result<Fetched, FetchError> {
        Ok(self.get_to_keep(url, domains).await?.page)
    }

    /// The same, with what the server says of keeping it.
    pub(super) async fn get_to_keep(
        &self,
        url: &str,
        domains: &DomainFilter,
    ) -> Result<Kept, FetchError> {
        let inner = &self.0;
        let deadline = Instant::now() + inner.settings.timeout;
        let mut target = inner.policy.target(url, domains)?;
        // What is elsewhere on the same host is asked for at once: together it is one page.
        let mut last_host = None;
        for redirects in 0..=inner.settings.max_redirects {
            let is_same_host = last_host.as_ref() == Some(&target.host);
            let hop = inner.visit(&target, is_same_host, deadline).await;
            match named(hop, &target, redirects)? {
                Hop::Redirect(location) => {
                    let next = inner.policy.redirected(&target, &location, domains)?;
                    last_host = Some(std::mem::replace(&mut target, next).host);
                }
                Hop::Response(response, _turn) => {
                    let page = inner.read(&target, response, deadline).await;
                    return named(page, &target, redirects);
                }
            }
        }
        Err(FetchError::TooManyRedirects {
            limit: inner.settings.max_redirects,
        })
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Fetcher")
            .field(&self.0.policy)
            .finish()
    }
}

impl Inner {
    /// Asks `robots.txt`; how long after one another pages may be read.
    async fn permission(&self, target: &Target, deadline: Instant) -> Result<Duration, FetchError> {
        let Some(robots) = &self.robots else {
            return Ok(Duration::ZERO);
        };
        let ask = robots.ask(target, Box::pin(self.robots_file(target)));
        let asked = timeout_at(deadline, ask).await;
        asked.unwrap_or_else(|_| Err(self.timeout(target)))
    }

    /// One request for a page, if it may be read.
    async fn visit(
        &self,
        target: &Target,
        is_same_host: bool,
        deadline: Instant,
    ) -> Result<Hop, FetchError> {
        let delay = self.permission(target, deadline).await?;
        let interval = match is_same_host {
            true => Duration::ZERO,
            false => self.settings.host_interval.max(delay),
        };
        self.hop(target, interval, deadline).await
    }

    /// Fetches the `robots.txt` of a target's origin.
    async fn robots_file(&self, target: &Target) -> Result<Answer, FetchError> {
        let deadline = Instant::now() + ROBOTS_TIME.min(self.settings.timeout);
        // What one request may see must not decide what all are told.
        let domains = DomainFilter::default();
        let file = format!("{}/robots.txt", target.origin());
        let mut at = self.policy.target(&file, &domains)?;
        for redirects in 0..=ROBOTS_REDIRECTS {
            let hop = self.hop(&at, Duration::ZERO, deadline).await;
            match named(hop, &at, redirects)? {
                Hop::Redirect(location) => at = self.policy.redirected(&at, &location, &domains)?,
                Hop::Response(response, _turn) => {
                    let status = response.status();
                    if !status.is_success() {
                        return Ok(Answer::Status(status));
                    }
                    let bounds = self.bounds(&at, ROBOTS_BYTES, deadline);
                    let (text, _cut) = body::read(response, Wanted::Anything, &bounds).await?;
                    return Ok(Answer::File(text));
                }
            }
        }
        Err(FetchError::TooManyRedirects {
            limit: ROBOTS_REDIRECTS,
        })
    }

    /// One request, up to the head of its answer.
    async fn hop(
        &self,
        target: &Target,
        interval: Duration,
        deadline: Instant,
    ) -> Result<Hop, FetchError> {
        let host = || target.host.clone();
        let turn = timeout_at(deadline, self.hosts.enter(&target.host, interval)).await;
        let turn = turn.map_err(|_| FetchError::Busy { host: host() })?;
        let request = reqwest::Request::new(http::Method::GET, target.url.clone());
        let response = timeout_at(deadline, self.client.execute(request)).await;
        let response = response
            .map_err(|_| self.timeout(target))?
            .map_err(|error| no_head(target, &error))?;
        // The second line: whatever was checked, this is whom the connection is with.
        let peer = response.remote_addr();
        if !target.is_private && !peer.is_some_and(|peer| is_public(peer.ip())) {
            return Err(FetchError::Address { host: host() });
        }
        let headers = response.headers().iter();
        let bytes: usize = headers
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum();
        if bytes > MAX_HEADER_BYTES as usize {
            return Err(FetchError::Headers { host: host() });
        }
        if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(Hop::Response(response, turn));
        }
        let location = response.headers().get(header::LOCATION);
        let location = location.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
        match location {
            Some(location) => Ok(Hop::Redirect(location.to_owned())),
            None => Ok(Hop::Response(response, turn)),
        }
    }

    /// Reads the page behind a head.
    async fn read(
        &self,
        target: &Target,
        response: Response,
        deadline: Instant,
    ) -> Result<Kept, FetchError> {
        let status = response.status();
        let has_content = status.is_success()
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
        if !has_content {
            return Err(FetchError::Status {
                host: target.host.clone(),
                status,
                retry_after: retry_after(response.headers()),
            });
        }
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type =
            content_type.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let may_be_kept = !forbids_keeping(response.headers());
        let bounds = self.bounds(target, self.settings.max_bytes, deadline);
        let wanted = Wanted::Readable(content_type.as_deref());
        let (body, cut) = body::read(response, wanted, &bounds).await?;
        let page = Fetched {
            url: target.url.clone(),
            content_type,
            body,
            cut,
        };
        Ok(Kept { page, may_be_kept })
    }

    fn bounds<'t>(&self, target: &'t Target, max_bytes: usize, deadline: Instant) -> Bounds<'t> {
        Bounds {
            host: &target.host,
            max_bytes,
            deadline,
            out_of_time: self.timeout(target),
            pace: self.pace,
        }
    }

    fn timeout(&self, target: &Target) -> FetchError {
        FetchError::Timeout {
            host: target.host.clone(),
            seconds: self
                .settings
                .timeout
                .as_millis()
                .div_ceil(1000)
                .try_into()
                .unwrap_or(u64::MAX),
        }
    }
}

/// After a redirect, an error is about a page that nobody asked for by this name.
fn named<T>(
    result: Result<T, FetchError>,
    target: &Target,
    redirects: usize,
) -> Result<T, FetchError> {
    result.map_err(|error| match redirects {
        0 => error,
        _ => target.not_read(error),
    })
}

/// Seconds after which to try again, where that is soon.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let seconds = net::retry_after(headers)?.as_secs();
    (1..=MAX_RETRY_AFTER).contains(&seconds).then_some(seconds)
}

/// Whether `cache-control` says that the answer must not be stored.
fn forbids_keeping(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    let mut directives = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    directives.any(|directive| directive.trim().eq_ignore_ascii_case("no-store"))
}
