//! Searches and reads pages: from a query or a URL to passages.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use url::Url;

use super::acting::on_behalf_of;
use super::extract::RawPage;
use super::fetch::Fetcher;
use super::pages::Pages;
use super::provider::{Hit, ProviderAnswer, ProviderQuery};
use super::providers::Providers;
use super::rank::{self, Candidate, Ranker};
use super::settings::{SearchSettings, Settings};
use super::stats::{Tally, WebStats};
use super::{
    Document, DomainFilter, Extractor, PageContent, PageQuery, SearchQuery, SearchResult,
    SearchResults, SetupError, WebError,
};
use protocol::ids::Owner;
use sandbox::compute::ComputeError;

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

impl Web {
    /// Takes the settings; opens no connection and starts no process.
    ///
    /// # Errors
    /// When a provider or a list of hosts cannot be used as configured.
    pub fn new(settings: &Settings, tasks: &TaskTracker) -> Result<Self, SetupError> {
        let fetcher = Fetcher::new(&settings.fetch)?;
        Ok(Self(Arc::new(Inner {
            providers: Providers::new(settings)?,
            pages: Pages::new(fetcher, &settings.search),
            extractor: Extractor::new(settings.extractor.clone(), tasks),
            ranker: Ranker::new(settings.embeddings.clone())?,
            settings: settings.search.clone(),
            read: Tally::default(),
        })))
    }

    /// Most results of a search.
    pub fn max_results(&self) -> usize {
        self.0.settings.max_results
    }

    /// The outcomes of requests to providers and of pages, without cached answers.
    pub fn stats(&self) -> WebStats {
        WebStats {
            searches: self.0.providers.outcomes(),
            pages: self.0.read.outcomes(),
        }
    }

    /// Checks that pages can be parsed on this host.
    ///
    /// # Errors
    /// When no confined process can be started.
    pub async fn check_parser(&self) -> Result<(), ComputeError> {
        self.0.extractor.check().await
    }

    /// Tries each search provider. For each its name, and why it cannot be used.
    ///
    /// # Errors
    /// When a provider cannot be used as configured.
    pub async fn try_providers(
        settings: &Settings,
    ) -> Result<Vec<(&'static str, Result<(), String>)>, SetupError> {
        Ok(Providers::new(settings)?
            .try_all(&settings.certificates)
            .await)
    }

    /// Ends the processes that parse pages.
    pub fn close(&self) {
        self.0.extractor.close();
    }

    /// Searches, reads the pages of the results and selects the best passages.
    ///
    /// # Errors
    /// When no provider answers. For a page that cannot be read, the summary of the provider is used.
    ///
    /// # Cancel safety
    /// Dropping the future cancels all its work.
    pub async fn search(&self, query: &SearchQuery) -> Result<SearchResults, WebError> {
        on_behalf_of(&query.owner, self.search_all(query)).await
    }

    async fn search_all(&self, query: &SearchQuery) -> Result<SearchResults, WebError> {
        let answers = query
            .queries
            .iter()
            .map(|text| self.ask_providers(query, text));
        let (mut lists, mut notices, mut provider) = (Vec::new(), Vec::new(), None);
        let mut failed = None;
        for (text, answer) in query.queries.iter().zip(join_all(answers).await) {
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
        let hidden = documents
            .iter()
            .flatten()
            .filter(|read| read.hidden)
            .count();
        if hidden > 0 {
            notices.push(format!(
                "the text of {hidden} source(s) is hidden until the scripts of the page run, which were not run"
            ));
        }
        dedup(&mut notices);
        let candidates = hits.iter().zip(&documents).map(candidate).collect();
        let chosen = self
            .0
            .ranker
            .pack(&query.queries, candidates, query.budget)
            .await;
        let results = chosen.into_iter().filter_map(|chosen| {
            let hit = hits.get(chosen.candidate)?;
            let document = documents.get(chosen.candidate)?.as_ref();
            Some(SearchResult {
                url: hit.url.clone(),
                title: title(hit, document).to_owned(),
                date: document
                    .and_then(|document| document.date.clone())
                    .or_else(|| hit.date.clone()),
                passages: chosen.passages,
            })
        });
        Ok(SearchResults {
            results: results.collect(),
            provider,
            notices,
        })
    }

    /// Reads one page.
    ///
    /// # Errors
    /// When the page may not be fetched, cannot be fetched or cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future cancels all its work.
    pub async fn read(&self, query: &PageQuery) -> Result<PageContent, WebError> {
        on_behalf_of(&query.owner, self.read_page(query)).await
    }

    async fn read_page(&self, query: &PageQuery) -> Result<PageContent, WebError> {
        let (url, document) = self
            .document(&query.owner, &query.url, &query.domains)
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
        Ok(PageContent {
            url: url.into(),
            title: document.title,
            date: document.date,
            kind: document.kind,
            passages,
            whole: whole && !document.cut,
            hidden: document.hidden,
        })
    }

    async fn ask_providers(
        &self,
        query: &SearchQuery,
        text: &str,
    ) -> Result<Arc<ProviderAnswer>, WebError> {
        let provider_query = ProviderQuery {
            query: text,
            max_results: query.max_results,
            freshness: query.freshness,
            domains: &query.domains,
            location: query.location.as_deref(),
        };
        let scope = query.owner.as_str();
        self.0.providers.search(&provider_query, scope).await
    }

    /// The pages of the first hits that are read in time, in the order of the hits.
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
                let read = self.document(&query.owner, &hit.url, &query.domains).await;
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
        owner: &Owner,
        url: &str,
        domains: &DomainFilter,
    ) -> Result<(Url, Document), WebError> {
        let document = self.fetch_and_parse(owner, url, domains).await;
        self.0.read.count(&document);
        document
    }

    async fn fetch_and_parse(
        &self,
        owner: &Owner,
        url: &str,
        domains: &DomainFilter,
    ) -> Result<(Url, Document), WebError> {
        let failed = |error: &dyn std::error::Error| WebError::Failed(error.to_string());
        let fetched = self.0.pages.get(owner.as_str(), url, domains).await;
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

/// Merges the hits of several queries by rank, each page once.
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

/// The text of the page that came with the hit.
fn known(hit: &Hit) -> Option<Document> {
    let text = hit.text.as_ref().filter(|text| !text.trim().is_empty())?;
    Some(Document {
        title: hit.title.clone(),
        date: hit.date.clone(),
        canonical: None,
        kind: super::DocumentKind::Text,
        markdown: text.clone(),
        hidden: false,
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
