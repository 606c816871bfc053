//! Web search through the operator's provider, and the text of web pages.
//!
//! All content and all URLs are hostile. One guarded client ([`fetch`]) connects to URLs that come from requests,
//! models or pages. Pages are parsed in processes that can only compute ([`extractor`]). The result is text in
//! passages, ranked and packed into a budget of tokens ([`rank`]). Does not depend on tools, sessions or the loop.
//!
//! [`ranking`] compares texts with a query.

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
pub mod ranking;
mod search;
pub mod settings;
pub mod stats;
mod visible;

use std::time::Duration;

pub use document::{Document, DocumentKind};
pub use extract::{ExtractError, RawPage, extract};
pub use extractor::{Extractor, PAGE_PARSER, page_parser_main};
pub use files::{DownloadBudget, FileDownloads};
pub use outcome::{PageContent, SearchResult, SearchResults, SetupError, WebError};
pub use query::{DomainFilter, Freshness, Location, PageQuery, SearchQuery};
pub use search::Web;
pub use stats::{Outcomes, WebStats};

/// Longest answer of a process that parses pages, of a search provider and of a server of embeddings, in bytes: a
/// document of the maximum length, escaped. A longer one is an error.
/// Tried by `provider::failures::an_endless_answer_is_too_large`.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Longest URL, in bytes; a longer one is refused, or left out where it is found.
/// Tried by `fetch::target::what_is_no_url_of_a_public_host_is_refused_with_its_reason`.
pub const MAX_URL_BYTES: usize = 4096;
/// Longest title, in characters, as it stands outside of quotations and is as little to be trusted as they are; a
/// longer one is cut.
/// Tried by `tools::web::a_title_or_an_address_without_end_is_cut`.
pub const MAX_TITLE_CHARS: usize = 160;
/// Longest wait that a provider may request, and longest wait for the rate of requests to it. Beyond it the next
/// provider is the better choice.
/// Tried by `rate::the_wait_is_bounded`.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Memory of a cache entry without its content, in bytes.
const ENTRY_BYTES: usize = 512;
