//! The web: searching it through the operator's provider, and reading pages of it.
//!
//! Every byte that comes back is hostile, and so is every URL that a model asks for. One guarded client ([`fetch`]) makes
//! every connection that a request, a model or a page chose; parsing happens in processes that can do nothing but
//! compute ([`extractor`]); what comes out is text in passages, ranked and packed into a budget of tokens ([`rank`]).
//! Knows nothing of tools, sessions or the loop.

mod cache;
mod document;
mod domains;
mod outcome;
mod provider;
mod providers;
mod query;
mod rank;
pub mod settings;
mod tokens;

pub use document::{Document, DocumentKind};
pub use domains::DomainFilter;
pub use outcome::{Findings, Found, Reading, WebError};
pub use query::{Freshness, Location, PageQuery, SearchQuery};

#[derive(Debug, Clone)]
pub struct Web(std::sync::Arc<rank::Ranker>);
impl Web {
    pub async fn search(&self, _: &SearchQuery) -> Result<Findings, WebError> {
        Err(WebError::Failed(String::new()))
    }
    pub async fn read(&self, _: &PageQuery) -> Result<Reading, WebError> {
        Err(WebError::Failed(String::new()))
    }
    pub fn max_results(&self) -> usize {
        10
    }
}
