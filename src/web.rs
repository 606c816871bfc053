//! Web search through the operator's provider, and the text of web pages.
//!
//! All content and all URLs are hostile. One guarded client ([`fetch`]) connects to URLs that come from requests, models or
//! pages. Pages are parsed in processes that can only compute ([`extractor`]). The result is text in passages, ranked and
//! packed into a budget of tokens ([`rank`]). Knows nothing of tools, sessions or the loop.

mod acting;
mod cache;
mod date;
mod document;
mod encoding;
mod extract;
mod extractor;
pub mod fetch;
mod files;
mod outcome;
mod pages;
mod provider;
mod providers;
mod query;
mod rank;
mod search;
pub mod settings;
mod stats;
mod visible;

pub use document::{Document, DocumentKind};
pub use extract::{ExtractError, RawPage, extract};
pub use extractor::{Extractor, PAGE_PARSER, page_parser_main};
pub use files::{DownloadBudget, DownloadError, DownloadedFile, FileDownloads};
pub use outcome::{PageContent, SearchResult, SearchResults, SetupError, WebError};
pub use query::{DomainFilter, Freshness, Location, PageQuery, SearchQuery};
pub use search::Web;
pub(crate) use stats::Tally;
pub use stats::{Outcomes, WebStats};
