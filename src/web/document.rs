//! What a page comes to once it is read.

use serde::{Deserialize, Serialize};

/// The text of a page, as Markdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The title, or empty.
    pub title: String,
    /// When it was published or last changed, as the page says: `YYYY-MM-DD`.
    pub date: Option<String>,
    /// The URL by which the page wants to be known; no more than a claim.
    pub canonical: Option<String>,
    /// What it was made from.
    pub kind: DocumentKind,
    /// The text. Links are absolute; control characters and invisible Unicode are gone.
    pub markdown: String,
    /// Whether the end is missing, because the page is longer than what is read of one.
    pub cut: bool,
}

/// What a document was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentKind {
    /// A web page.
    Html,
    /// Plain text, Markdown included.
    Text,
    /// JSON.
    Json,
    /// XML other than a feed.
    Xml,
    /// An RSS, Atom or JSON feed.
    Feed,
    /// The text of a PDF.
    Pdf,
}
