//! The text of a page.

use serde::{Deserialize, Serialize};

/// The text of a page, as Markdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The title, or empty.
    pub title: String,
    /// The date of publication or of the last change that the page states, `YYYY-MM-DD`.
    pub date: Option<String>,
    /// The canonical URL that the page claims.
    pub canonical: Option<String>,
    /// The format of the source.
    pub kind: DocumentKind,
    /// The text, with absolute links and without control characters and invisible Unicode.
    pub markdown: String,
    /// Whether the text is hidden until the scripts of the page run.
    pub hidden: bool,
    /// Whether the end is missing because the page exceeds the limit.
    pub cut: bool,
}

/// The format from which a document was made.
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
