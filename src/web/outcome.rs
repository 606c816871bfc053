//! Results and errors of searching and reading.

use std::error::Error;

use super::DocumentKind;

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchResults {
    /// The results, best first.
    pub results: Vec<SearchResult>,
    /// The provider that answered.
    pub provider: &'static str,
    /// Deviations from the request, for the model: a provider that failed, pages that could not be read.
    pub notices: Vec<String>,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchResult {
    /// The URL.
    pub url: String,
    /// The title, or empty.
    pub title: String,
    /// The date as `YYYY-MM-DD`, if known.
    pub date: Option<String>,
    /// The passages that match the query best, in the order of the page; the provider's snippet if the page could not be
    /// read.
    pub passages: Vec<String>,
}

/// The text of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageContent {
    /// The URL after redirects.
    pub url: String,
    /// The title, or empty.
    pub title: String,
    /// The date as `YYYY-MM-DD`, if known.
    pub date: Option<String>,
    /// The format of the page.
    pub kind: DocumentKind,
    /// The text, or the passages that match the query, in their order.
    pub passages: Vec<String>,
    /// Whether that is the whole text.
    pub whole: bool,
    /// Whether the text is hidden until the scripts of the page run.
    pub hidden: bool,
}

/// Why a search or a page failed. The texts are for the model: they name the problem and a remedy, and no address that
/// the model has not seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// The arguments of the call are wrong.
    #[error("{0}")]
    Rejected(String),
    /// The call failed.
    #[error("{0}")]
    Failed(String),
}

/// Why search and pages cannot be used as configured. The texts are for the operator and hold neither URLs nor keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The provider has no public address.
    #[error("the search provider {0} needs a URL")]
    NoProviderUrl(&'static str),
    /// The URL is not one of the web.
    #[error("the URL of the search provider {0} must be an http or https URL")]
    ProviderUrl(&'static str),
    /// The credentials in the URL would appear in logs.
    #[error(
        "the URL of the search provider {0} must not hold credentials; give them as its API key"
    )]
    ProviderCredentials(&'static str),
    /// The provider needs a key.
    #[error("the search provider {0} needs an API key")]
    NoProviderKey(&'static str),
    /// The key is not a valid value of a header.
    #[error("the API key of the search provider {0} holds characters that a header cannot carry")]
    ProviderKey(&'static str),
    /// A list of hosts has an invalid glob.
    #[error("the glob '{glob}' of the hosts to {setting} cannot be read")]
    Glob {
        /// The list.
        setting: &'static str,
        /// The glob.
        glob: String,
        /// The error.
        source: globset::Error,
    },
    /// The user agent is not a valid value of a header.
    #[error(
        "the user agent cannot be sent: it must consist of visible ASCII characters and spaces"
    )]
    UserAgent,
    /// An HTTP client cannot be built.
    #[error("could not set up the client of {purpose}: {cause}")]
    Client {
        /// What the client is for.
        purpose: &'static str,
        /// The error with its causes.
        cause: String,
    },
}

impl SetupError {
    pub(super) fn client(purpose: &'static str, error: &reqwest::Error) -> Self {
        let cause = error_chain(error);
        Self::Client { purpose, cause }
    }
}

/// An error with all its causes.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
