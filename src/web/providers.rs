//! The search providers in their order: the first that answers is the answer.

mod pace;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use self::pace::Pace;
use super::WebError;
use super::cache::{Answers, Key};
use super::provider::{Exchange, Hit, Lookup, Problem, Provider, ProviderError, SetupError, Texts};
use super::settings::Settings;
use super::stats::{self, Outcomes, Tally};

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// What was found, best first; nothing where there is nothing.
    pub(super) hits: Vec<Hit>,
    /// Who found it.
    pub(super) provider: &'static str,
    /// What went otherwise than asked, for the model.
    pub(super) notices: Vec<String>,
}

/// All configured providers, and what they answered lately; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Providers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    entries: Vec<Entry>,
    exchange: Exchange,
    answers: Option<Answers>,
}

/// One provider.
#[derive(Debug)]
struct Entry {
    provider: Provider,
    pace: Pace,
    /// Until when the others are tried before it.
    rest: Mutex<Option<Instant>>,
    tally: Tally,
}

impl Providers {
    /// Makes them; connects to nothing.
    ///
    /// # Errors
    /// When one of them cannot be used as configured.
    pub(super) fn new(settings: &Settings) -> Result<Self, SetupError> {
        let texts = if settings.search.max_pages > 0 {
            Texts::Wanted
        } else {
            Texts::Unwanted
        };
        let entries = settings
            .providers
            .iter()
            .map(|provider| {
                Ok(Entry {
                    provider: Provider::new(provider, texts)?,
                    pace: Pace::new(provider.requests_per_minute),
                    rest: Mutex::new(None),
                    tally: Tally::default(),
                })
            })
            .collect::<Result<_, SetupError>>()?;
        Ok(Self(Arc::new(Inner {
            entries,
            exchange: Exchange::new(settings)?,
            answers: Answers::new(settings.search.cache_ttl, settings.search.cache_bytes),
        })))
    }

    /// How searches went, by provider.
    pub(super) fn outcomes(&self) -> Vec<(&'static str, Outcomes)> {
        let entries = self.0.entries.iter();
        stats::by_provider(entries.map(|entry| (entry.provider.name(), entry.tally.outcomes())))
    }

    /// Looks something up, unless the answer is still known. Look-ups of different scopes share nothing; the same look-up
    /// that is under way in the same scope is waited for.
    ///
    /// # Errors
    /// When no provider answered; the text names each and its problem. An answer without hits is none.
    ///
    /// # Cancel safety
    /// Dropping the future gives the request up, unless another caller waits for the same answer: that one asks then.
    pub(super) async fn search(
        &self,
        lookup: &Lookup<'_>,
        scope: &str,
    ) -> Result<Arc<Answer>, WebError> {
        match &self.0.answers {
            Some(answers) => {
                let key = Key::new(scope, lookup);
                answers.get_or(key, Box::pin(self.ask(lookup))).await
            }
            None => self.ask(lookup).await.map(Arc::new),
        }
    }

    async fn ask(&self, lookup: &Lookup<'_>) -> Result<Answer, WebError> {
        let mut failed = Vec::new();
        for entry in self.order() {
            match entry.search(&self.0.exchange, lookup).await {
                Ok(hits) => {
                    let provider = entry.provider.name();
                    let notices = notices(&failed, &entry.provider, lookup.query);
                    return Ok(Answer {
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

    /// Those that rest come last, but they come: better than no answer at all.
    fn order(&self) -> impl Iterator<Item = &Entry> {
        let now = Instant::now();
        let (ready, resting): (Vec<_>, Vec<_>) = self
            .0
            .entries
            .iter()
            .partition(|entry| entry.rest.lock().is_none_or(|until| until <= now));
        ready.into_iter().chain(resting)
    }
}

impl Entry {
    async fn search(
        &self,
        exchange: &Exchange,
        lookup: &Lookup<'_>,
    ) -> Result<Vec<Hit>, ProviderError> {
        let provider = self.provider.name();
        let outcome = if self.pace.turn().await {
            self.provider.search(exchange, lookup).await
        } else {
            Err(ProviderError {
                provider,
                problem: Problem::Paced,
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
            Ok(_) => *self.rest.lock() = None,
            Err(error) => {
                if let Some(rest) = error.problem.rest() {
                    *self.rest.lock() = Some(Instant::now() + rest);
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
