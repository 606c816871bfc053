//! Asks the search providers in their configured order until one answers.

mod rate;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::rate::RequestRate;
use super::cache::{AnswerCache, SearchKey};
use super::provider::{
    Hit, PageTexts, Provider, ProviderAnswer, ProviderClient, ProviderError, ProviderProblem,
    ProviderQuery,
};
use super::settings::Settings;
use super::stats::{self, Outcomes, Tally};
use super::{SetupError, WebError};
use net::CaCertificates;

/// All configured providers and the cache of their answers; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Providers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    entries: Vec<Entry>,
    client: ProviderClient,
    answers: Option<AnswerCache>,
}

/// One provider.
#[derive(Debug)]
struct Entry {
    provider: Provider,
    rate: RequestRate,
    /// The end of the time in which other providers are preferred.
    avoided_until: Mutex<Option<Instant>>,
    tally: Tally,
}

impl Providers {
    /// Takes the settings; opens no connection.
    ///
    /// # Errors
    /// When a provider cannot be used as configured.
    pub(super) fn new(settings: &Settings) -> Result<Self, SetupError> {
        let texts = if settings.search.max_pages > 0 {
            PageTexts::Wanted
        } else {
            PageTexts::Unwanted
        };
        let entries = settings
            .providers
            .iter()
            .map(|provider| {
                Ok(Entry {
                    provider: Provider::new(provider, texts)?,
                    rate: RequestRate::new(provider.requests_per_minute),
                    avoided_until: Mutex::new(None),
                    tally: Tally::default(),
                })
            })
            .collect::<Result<_, SetupError>>()?;
        Ok(Self(Arc::new(Inner {
            entries,
            client: ProviderClient::new(settings)?,
            answers: AnswerCache::new(settings.search.cache_ttl, settings.search.cache_bytes),
        })))
    }

    /// The outcomes of searches by provider.
    pub(super) fn outcomes(&self) -> Vec<(&'static str, Outcomes)> {
        let entries = self.0.entries.iter();
        stats::by_provider(entries.map(|entry| (entry.provider.name(), entry.tally.outcomes())))
    }

    /// Tries each provider: a search at an operator's own provider, only a connection to others. Returns the name of
    /// each, and why it cannot be used.
    pub(super) async fn try_all(
        &self,
        certificates: &CaCertificates,
    ) -> Vec<(&'static str, Result<(), String>)> {
        let entries = self.0.entries.iter();
        let tries = entries.map(async |entry| {
            let tried = entry.provider.try_out(&self.0.client, certificates).await;
            (entry.provider.name(), tried)
        });
        join_all(tries).await
    }

    /// Answers a query from the cache or by a provider. Equal queries of one scope at the same time share a request; scopes
    /// share nothing.
    ///
    /// # Errors
    /// When no provider answered; the text names each and its problem. An answer without results is no error.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request. If another caller waits for the same answer, that caller asks again.
    pub(super) async fn search(
        &self,
        query: &ProviderQuery<'_>,
        scope: &str,
    ) -> Result<Arc<ProviderAnswer>, WebError> {
        match &self.0.answers {
            Some(answers) => {
                let key = SearchKey::new(scope, query);
                answers.get_or(key, Box::pin(self.ask(query))).await
            }
            None => self.ask(query).await.map(Arc::new),
        }
    }

    async fn ask(&self, query: &ProviderQuery<'_>) -> Result<ProviderAnswer, WebError> {
        let mut failed = Vec::new();
        for entry in self.order() {
            match entry.search(&self.0.client, query).await {
                Ok(hits) => {
                    let provider = entry.provider.name();
                    let notices = notices(&failed, &entry.provider, query.query);
                    return Ok(ProviderAnswer {
                        hits,
                        provider,
                        notices,
                    });
                }
                Err(error) => failed.push(error),
            }
        }
        let reasons: Vec<String> = failed.iter().map(ToString::to_string).collect();
        Err(WebError::Failed(format!(
            "the search failed, which says nothing about what there is to find: {}",
            reasons.join("; ")
        )))
    }

    /// Providers that failed recently come last.
    fn order(&self) -> impl Iterator<Item = &Entry> {
        let now = Instant::now();
        let (preferred, avoided): (Vec<_>, Vec<_>) = self
            .0
            .entries
            .iter()
            .partition(|entry| entry.avoided_until.lock().is_none_or(|until| until <= now));
        preferred.into_iter().chain(avoided)
    }
}

impl Entry {
    async fn search(
        &self,
        client: &ProviderClient,
        query: &ProviderQuery<'_>,
    ) -> Result<Vec<Hit>, ProviderError> {
        let provider = self.provider.name();
        let outcome = if self.rate.acquire().await {
            self.provider.search(client, query).await
        } else {
            Err(ProviderError {
                provider,
                problem: ProviderProblem::Paced,
            })
        };
        self.tally.count(&outcome);
        if let Err(error) = &outcome {
            tracing::warn!(
                provider,
                cause = error.problem.cause(),
                "the search provider {error}"
            );
        }
        match &outcome {
            Ok(_) => *self.avoided_until.lock() = None,
            Err(error) => {
                if let Some(penalty) = error.problem.penalty() {
                    *self.avoided_until.lock() = Some(Instant::now() + penalty);
                }
            }
        }
        outcome
    }
}

fn notices(failed: &[ProviderError], provider: &Provider, query: &str) -> Vec<String> {
    let name = provider.name();
    let instead = failed
        .iter()
        .map(|error| format!("{error}; {name} answered instead"));
    let cut = provider.reads_only(query).map(|chars| {
        format!("the query is too long: {name} read only the beginning of it, at most {chars} characters")
    });
    instead.chain(cut).collect()
}
