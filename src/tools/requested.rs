//! The built-in tools that a request asks for, and its options for them. The same for all dialects.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use web::{DomainFilter, Location};

/// A built-in ability that a request can ask for without declaring a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Code execution.
    Code,
    /// Web search.
    Web,
}

/// Which requests get a built-in ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// None.
    Off,
    /// The requests that ask for it.
    OnRequest,
    /// All.
    Always,
}

/// The capabilities that a request asks for, with its options for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedTools {
    /// Code execution; `None` if the request does not ask for it.
    pub code: Option<CodeOptions>,
    /// The request does not want code execution, even if every request is offered it.
    pub declines_code: bool,
    /// Web search; `None` if the request does not ask for it.
    pub web: Option<WebOptions>,
    /// The dispatch URL gets only the declared functions that patterns of the settings name: clients of this dialect
    /// declare tools of their own machine, such as a shell.
    pub only_named_functions: bool,
}

/// The options of code execution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeOptions {
    /// The files that the code is to produce.
    pub wanted: Vec<WantedFile>,
}

/// A file that a request asks the code to produce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedFile {
    /// The path relative to the working directory.
    pub name: String,
    /// The kind of file, as free text of the caller.
    pub format: Option<String>,
    /// The content of the file, as free text of the caller.
    pub description: Option<String>,
}

/// The options of web search and page reading.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebOptions {
    /// The size of each result for the model.
    pub context_size: ContextSize,
    /// Where the user is.
    pub location: Option<Arc<Location>>,
    /// The hosts whose pages may be returned.
    pub domains: Arc<DomainFilter>,
    /// Replaces the description of the search tool.
    pub search_description: Option<String>,
    /// Replaces the description of the tool that reads pages.
    pub extract_description: Option<String>,
}

/// The size of the result of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextSize {
    /// About 4,000 tokens.
    Low,
    /// About 8,000 tokens.
    #[default]
    Medium,
    /// About 16,000 tokens.
    High,
}

/// OpenAI's hosted tool type for code execution.
pub const CODE_INTERPRETER: &str = "code_interpreter";
/// OpenAI's hosted tool types for web search; they may be followed by a date, as in `web_search_2025_08_26`.
const WEB_SEARCH_TYPES: [&str; 2] = ["web_search_preview", "web_search"];

impl Capability {
    /// The capability that a hosted tool type asks for.
    pub fn of_type(kind: &str) -> Option<Self> {
        let dated = |rest: &str| {
            let mut bytes = rest.bytes();
            rest.is_empty()
                || (rest.starts_with('_')
                    && bytes.all(|byte| byte.is_ascii_digit() || byte == b'_'))
        };
        let mut searches = WEB_SEARCH_TYPES.iter();
        match kind {
            CODE_INTERPRETER => Some(Self::Code),
            kind => searches
                .any(|search| kind.strip_prefix(search).is_some_and(dated))
                .then_some(Self::Web),
        }
    }

    /// The flag that has the server offer it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Code => "--enable-code-execution",
            Self::Web => "--enable-search",
        }
    }
}

impl RequestedTools {
    /// Whether the request asks for anything.
    pub fn any(&self) -> bool {
        self.code.is_some() || self.web.is_some()
    }
}

impl ContextSize {
    /// The size of one result in tokens.
    pub fn tokens(self) -> usize {
        match self {
            Self::Low => 4096,
            Self::Medium => 8192,
            Self::High => 16_384,
        }
    }
}
