//! `robots.txt` (RFC 9309): whether programs may read a page.
//!
//! A missing file (4xx) allows everything. A file that cannot be fetched (5xx, time-out) forbids everything for a minute, as
//! the standard demands. Too many redirects count as a missing file.

mod rules;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moka::Expiry;
use moka::future::Cache;
use reqwest::StatusCode;

use self::rules::{Rules, product_token};
use super::FetchError;
use super::target::Target;
use crate::ENTRY_BYTES;

/// How long a file is cached.
const TTL: Duration = Duration::from_secs(3600);
/// How long a file that could not be fetched forbids everything.
const UNREACHABLE_TTL: Duration = Duration::from_secs(60);
/// Most bytes of all cached files; beyond it files are fetched again.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// The cached files.
#[derive(Debug)]
pub(super) struct Robots {
    product: String,
    files: Cache<String, SiteRules>,
}

/// The response to the request for a file.
#[derive(Debug)]
pub(super) enum RobotsResponse {
    File(Bytes),
    /// Another status than success.
    Status(StatusCode),
}

/// The rules of a site.
#[derive(Debug, Clone)]
enum SiteRules {
    Rules(Arc<Rules>),
    Unreachable,
}

struct Lifetime;

impl Expiry<String, SiteRules> for Lifetime {
    fn expire_after_create(&self, _: &String, rules: &SiteRules, _: Instant) -> Option<Duration> {
        Some(match rules {
            SiteRules::Rules(_) => TTL,
            SiteRules::Unreachable => UNREACHABLE_TTL,
        })
    }
}

impl Robots {
    /// An empty cache for a program with this user agent.
    pub(super) fn new(user_agent: &str) -> Self {
        let files = Cache::builder()
            .weigher(|origin: &String, rules: &SiteRules| {
                let rules = match rules {
                    SiteRules::Rules(rules) => rules.size(),
                    SiteRules::Unreachable => 0,
                };
                u32::try_from(origin.len() + rules + ENTRY_BYTES).unwrap_or(u32::MAX)
            })
            .max_capacity(MAX_BYTES)
            .expire_after(Lifetime)
            .build();
        Self {
            product: product_token(user_agent.as_bytes()),
            files,
        }
    }

    /// Checks that a page may be read, and returns the delay between requests that the site demands. `file` is awaited if
    /// the file is not cached; concurrent callers share one request.
    pub(super) async fn ask(
        &self,
        target: &Target,
        file: impl Future<Output = Result<RobotsResponse, FetchError>>,
    ) -> Result<Duration, FetchError> {
        let host = || target.host.clone();
        let read = async { self.rules(file.await) };
        let rules = self.files.try_get_with(target.origin(), read).await;
        match rules.map_err(|error: Arc<FetchError>| FetchError::clone(&error))? {
            SiteRules::Unreachable => Err(FetchError::RobotsUnreachable { host: host() }),
            SiteRules::Rules(rules) if rules.allow(&target.url) => Ok(rules.delay),
            SiteRules::Rules(_) => Err(FetchError::Robots { host: host() }),
        }
    }

    /// # Errors
    /// An error that the page itself would have too; it is not cached.
    fn rules(&self, answer: Result<RobotsResponse, FetchError>) -> Result<SiteRules, FetchError> {
        let nothing = || Ok(SiteRules::Rules(Arc::default()));
        match answer {
            Ok(RobotsResponse::File(text)) => Ok(SiteRules::Rules(Arc::new(Rules::read(
                &text,
                &self.product,
            )))),
            Ok(RobotsResponse::Status(status)) if status.is_server_error() => {
                Ok(SiteRules::Unreachable)
            }
            Ok(RobotsResponse::Status(_)) | Err(FetchError::TooManyRedirects { .. }) => nothing(),
            Err(
                error @ (FetchError::Address { .. }
                | FetchError::Unresolved { .. }
                | FetchError::Connect { .. }
                | FetchError::Certificate { .. }
                | FetchError::Busy { .. }),
            ) => Err(error),
            Err(_) => Ok(SiteRules::Unreachable),
        }
    }
}
