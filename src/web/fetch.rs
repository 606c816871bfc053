//! The guarded client for URLs that come from requests, models or pages.
//!
//! A URL is checked first ([`UrlPolicy`]). Its name is resolved once, the addresses are checked, and only these addresses
//! are connected to ([`GuardedResolver`]). The address of the connection is checked again. Each redirect is handled as a new
//! URL. No proxy is used, and no cookie, credential or referrer is sent. Header fields, bytes as sent and as decompressed,
//! redirects, time and slowness are limited.
//!
//! A connection is reused only for the scheme, host and port for which it was checked. `refresh` and alternative services
//! are not followed.

mod address;
mod body;
mod error;
mod guarded;
mod hosts;
mod media;
mod resolver;
mod robots;
#[cfg(test)]
pub(super) mod serving;
mod target;
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

pub(crate) use self::error::FetchError;
pub use self::guarded::{GuardedHosts, HostRefusal};

use self::address::is_public;
use self::body::{BodyKind, BodyLimits, MinimumRate};
use self::hosts::{HostPermit, Hosts};
use self::resolver::{GuardedResolver, MAX_LOOKUPS};
use self::robots::{Robots, RobotsResponse};
use self::target::{Target, UrlPolicy};
use super::settings::FetchSettings;
use super::{DomainFilter, SetupError};
use net::{self, ClientOptions, UntrustedHosts};
use quota::FairSemaphore;

/// How long an unused connection is kept.
const POOL_IDLE: Duration = Duration::from_secs(15);
/// Most bytes of the header fields of a response. A response with more is an error.
/// Tried by `fetch::limits::header_fields_are_bounded`.
const MAX_HEADER_BYTES: u32 = 64 * 1024;
/// Longest delay that the model is told, in seconds; a longer one is left out.
/// Tried by `web::fetch::statuses_are_described`.
const MAX_RETRY_AFTER: u64 = 300;
/// The formats that can be read, best first.
const ACCEPT: &str = "text/html, application/xhtml+xml, text/markdown;q=0.9, text/plain;q=0.9, \
                      application/json;q=0.9, application/xml;q=0.9, application/pdf;q=0.8, */*;q=0.1";
const ACCEPT_LANGUAGE: &str = "en, *;q=0.5";
const ACCEPT_ENCODING: &str = "gzip, br, zstd, deflate";
/// Most bytes of a `robots.txt`, at least which RFC 9309 requires; the rest is left out.
const ROBOTS_BYTES: usize = 500 * 1024;
/// Most redirects of a `robots.txt`, at least which RFC 9309 requires. After them the file counts as unreachable.
const ROBOTS_REDIRECTS: usize = 5;
/// Longest time for a `robots.txt`. After it the file counts as unreachable, before the time of the page is over.
const ROBOTS_TIME: Duration = Duration::from_secs(10);

/// Fetches pages. Cheap to clone: clones share connections, `robots.txt` files and the limits per host.
#[derive(Clone)]
pub struct Fetcher(Arc<Inner>);

struct Inner {
    client: reqwest::Client,
    policy: Arc<UrlPolicy>,
    hosts: Hosts,
    robots: Option<Robots>,
    settings: FetchSettings,
    rate: MinimumRate,
}

/// A fetched page.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The URL after redirects.
    pub url: Url,
    /// The `content-type` header.
    pub content_type: Option<String>,
    /// The content, decompressed.
    pub body: Bytes,
    /// Whether the end is missing because the page exceeds the limit.
    pub cut: bool,
}

/// The result of one request.
enum Hop {
    /// The head of a response, and the permit to read its body.
    Response(Response, HostPermit),
    /// The value of `location`.
    Redirect(String),
}

/// A page, and whether it may be cached.
pub(super) struct CacheableFetch {
    pub(super) page: Fetched,
    pub(super) is_cacheable: bool,
}

impl Fetcher {
    /// Builds the client.
    ///
    /// # Errors
    /// When the settings cannot be used, or TLS cannot be set up.
    pub fn new(settings: &FetchSettings) -> Result<Self, SetupError> {
        let lookups = FairSemaphore::with_reserve(MAX_LOOKUPS);
        Self::with(settings, MinimumRate::default(), lookups)
    }

    fn with(
        settings: &FetchSettings,
        rate: MinimumRate,
        lookups: FairSemaphore,
    ) -> Result<Self, SetupError> {
        let policy = Arc::new(UrlPolicy::new(settings)?);
        let agent = HeaderValue::try_from(&settings.user_agent);
        let agent = agent.map_err(|_| SetupError::UserAgent)?;
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
                resolver: Arc::new(GuardedResolver::new(Arc::clone(&policy), lookups)),
                max_header_bytes: MAX_HEADER_BYTES,
            }),
            ..ClientOptions::default()
        };
        let client = options.build();
        let client = client.map_err(|error| SetupError::client("web pages", &error))?;
        Ok(Self(Arc::new(Inner {
            client,
            policy,
            hosts: Hosts::new(settings.per_host),
            robots: settings.robots.then(|| Robots::new(&settings.user_agent)),
            settings: settings.clone(),
            rate,
        })))
    }

    /// Fetches a page.
    ///
    /// # Errors
    /// When it may not be fetched, cannot be fetched, or has a format that cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub async fn get(&self, url: &str, domains: &DomainFilter) -> Result<Fetched, FetchError> {
        Ok(self.get_cacheable(url, domains).await?.page)
    }

    /// The same, with the permission to cache the page.
    pub(super) async fn get_cacheable(
        &self,
        url: &str,
        domains: &DomainFilter,
    ) -> Result<CacheableFetch, FetchError> {
        let inner = &self.0;
        let deadline = Instant::now() + inner.settings.timeout;
        let mut target = inner.policy.target(url, domains)?;
        // A redirect on the same host needs no further delay: both requests are for one page.
        let mut last_host = None;
        for redirects in 0..=inner.settings.max_redirects {
            let is_same_host = last_host.as_ref() == Some(&target.host);
            let hop = inner.visit(&target, is_same_host, deadline).await;
            match named(hop, &target, redirects)? {
                Hop::Redirect(location) => {
                    let next = inner.policy.redirected(&target, &location, domains)?;
                    last_host = Some(std::mem::replace(&mut target, next).host);
                }
                Hop::Response(response, _permit) => {
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
    /// Checks `robots.txt`, and returns the interval between requests that it demands.
    async fn permission(&self, target: &Target, deadline: Instant) -> Result<Duration, FetchError> {
        let Some(robots) = &self.robots else {
            return Ok(Duration::ZERO);
        };
        let ask = robots.ask(target, Box::pin(self.robots_file(target)));
        let asked = timeout_at(deadline, ask).await;
        asked.unwrap_or_else(|_| Err(self.timeout(target)))
    }

    /// One request for a page, if `robots.txt` permits it.
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

    /// Fetches the `robots.txt` of the target's origin.
    async fn robots_file(&self, target: &Target) -> Result<RobotsResponse, FetchError> {
        let deadline = Instant::now() + ROBOTS_TIME.min(self.settings.timeout);
        // The file is shared by all requests, so the filter of one must not apply.
        let domains = DomainFilter::default();
        let file = format!("{}/robots.txt", target.origin());
        let mut at = self.policy.target(&file, &domains)?;
        for redirects in 0..=ROBOTS_REDIRECTS {
            let hop = self.hop(&at, Duration::ZERO, deadline).await;
            match named(hop, &at, redirects)? {
                Hop::Redirect(location) => at = self.policy.redirected(&at, &location, &domains)?,
                Hop::Response(response, _permit) => {
                    let status = response.status();
                    if !status.is_success() {
                        return Ok(RobotsResponse::Status(status));
                    }
                    let bounds = self.bounds(&at, ROBOTS_BYTES, deadline);
                    let (text, _cut) = body::read(response, BodyKind::Anything, &bounds).await?;
                    return Ok(RobotsResponse::File(text));
                }
            }
        }
        Err(FetchError::TooManyRedirects {
            limit: ROBOTS_REDIRECTS,
        })
    }

    /// One request, up to the head of its response.
    async fn hop(
        &self,
        target: &Target,
        interval: Duration,
        deadline: Instant,
    ) -> Result<Hop, FetchError> {
        let host = || target.host.clone();
        let permit = timeout_at(deadline, self.hosts.enter(&target.host, interval)).await;
        let permit = permit.map_err(|_| FetchError::Busy { host: host() })?;
        let request = reqwest::Request::new(http::Method::GET, target.url.clone());
        let response = timeout_at(deadline, self.client.execute(request)).await;
        let response = response
            .map_err(|_| self.timeout(target))?
            .map_err(|error| FetchError::no_response(&target.host, &error))?;
        // A second check, independent of the resolver: the address of the actual connection.
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
            return Ok(Hop::Response(response, permit));
        }
        let location = response.headers().get(header::LOCATION);
        let location = location.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
        match location {
            Some(location) => Ok(Hop::Redirect(location.to_owned())),
            None => Ok(Hop::Response(response, permit)),
        }
    }

    /// Reads the body of a response as a page.
    async fn read(
        &self,
        target: &Target,
        response: Response,
        deadline: Instant,
    ) -> Result<CacheableFetch, FetchError> {
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
        let is_cacheable = !forbids_caching(response.headers());
        let bounds = self.bounds(target, self.settings.max_bytes, deadline);
        let wanted = BodyKind::Readable(content_type.as_deref());
        let (body, cut) = body::read(response, wanted, &bounds).await?;
        let page = Fetched {
            url: target.url.clone(),
            content_type,
            body,
            cut,
        };
        Ok(CacheableFetch { page, is_cacheable })
    }

    fn bounds<'t>(
        &self,
        target: &'t Target,
        max_bytes: usize,
        deadline: Instant,
    ) -> BodyLimits<'t> {
        BodyLimits {
            host: &target.host,
            max_bytes,
            deadline,
            timed_out: self.timeout(target),
            rate: self.rate,
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

/// Names the target of a redirect in an error, since the caller does not have it.
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

/// The delay that the server requests, in seconds, if it is short.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let seconds = net::retry_after(headers)?.as_secs();
    (1..=MAX_RETRY_AFTER).contains(&seconds).then_some(seconds)
}

/// Whether `cache-control` forbids storing the response.
fn forbids_caching(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    let mut directives = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    directives.any(|directive| directive.trim().eq_ignore_ascii_case("no-store"))
}
