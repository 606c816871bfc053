//! The web: searching it through the operator's provider, and reading pages of it.
//!
//! Every byte that comes back is hostile, and so is every URL that a model asks for. One guarded client ([`fetch`]) makes
//! every connection that a request, a model or a page chose; parsing happens in processes that can do nothing but
//! compute ([`extractor`]); what comes out is text in passages, ranked and packed into a budget of tokens ([`rank`]).
//! Knows nothing of tools, sessions or the loop.

mod address;
mod cache;
mod document;
mod domains;
mod encoding;
mod extract;
mod extractor;
pub mod fetch;
mod hosts;
mod lookup;
mod outcome;
mod pages;
mod provider;
mod providers;
mod query;
mod rank;
mod robots;
mod search;
pub mod settings;
mod stats;
mod target;
mod tokens;
mod visible;

pub use document::{Document, DocumentKind};
pub use domains::DomainFilter;
pub use extract::{ExtractError, RawPage, extract};
pub use extractor::{Extractor, PAGE_PARSER, page_parser_main};
pub use outcome::{Findings, Found, Reading, WebError};
pub use query::{Freshness, Location, PageQuery, SearchQuery};
pub use search::{SetupError, Web};
pub use stats::{Outcomes, WebStats};
