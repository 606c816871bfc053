//! What can be configured about the web.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

/// Everything about search and pages.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Search providers in the order in which they are tried; at least one.
    pub providers: Vec<ProviderSettings>,
    /// How a search is made.
    pub search: SearchSettings,
    /// How pages are fetched.
    pub fetch: FetchSettings,
    /// How pages are parsed.
    pub extractor: ExtractorSettings,
    /// Passages are ranked again with embeddings, where this is set.
    pub embeddings: Option<EmbeddingSettings>,
}

/// One search provider.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// Which.
    pub kind: ProviderKind,
    /// Where, without a path of the API's own; the provider's public address by default. SearXNG has none.
    pub url: Option<Url>,
    /// The API key, for those that want one.
    pub api_key: Option<SecretString>,
    /// Most requests per minute.
    pub requests_per_minute: u32,
}

/// The search providers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// A SearXNG of the operator's, with its JSON output switched on.
    SearXng,
    /// Brave Search.
    Brave,
    /// Tavily.
    Tavily,
    /// Exa.
    Exa,
    /// Serper: Google's results.
    Serper,
    /// DuckDuckGo's HTML page, which needs no key.
    DuckDuckGo,
}

/// How a search is made.
#[derive(Debug, Clone)]
pub struct SearchSettings {
    /// Longest time for one answer of a provider.
    pub timeout: Duration,
    /// Most retries at one provider.
    pub max_retries: u32,
    /// Most results that are asked for.
    pub max_results: usize,
    /// Most result pages that are read for one search; none = snippets only.
    pub max_pages: usize,
    /// Longest time for the pages of one search: what has not come by then is left out.
    pub pages_timeout: Duration,
    /// How long answers of providers and pages are kept; zero = not at all.
    pub cache_ttl: Duration,
    /// Most bytes of them.
    pub cache_bytes: u64,
}

/// How pages are fetched.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// What servers are told about who asks.
    pub user_agent: String,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest time for a page, redirects included.
    pub timeout: Duration,
    /// Most bytes of a page, as sent and when decompressed.
    pub max_bytes: usize,
    /// Most redirects.
    pub max_redirects: usize,
    /// Ports that may be connected to.
    pub ports: Vec<u16>,
    /// Hosts (globs, such as `*.example.org`) that alone may be read; all where there is none.
    pub allow: Vec<String>,
    /// Hosts (globs) that may not be read.
    pub block: Vec<String>,
    /// Hosts (globs), with any port, that may be read though their addresses are private.
    pub private: Vec<String>,
    /// Whether `robots.txt` is honoured.
    pub robots: bool,
    /// Most requests to one host at the same time.
    pub per_host: usize,
    /// Shortest time between the beginnings of two requests to one host.
    pub host_interval: Duration,
}

/// How pages are parsed.
#[derive(Debug, Clone)]
pub struct ExtractorSettings {
    /// loopwright itself, of which the parsing processes are run.
    pub program: PathBuf,
    /// Most parsing processes.
    pub processes: usize,
    /// Longest time for one page.
    pub timeout: Duration,
    /// Most memory of one process, in bytes.
    pub memory: u64,
}

/// Embeddings of an upstream.
#[derive(Debug, Clone)]
pub struct EmbeddingSettings {
    /// The upstream's `/v1/embeddings`.
    pub url: Url,
    /// Its key.
    pub api_key: Option<SecretString>,
    /// The model.
    pub model: String,
    /// Longest time for one answer.
    pub timeout: Duration,
}

impl ProviderKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::SearXng,
        Self::Brave,
        Self::Tavily,
        Self::Exa,
        Self::Serper,
        Self::DuckDuckGo,
    ];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SearXng => "searxng",
            Self::Brave => "brave",
            Self::Tavily => "tavily",
            Self::Exa => "exa",
            Self::Serper => "serper",
            Self::DuckDuckGo => "duckduckgo",
        }
    }
}
