//! Answers that were given lately, each only for those who asked for it.

use std::future::Future;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tokio::time::Instant;

use super::provider::{Hit, Lookup};
use super::providers::Answer;
use super::{DomainFilter, Freshness, Location, WebError};

/// The answers, within a number of bytes.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    kept: Cache<Key, Kept>,
    ttl: Duration,
}

/// What was asked, by whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    scope: String,
    query: String,
    max_results: usize,
    freshness: Option<Freshness>,
    domains: DomainFilter,
    location: Option<Location>,
}

#[derive(Debug, Clone)]
struct Kept {
    answer: Arc<Answer>,
    until: Instant,
}

impl Key {
    /// The same for look-ups that differ only in blanks or in the order of domains.
    pub(super) fn new(scope: &str, lookup: &Lookup<'_>) -> Self {
        let words: Vec<&str> = lookup.query.split_whitespace().collect();
        let mut domains = lookup.domains.clone();
        for list in [&mut domains.allowed, &mut domains.blocked] {
            list.sort();
            list.dedup();
        }
        Self {
            scope: scope.to_owned(),
            query: words.join(" "),
            max_results: lookup.max_results,
            freshness: lookup.freshness,
            domains,
            location: lookup.location.cloned(),
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

impl Answers {
    /// An empty one; none where nothing is to be kept.
    pub(super) fn new(ttl: Duration, bytes: u64) -> Option<Self> {
        if ttl.is_zero() || bytes == 0 {
            return None;
        }
        let kept = Cache::builder()
            .max_capacity(bytes)
            .time_to_live(ttl)
            .weigher(|key: &Key, kept: &Kept| {
                u32::try_from(key.bytes() + bytes_of(&kept.answer)).unwrap_or(u32::MAX)
            })
            .build();
        Some(Self { kept, ttl })
    }

    /// The answer that is known, or the one that is asked for now. Whoever asks the same meanwhile waits for it. An error
    /// reaches all who wait and is not kept.
    ///
    /// # Errors
    /// Those of the question.
    pub(super) async fn get_or(
        &self,
        key: Key,
        ask: impl Future<Output = Result<Answer, WebError>>,
    ) -> Result<Arc<Answer>, WebError> {
        if let Some(kept) = self.kept.get(&key).await {
            if Instant::now() < kept.until {
                return Ok(kept.answer);
            }
            self.kept.invalidate(&key).await;
        }
        let asked = self.kept.try_get_with(key, async {
            let answer = Arc::new(ask.await?);
            let until = Instant::now() + self.ttl;
            Ok(Kept { answer, until })
        });
        match asked.await {
            Ok(kept) => Ok(kept.answer),
            Err(error) => Err(WebError::clone(&error)),
        }
    }
}

/// About how many bytes an answer takes.
fn bytes_of(answer: &Answer) -> usize {
    let of_hit = |hit: &Hit| {
        let text = hit.text.as_ref().map_or(0, String::len);
        size_of::<Hit>() + hit.url.len() + hit.title.len() + hit.snippet.len() + text
    };
    let notices: usize = answer.notices.iter().map(String::len).sum();
    size_of::<Answer>() + answer.hits.iter().map(of_hit).sum::<usize>() + notices
}
