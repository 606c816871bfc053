//! The cache of fetched pages, separate for each scope.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::future::Cache;
use url::Url;

use super::fetch::{FetchError, Fetched, Fetcher};
use super::settings::SearchSettings;
use super::{DomainFilter, ENTRY_BYTES};

/// Fetches pages through a cache. Concurrent requests for a page share one fetch. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    fetcher: Fetcher,
    cache: Option<Cache<PageKey, Entry>>,
}

/// The page and its scope. The domains are part of it because they decide which redirects are followed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PageKey {
    scope: String,
    url: String,
    domains: DomainFilter,
}

#[derive(Debug, Clone)]
struct Entry {
    page: Fetched,
    is_cacheable: bool,
}

impl PageKey {
    fn bytes(&self) -> usize {
        let domains = self.domains.allowed.iter().chain(&self.domains.blocked);
        let texts = [&self.scope, &self.url].into_iter().chain(domains);
        texts.map(|text| text.len() + size_of::<String>()).sum()
    }
}

struct Lifetime {
    ttl: Duration,
}

impl Expiry<PageKey, Entry> for Lifetime {
    fn expire_after_create(&self, _: &PageKey, entry: &Entry, _: Instant) -> Option<Duration> {
        // A page that may not be cached is still shared by concurrent requests.
        Some(match entry.is_cacheable {
            true => self.ttl,
            false => Duration::ZERO,
        })
    }
}

impl Pages {
    /// A cache within the settings, or none.
    pub(super) fn new(fetcher: Fetcher, settings: &SearchSettings) -> Self {
        let ttl = settings.cache_ttl;
        let cache = (!ttl.is_zero() && settings.cache_bytes > 0).then(|| {
            Cache::builder()
                .weigher(|key: &PageKey, entry: &Entry| {
                    let bytes = entry.page.body.len() + key.bytes() + ENTRY_BYTES;
                    u32::try_from(bytes).unwrap_or(u32::MAX)
                })
                .max_capacity(settings.cache_bytes)
                .expire_after(Lifetime { ttl })
                .build()
        });
        Self { fetcher, cache }
    }

    /// Fetches a page for a scope.
    ///
    /// # Errors
    /// The errors of [`Fetcher::get`]; they are not cached.
    pub(super) async fn get(
        &self,
        scope: &str,
        url: &str,
        domains: &DomainFilter,
    ) -> Result<Fetched, FetchError> {
        let Some(cache) = &self.cache else {
            return self.fetcher.get(url, domains).await;
        };
        let key = PageKey {
            scope: scope.to_owned(),
            url: without_fragment(url),
            domains: domains.clone(),
        };
        let fetch = Box::pin(async {
            let fetched = self.fetcher.get_cacheable(url, domains).await?;
            Ok(Entry {
                page: fetched.page,
                is_cacheable: fetched.is_cacheable,
            })
        });
        let entry = cache.try_get_with(key, fetch).await;
        entry
            .map(|entry| entry.page)
            .map_err(|error: Arc<FetchError>| FetchError::clone(&error))
    }
}

/// The URL without fragment. A text that is not a URL is returned as it is, and the fetcher refuses it.
fn without_fragment(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut read) => {
            read.set_fragment(None);
            read.into()
        }
        Err(_) => url.to_owned(),
    }
}
