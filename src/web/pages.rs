//! Pages that were fetched lately, each for those of one scope only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::future::Cache;
use url::Url;

use super::DomainFilter;
use super::fetch::{FetchError, Fetched, Fetcher};
use super::settings::SearchSettings;

/// What an entry takes besides its page.
const ENTRY_BYTES: usize = 512;

/// Fetches pages, and again only after a while. Those who want the same page at the same time share one request. Cheap to
/// clone.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    fetcher: Fetcher,
    kept: Option<Cache<Key, Entry>>,
}

/// Whose page, and within which domains: a redirect that one request may follow, another may not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    scope: String,
    url: String,
    domains: DomainFilter,
}

#[derive(Debug, Clone)]
struct Entry {
    page: Fetched,
    may_be_kept: bool,
}

impl Key {
    fn bytes(&self) -> usize {
        let domains = self.domains.allowed.iter().chain(&self.domains.blocked);
        let texts = [&self.scope, &self.url].into_iter().chain(domains);
        texts.map(|text| text.len() + size_of::<String>()).sum()
    }
}

struct Lifetime {
    ttl: Duration,
}

impl Expiry<Key, Entry> for Lifetime {
    fn expire_after_create(&self, _: &Key, entry: &Entry, _: Instant) -> Option<Duration> {
        // What may not be kept is still shared by those who wait for it.
        Some(match entry.may_be_kept {
            true => self.ttl,
            false => Duration::ZERO,
        })
    }
}

impl Pages {
    /// Keeps what the settings allow, or nothing.
    pub(super) fn new(fetcher: Fetcher, settings: &SearchSettings) -> Self {
        let ttl = settings.cache_ttl;
        let kept = (!ttl.is_zero() && settings.cache_bytes > 0).then(|| {
            Cache::builder()
                .weigher(|key: &Key, entry: &Entry| {
                    let bytes = entry.page.body.len() + key.bytes() + ENTRY_BYTES;
                    u32::try_from(bytes).unwrap_or(u32::MAX)
                })
                .max_capacity(settings.cache_bytes)
                .expire_after(Lifetime { ttl })
                .build()
        });
        Self { fetcher, kept }
    }

    /// Fetches a page for a scope.
    ///
    /// # Errors
    /// Those of [`Fetcher::get`]; they are not remembered.
    pub(super) async fn get(
        &self,
        scope: &str,
        url: &str,
        domains: &DomainFilter,
    ) -> Result<Fetched, FetchError> {
        let Some(kept) = &self.kept else {
            return self.fetcher.get(url, domains).await;
        };
        let key = Key {
            scope: scope.to_owned(),
            url: without_fragment(url),
            domains: domains.clone(),
        };
        let fetch = Box::pin(async {
            let kept = self.fetcher.get_to_keep(url, domains).await?;
            Ok(Entry {
                page: kept.page,
                may_be_kept: kept.may_be_kept,
            })
        });
        let entry = kept.try_get_with(key, fetch).await;
        entry
            .map(|entry| entry.page)
            .map_err(|error: Arc<FetchError>| FetchError::clone(&error))
    }
}

/// The page's name; what is no URL stays as it is and is refused by the fetcher.
fn without_fragment(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut read) => {
            read.set_fragment(None);
            read.into()
        }
        Err(_) => url.to_owned(),
    }
}
