//! A search from the query to the passages, and the reading of one page.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use url::Url;

use super::extract::RawPage;
use super::fetch::Fetcher;
use super::pages::Pages;
use super::provider::{Hit, Lookup};
use super::providers::Providers;
use super::rank::{self, Candidate, Ranker};
use super::settings::{SearchSettings, Settings};
use super::stats::{Tally, WebStats};
use super::{
    Document, DomainFilter, Extractor, Findings, Found, PageQuery, Reading, SearchQuery, WebError,
};
use crate::sandbox::compute::ComputeError;

/// Search and pages; cheap to clone.
#[derive(Debug, Clone)]
pub struct Web(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    providers: Providers,
    pages: Pages,
    extractor: Extractor,
    ranker: Ranker,
    settings: SearchSettings,
    read: Tally,
}

/// Why the web cannot be used as configured; for the operator.
#[derive(Debug, thiserror::Error)]
#[error("web search cannot be set up")]
pub struct SetupError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl Web {
    /// Makes ready; connects to nothing and starts no process yet.
    ///
    /// # Errors
    /// When a provider or a list of hosts cannot be used as configured.
    pub fn new(settings: &Settings, tasks: &TaskTracker) -> Result<Self, SetupError> {
        let wrong = |error| SetupError(error);
        let fetcher = Fetcher::new(&settings.fetch).map_err(|error| wrong(error.into()))?;
        Ok(Self(Arc::new(Inner {
            providers: Providers::new(settings).map_err(|error| wrong(error.into()))?,
            pages: Pages::new(fetcher, &settings.search),
            extractor: Extractor::new(settings.extractor.clone(), tasks),
            ranker: Ranker::new(settings.embeddings.clone())
                .map_err(|error| wrong(error.into()))?,
            settings: settings.search.clone(),
            read: Tally::default(),
        })))
    }

    /// Most results of a search.
    pub fn max_results(&self) -> usize {
        self.0.settings.max_results
    }

    /// How often providers were asked, answers that are still known left out, and pages read.
    pub fn stats(&self) -> WebStats {
        WebStats {
            searches: self.0.providers.outcomes(),
            pages: self.0.read.outcomes(),
        }
    }

    /// Finds out whether pages can be parsed on this host.
    ///
    /// # Errors
    /// When there can be no confined process for it.
    pub async fn check_parser(&self) -> Result<(), ComputeError> {
        self.0.extractor.check().await
    }

    /// Ends the processes that parse pages.
    pub fn close(&self) {
        self.0.extractor.close();
    }

    /// Searches, reads what was found and chooses the best passages.
    ///
    /// # Errors
    /// When no provider answers. A page that cannot be read is not an error: it is quoted by its summary.
    ///
    /// # Cancel safety
    /// Can be dropped at any time: what runs ends with it.
    pub async fn search(&self, query: &SearchQuery) -> Result<Findings, WebError> {
        let lookups = query.queries.iter().map(|text| self.look_up(query, text));
        let (mut lists, mut notices, mut provider) = (Vec::new(), Vec::new(), None);
        let mut failed = None;
        for (text, answer) in query.queries.iter().zip(join_all(lookups).await) {
            match answer {
                Ok(answer) => {
                    provider.get_or_insert(answer.provider);
                    notices.extend(answer.notices.iter().cloned());
                    lists.push(answer.hits.clone());
                }
                Err(error) => {
                    notices.push(format!("the search for \"{text}\" failed: {error}"));
                    failed.get_or_insert(error);
                }
            }
        }
        let Some(provider) = provider else {
            return Err(
                failed.unwrap_or_else(|| WebError::Rejected("there is no query".to_owned()))
            );
        };
        let hits = merged(&lists, query.max_results);
        let documents = self.read_all(&hits, query).await;
        let unread = hits.len() - documents.iter().flatten().count();
        if unread > 0 {
            notices.push(format!(
                "of {unread} source(s) only the search engine's summary is known, not the page"
            ));
        }
        dedup(&mut notices);
        let candidates = hits.iter().zip(&documents).map(candidate).collect();
        let chosen = self
            .0
            .ranker
            .pack(&query.queries, candidates, query.budget)
            .await;
        let found = chosen.into_iter().filter_map(|chosen| {
            let hit = hits.get(chosen.candidate)?;
            let document = documents.get(chosen.candidate)?.as_ref();
            Some(Found {
                url: hit.url.clone(),
                title: title(hit, document).to_owned(),
                date: document
                    .and_then(|document| document.date.clone())
                    .or_else(|| hit.date.clone()),
                passages: chosen.passages,
            })
        });
        Ok(Findings {
            found: found.collect(),
            provider,
            notices,
        })
    }

    /// Reads one page.
    ///
    /// # Errors
    /// When the page may not be fetched, cannot be had or cannot be read.
    ///
    /// # Cancel safety
    /// Can be dropped at any time: what runs ends with it.
    pub async fn read(&self, query: &PageQuery) -> Result<Reading, WebError> {
        let (url, document) = self
            .document(&query.scope, &query.url, &query.domains)
            .await?;
        let (passages, whole) = match &query.find {
            None => {
                let (text, whole) = rank::beginning(&document.markdown, query.budget);
                (vec![text], whole)
            }
            Some(find) => {
                let candidate = Candidate {
                    title: document.title.clone(),
                    markdown: document.markdown,
                    ..Candidate::default()
                };
                let find = [find.clone()];
                let chosen = self
                    .0
                    .ranker
                    .pack(&find, vec![candidate], query.budget)
                    .await;
                match chosen.into_iter().next() {
                    Some(chosen) => (chosen.passages, chosen.whole),
                    None => (Vec::new(), true),
                }
            }
        };
        Ok(Reading {
            url: url.into(),
            title: document.title,
            date: document.date,
            kind: document.kind,
            passages,
            whole: whole && !document.cut,
        })
    }

    async fn look_up(
        &self,
        query: &SearchQuery,
        text: &str,
    ) -> Result<Arc<super::providers::Answer>, WebError> {
        let lookup = Lookup {
            query: text,
            max_results: query.max_results,
            freshness: query.freshness,
            domains: &query.domains,
            location: query.location.as_deref(),
        };
        self.0.providers.search(&lookup, &query.scope).await
    }

    /// What is behind the first hits, as far as it comes in time; by the order of the hits.
    async fn read_all(&self, hits: &[Hit], query: &SearchQuery) -> Vec<Option<Document>> {
        let mut documents: Vec<Option<Document>> = hits.iter().map(known).collect();
        let settings = &self.0.settings;
        let deadline = Instant::now() + settings.pages_timeout;
        let mut reading: FuturesUnordered<_> = hits
            .iter()
            .enumerate()
            .filter(|(_, hit)| hit.text.is_none())
            .take(settings.max_pages)
            .map(|(index, hit)| async move {
                let read = self.document(&query.scope, &hit.url, &query.domains).await;
                (index, read.ok().map(|(_, document)| document))
            })
            .collect();
        while let Ok(Some((index, document))) = timeout_at(deadline, reading.next()).await {
            if let Some(place) = documents.get_mut(index) {
                *place = document;
            }
        }
        documents
    }

    async fn document(
        &self,
        scope: &str,
        url: &str,
        domains: &DomainFilter,
    ) -> Result<(Url, Document), WebError> {
        let document = self.fetch_and_parse(scope, url, domains).await;
        self.0.read.count(&document);
        document
    }

    async fn fetch_and_parse(
        &self,
        scope: &str,
        url: &str,
        domains: &DomainFilter,
    ) -> Result<(Url, Document), WebError> {
        let failed = |error: &dyn std::error::Error| WebError::Failed(error.to_string());
        let fetched = self.0.pages.get(scope, url, domains).await;
        let fetched = fetched.map_err(|error| failed(&error))?;
        let page = RawPage {
            url: fetched.url.to_string(),
            content_type: fetched.content_type,
            body: fetched.body,
            cut: fetched.cut,
        };
        let document = self.0.extractor.extract(page).await;
        Ok((fetched.url, document.map_err(|error| failed(&error))?))
    }
}

/// The hits of several look-ups in turn, each page once.
fn merged(lists: &[Vec<Hit>], most: usize) -> Vec<Hit> {
    let mut seen = HashSet::new();
    let mut merged = Vec::new();
    let longest = lists.iter().map(Vec::len).max().unwrap_or_default();
    for rank in 0..longest {
        for hit in lists.iter().filter_map(|list| list.get(rank)) {
            if merged.len() < most && seen.insert(hit.url.clone()) {
                merged.push(hit.clone());
            }
        }
    }
    merged
}

/// The page as the provider itself sent it along.
fn known(hit: &Hit) -> Option<Document> {
    let text = hit.text.as_ref().filter(|text| !text.trim().is_empty())?;
    Some(Document {
        title: hit.title.clone(),
        date: hit.date.clone(),
        canonical: None,
        kind: super::DocumentKind::Text,
        markdown: text.clone(),
        cut: false,
    })
}

fn candidate((hit, document): (&Hit, &Option<Document>)) -> Candidate {
    Candidate {
        title: title(hit, document.as_ref()).to_owned(),
        snippet: hit.snippet.clone(),
        markdown: document
            .as_ref()
            .map_or_else(String::new, |document| document.markdown.clone()),
    }
}

fn title<'a>(hit: &'a Hit, document: Option<&'a Document>) -> &'a str {
    match document {
        Some(document) if hit.title.is_empty() => &document.title,
        _ => &hit.title,
    }
}

fn dedup(notices: &mut Vec<String>) {
    let mut seen = HashSet::new();
    notices.retain(|notice| seen.insert(notice.clone()));
}
