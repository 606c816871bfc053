//! The cache of providers' answers, separate for each scope.

use std::future::Future;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tokio::time::Instant;

use super::provider::{Hit, ProviderAnswer, ProviderQuery};
use super::{DomainFilter, Freshness, Location, WebError};

/// Recent answers, within a number of bytes.
#[derive(Debug, Clone)]
pub(super) struct AnswerCache {
    cache: Cache<SearchKey, CachedAnswer>,
    ttl: Duration,
}

/// A query and its scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SearchKey {
    scope: String,
    query: String,
    max_results: usize,
    freshness: Option<Freshness>,
    domains: DomainFilter,
    location: Option<Location>,
}

#[derive(Debug, Clone)]
struct CachedAnswer {
    answer: Arc<ProviderAnswer>,
    until: Instant,
}

impl SearchKey {
    /// Equal for queries that differ only in blanks or in the order of domains.
    pub(super) fn new(scope: &str, query: &ProviderQuery<'_>) -> Self {
        let words: Vec<&str> = query.query.split_whitespace().collect();
        let mut domains = query.domains.clone();
        for list in [&mut domains.allowed, &mut domains.blocked] {
            list.sort();
            list.dedup();
        }
        Self {
            scope: scope.to_owned(),
            query: words.join(" "),
            max_results: query.max_results,
            freshness: query.freshness,
            domains,
            location: query.location.cloned(),
        }
    }

    fn bytes(&self) -> usize {
        let domains = self.domains.allowed.iter().chain(&self.domains.blocked);
        size_of::<Self>()
            + self.scope.len()
            + self.query.len()
            + domains.map(String::len).sum::<usize>()
    }
}

impl AnswerCache {
    /// An empty cache; none if the settings disable it.
    pub(super) fn new(ttl: Duration, bytes: u64) -> Option<Self> {
        if ttl.is_zero() || bytes == 0 {
            return None;
        }
        let cache = Cache::builder()
            .max_capacity(bytes)
            .time_to_live(ttl)
            .weigher(|key: &SearchKey, cached: &CachedAnswer| {
                u32::try_from(key.bytes() + bytes_of(&cached.answer)).unwrap_or(u32::MAX)
            })
            .build();
        Some(Self { cache, ttl })
    }

    /// The cached answer, or a new one. Callers with the same key wait for one request. An error reaches all of them and is
    /// not cached.
    ///
    /// # Errors
    /// The error of `ask`.
    pub(super) async fn get_or(
        &self,
        key: SearchKey,
        ask: impl Future<Output = Result<ProviderAnswer, WebError>>,
    ) -> Result<Arc<ProviderAnswer>, WebError> {
        if let Some(cached) = self.cache.get(&key).await {
            if Instant::now() < cached.until {
                return Ok(cached.answer);
            }
            self.cache.invalidate(&key).await;
        }
        let asked = self.cache.try_get_with(key, async {
            let answer = Arc::new(ask.await?);
            let until = Instant::now() + self.ttl;
            Ok(CachedAnswer { answer, until })
        });
        match asked.await {
            Ok(cached) => Ok(cached.answer),
            Err(error) => Err(WebError::clone(&error)),
        }
    }
}

/// The approximate size of an answer in bytes.
fn bytes_of(answer: &ProviderAnswer) -> usize {
    let of_hit = |hit: &Hit| {
        let text = hit.text.as_ref().map_or(0, String::len);
        size_of::<Hit>() + hit.url.len() + hit.title.len() + hit.snippet.len() + text
    };
    let notices: usize = answer.notices.iter().map(String::len).sum();
    size_of::<ProviderAnswer>() + answer.hits.iter().map(of_hit).sum::<usize>() + notices
}
