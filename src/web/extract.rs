//! Turns the bytes of a page into text: format, charset, main content. Without I/O; [`super::extractor`] runs it in a
//! confined process.

mod charset;
mod clean;
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

use super::{Document, DocumentKind, MAX_TITLE_CHARS, MAX_URL_BYTES, date};

/// Longest text of a page, in bytes; the rest is cut, and the model is told so.
/// Tried by `extract::a_long_text_is_cut_and_says_so`.
const MAX_TEXT: usize = 2 * 1024 * 1024;

/// A page as fetched.
#[derive(Debug, Clone)]
pub struct RawPage {
    /// The URL after redirects.
    pub url: String,
    /// The `content-type` header.
    pub content_type: Option<String>,
    /// The content, decompressed.
    pub body: Bytes,
    /// Whether the end is missing.
    pub cut: bool,
}

/// Why a page has no text. The texts are for the model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExtractError {
    /// The page itself cannot be read.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Parsing exceeded this many seconds.
    #[error("the page could not be read within {0} seconds; try another source")]
    TooSlow(f64),
    /// Parsing exceeded its memory or failed.
    #[error(
        "the page could not be read: it is broken, or takes too much memory; try another source"
    )]
    TooMuch,
    /// No process was free in time.
    #[error("too many pages are being read at the moment; try again later")]
    Busy,
    /// This server cannot read pages.
    #[error(
        "pages cannot be read, because of a fault of this server; do without them, or tell the user"
    )]
    Unavailable,
}

/// Why a page cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The format is not supported.
    #[error("this is {0}; only web pages, text, JSON, XML, feeds and PDF can be read")]
    Unsupported(String),
    /// The page is broken.
    #[error("this {0} cannot be read: {1}")]
    Broken(String, String),
    /// The page has no text.
    #[error("there is no text in this {0}; {1}")]
    NoText(String, String),
}

/// Reads a page.
///
/// # Errors
/// When the format is not supported, or the page is broken or has no text.
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
            // A page that is not the feed it claims to be is read as text.
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

/// Enforces the guarantees of a [`Document`], whatever produced it.
pub(super) fn tidy(document: Document) -> Document {
    let (markdown, cut) = clean::text(&document.markdown, MAX_TEXT);
    Document {
        title: clean::line(&document.title, MAX_TITLE_CHARS),
        date: document.date.as_deref().and_then(date::find),
        canonical: document
            .canonical
            .filter(|url| url.len() <= MAX_URL_BYTES && html::is_web(url)),
        kind: document.kind,
        markdown,
        hidden: document.hidden,
        cut: document.cut || cut,
    }
}

/// A document of plain text.
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
        hidden: false,
        cut: false,
    })
}
