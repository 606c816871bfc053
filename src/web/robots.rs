//! `robots.txt`: whether the operator of a site lets programs read a page (RFC 9309).
//!
//! A file that is not there (4xx) allows everything; one that cannot be had (5xx, no answer in time) forbids everything,
//! as the standard demands, for a minute. One that is behind more redirects than are followed counts as not there.

mod rules;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moka::Expiry;
use moka::future::Cache;
use reqwest::StatusCode;

use self::rules::{Rules, product_token};
use super::fetch::FetchError;
use super::target::Target;

/// How long a file is taken to be the current one.
const KEPT: Duration = Duration::from_secs(3600);
/// How long a site is left alone whose file cannot be had.
const UNREACHABLE_KEPT: Duration = Duration::from_secs(60);
/// Most bytes of all files that are kept.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// What an entry takes besides its rules.
const ENTRY_BYTES: usize = 512;

/// The files of the sites that were read lately.
#[derive(Debug)]
pub(super) struct Robots {
    product: String,
    files: Cache<String, Said>,
}

/// What a server answers for its file.
#[derive(Debug)]
pub(super) enum Answer {
    /// The file.
    File(Bytes),
    /// Another status than success.
    Status(StatusCode),
}

/// What a site says.
#[derive(Debug, Clone)]
enum Said {
    Rules(Arc<Rules>),
    Unreachable,
}

struct Lifetime;

impl Expiry<String, Said> for Lifetime {
    fn expire_after_create(&self, _: &String, said: &Said, _: Instant) -> Option<Duration> {
        Some(match said {
            Said::Rules(_) => KEPT,
            Said::Unreachable => UNREACHABLE_KEPT,
        })
    }
}

impl Robots {
    /// For a program with this user agent.
    pub(super) fn new(user_agent: &str) -> Self {
        let files = Cache::builder()
            .weigher(|origin: &String, said: &Said| {
                let rules = match said {
                    Said::Rules(rules) => rules.size(),
                    Said::Unreachable => 0,
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

    /// Whether a page may be read; the delay between requests that the site asks for. `file` is fetched where it is not
    /// known, by one of all who ask at the same time.
    pub(super) async fn ask(
        &self,
        target: &Target,
        file: impl Future<Output = Result<Answer, FetchError>>,
    ) -> Result<Duration, FetchError> {
        let host = || target.host.clone();
        let read = async { self.said(file.await) };
        let said = self.files.try_get_with(target.origin(), read).await;
        match said.map_err(|error: Arc<FetchError>| FetchError::clone(&error))? {
            Said::Unreachable => Err(FetchError::RobotsUnreachable { host: host() }),
            Said::Rules(rules) if rules.allow(&target.url) => Ok(rules.delay),
            Said::Rules(_) => Err(FetchError::Robots { host: host() }),
        }
    }

    /// # Errors
    /// What would keep the page from being read as well; not remembered.
    fn said(&self, answer: Result<Answer, FetchError>) -> Result<Said, FetchError> {
        let nothing = || Ok(Said::Rules(Arc::default()));
        match answer {
            Ok(Answer::File(text)) => Ok(Said::Rules(Arc::new(Rules::read(&text, &self.product)))),
            Ok(Answer::Status(status)) if status.is_server_error() => Ok(Said::Unreachable),
            Ok(Answer::Status(_)) | Err(FetchError::TooManyRedirects { .. }) => nothing(),
            Err(
                error @ (FetchError::Address { .. }
                | FetchError::Unresolved { .. }
                | FetchError::Connect { .. }
                | FetchError::Certificate { .. }
                | FetchError::Busy { .. }),
            ) => Err(error),
            Err(_) => Ok(Said::Unreachable),
        }
    }
}
