//! From the bytes of a page to its text: which kind it is, which charset, what of it is worth reading.
//!
//! Pure and without I/O; [`super::extractor`] runs it where it can do no harm.

mod charset;
mod clean;
mod date;
mod feed;
mod html;
mod json;
mod kind;
#[cfg(feature = "pdf")]
mod pdf;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Document, DocumentKind};

/// Longest text of a page, in bytes.
const MAX_TEXT: usize = 2 * 1024 * 1024;
/// Longest title, in characters.
const MAX_TITLE: usize = 300;
/// Longest canonical URL, in bytes.
const MAX_URL: usize = 2048;

/// A page as it was fetched.
#[derive(Debug, Clone)]
pub struct RawPage {
    /// Where it was found in the end.
    pub url: String,
    /// The header that says what it is.
    pub content_type: Option<String>,
    /// Its bytes, decompressed.
    pub body: Bytes,
    /// Whether the end is missing.
    pub cut: bool,
}

/// Why there is no text, for the model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExtractError {
    /// The page itself cannot be read.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It takes more than this many seconds.
    #[error("the page could not be read within {0} seconds; try another source")]
    TooSlow(f64),
    /// Parsing it came to its limits.
    #[error(
        "the page could not be read: it is broken, or takes too much memory; try another source"
    )]
    TooMuch,
    /// Other pages are in the way.
    #[error("too many pages are being read at the moment; try again later")]
    Busy,
    /// This server cannot read pages.
    #[error(
        "pages cannot be read, because of a fault of this server; do without them, or tell the user"
    )]
    Unavailable,
}

/// What is wrong with a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// It is nothing that can be read.
    #[error("this is {0}; only web pages, text, JSON, XML, feeds and PDF can be read")]
    Unsupported(String),
    /// It cannot be parsed.
    #[error("this {0} cannot be read: {1}")]
    Broken(String, String),
    /// There is nothing in it.
    #[error("there is no text in this {0}; {1}")]
    NoText(String, String),
}

/// Reads a page.
///
/// # Errors
/// When it is of a kind that cannot be read, is broken or has no text.
pub fn extract(page: &RawPage) -> Result<Document, ExtractError> {
    read(page).map_err(ExtractError::Refused)
}

pub(super) fn read(page: &RawPage) -> Result<Document, Refusal> {
    let kind = kind::of(page.content_type.as_deref(), &page.body)?;
    let text = || charset::decode(page, kind);
    let document = match kind {
        DocumentKind::Html => html::read(&page.url, &text())?,
        DocumentKind::Text | DocumentKind::Xml => plain(kind, text())?,
        DocumentKind::Json => plain(kind, json::indent(text()))?,
        DocumentKind::Feed => match feed::read(page) {
            Some(document) => document,
            // What does not hold what it promises can be read as what it is.
            None => plain(kind::without_feeds(&page.body), text())?,
        },
        #[cfg(feature = "pdf")]
        DocumentKind::Pdf => pdf::read(&page.body)?,
        #[cfg(not(feature = "pdf"))]
        DocumentKind::Pdf => {
            let problem = "this server was built without support for PDF";
            return Err(Refusal::Broken("PDF".to_owned(), problem.to_owned()));
        }
    };
    let document = tidy(document);
    Ok(Document {
        cut: document.cut || page.cut,
        ..document
    })
}

/// Makes sure of what a [`Document`] promises, whoever made it.
pub(super) fn tidy(document: Document) -> Document {
    let (markdown, cut) = clean::text(&document.markdown, MAX_TEXT);
    Document {
        title: clean::line(&document.title, MAX_TITLE),
        date: document.date.as_deref().and_then(date::find),
        canonical: document
            .canonical
            .filter(|url| url.len() <= MAX_URL && html::is_web(url)),
        kind: document.kind,
        markdown,
        cut: document.cut || cut,
    }
}

/// What is text already.
fn plain(kind: DocumentKind, text: String) -> Result<Document, Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::NoText("page".to_owned(), "it is empty".to_owned()));
    }
    Ok(Document {
        title: String::new(),
        date: None,
        canonical: None,
        kind,
        markdown: text,
        cut: false,
    })
}
