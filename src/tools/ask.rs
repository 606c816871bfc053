//! What a request asks of the server's own tools, in whatever dialect it asked.

use std::sync::Arc;

use crate::web::{DomainFilter, Location};

/// Something that a request can ask for without declaring a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Code execution.
    Code,
    /// Web search.
    Web,
}

/// What a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks {
    /// Of code execution; absent where the request does not ask for it.
    pub code: Option<CodeAsk>,
    /// Of the web; absent where the request does not ask for it.
    pub web: Option<WebAsk>,
}

/// What a request that asks for code execution wants of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeAsk {
    /// Files to produce.
    pub wanted: Vec<WantedFile>,
}

/// A file that the caller of a request wants produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedFile {
    /// The path relative to the working directory.
    pub name: String,
    /// What kind of file it is to be, in the caller's words.
    pub format: Option<String>,
    /// What it is to hold, in the caller's words.
    pub description: Option<String>,
}

/// What a request that asks for the web wants of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebAsk {
    /// How much of what is found the model is given.
    pub context_size: ContextSize,
    /// Where the user is.
    pub location: Option<Arc<Location>>,
    /// Which hosts may be seen.
    pub domains: Arc<DomainFilter>,
    /// The description of the search tool that the model is given, in place of the usual one.
    pub search_description: Option<String>,
    /// The description of the page reader that the model is given, in place of the usual one.
    pub extract_description: Option<String>,
}

/// How much of what is found the model is given by one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContextSize {
    /// About 4,000 tokens.
    Low,
    /// About 8,000 tokens.
    #[default]
    Medium,
    /// About 16,000 tokens.
    High,
}

impl Asks {
    /// Whether the request asks for anything.
    pub fn any(&self) -> bool {
        self.code.is_some() || self.web.is_some()
    }
}

impl ContextSize {
    /// The budget of one result.
    pub fn tokens(self) -> usize {
        match self {
            Self::Low => 4096,
            Self::Medium => 8192,
            Self::High => 16_384,
        }
    }
}
