//! What comes back from the web.

use super::DocumentKind;

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// The sources, best first.
    pub found: Vec<Found>,
    /// The provider that answered.
    pub provider: &'static str,
    /// What went otherwise than asked, for the model: a provider that failed, pages that could not be read.
    pub notices: Vec<String>,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub url: String,
    /// Its title, or empty.
    pub title: String,
    /// Its date as `YYYY-MM-DD`, where known.
    pub date: Option<String>,
    /// The passages that fit the query best, in the order in which they stand in the page; the provider's snippet where
    /// the page could not be read.
    pub passages: Vec<String>,
}

/// A page that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Where it was found in the end.
    pub url: String,
    /// Its title, or empty.
    pub title: String,
    /// Its date as `YYYY-MM-DD`, where known.
    pub date: Option<String>,
    /// What it is.
    pub kind: DocumentKind,
    /// Its text, or the passages that fit what is looked for, in their order.
    pub passages: Vec<String>,
    /// Whether that is all of it.
    pub whole: bool,
}

/// Why the web did not answer. The texts are for the model: they name the problem and what to do, and no address that
/// the model does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// The call cannot be made like this.
    #[error("{0}")]
    Rejected(String),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}
