//! The settings of search and pages.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use net::CaCertificates;

/// All settings of search and pages.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Search providers in the order in which they are tried; at least one.
    pub providers: Vec<ProviderSettings>,
    /// Searches.
    pub search: SearchSettings,
    /// Fetching pages.
    pub fetch: FetchSettings,
    /// Parsing pages.
    pub extractor: ExtractorSettings,
    /// Embeddings for ranking passages, if set.
    pub embeddings: Option<EmbeddingSettings>,
    /// Certificate authorities for search providers, in addition to the system's.
    pub certificates: CaCertificates,
}

/// One search provider.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// The API.
    pub kind: ProviderKind,
    /// The base URL; by default the provider's public address. SearXNG has no public address.
    pub url: Option<Url>,
    /// The API key, if the provider needs one.
    pub api_key: Option<SecretString>,
    /// Most requests per minute.
    pub requests_per_minute: u32,
}

/// The supported search providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// SearXNG, run by the operator with its JSON output enabled.
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

/// Settings of searches.
#[derive(Debug, Clone)]
pub struct SearchSettings {
    /// Longest time for one answer of a provider.
    pub timeout: Duration,
    /// Most retries at one provider.
    pub max_retries: u32,
    /// Most results of a search.
    pub max_results: usize,
    /// Most pages that are read for one search; with 0 only snippets are used.
    pub max_pages: usize,
    /// Longest time for the pages of one search. Pages that are not read by then are left out.
    pub pages_timeout: Duration,
    /// How long answers of providers and pages are cached; zero disables the cache.
    pub cache_ttl: Duration,
    /// Most bytes of each cache.
    pub cache_bytes: u64,
}

/// Settings of fetching pages.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// The `user-agent` header.
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
    /// The only hosts that may be read, as globs such as `*.example.org`; an empty list permits all.
    pub allow: Vec<String>,
    /// Hosts that may not be read, as globs.
    pub block: Vec<String>,
    /// Hosts that may be read on any port and with private addresses, as globs.
    pub private: Vec<String>,
    /// Whether `robots.txt` is honoured.
    pub robots: bool,
    /// Most requests to one host at the same time.
    pub per_host: usize,
    /// Shortest interval between requests to one host.
    pub host_interval: Duration,
}

/// Settings of parsing pages.
#[derive(Debug, Clone)]
pub struct ExtractorSettings {
    /// The loopwright binary, which is run as parser.
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
    /// The API key.
    pub api_key: Option<SecretString>,
    /// The model.
    pub model: String,
    /// Longest time for one answer.
    pub timeout: Duration,
    /// Certificate authorities that are trusted in addition to the system's.
    pub certificates: CaCertificates,
}

impl ProviderKind {
    /// All providers.
    pub const ALL: [Self; 6] = [
        Self::SearXng,
        Self::Brave,
        Self::Tavily,
        Self::Exa,
        Self::Serper,
        Self::DuckDuckGo,
    ];

    /// The name in the configuration.
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

/// The hosts from which files are downloaded that requests name by their URLs.
#[derive(Debug, Clone)]
pub struct FileUrlSettings {
    /// Globs of hosts on the public internet, which are reached by `https` only.
    pub hosts: Vec<String>,
    /// Globs of hosts that may have private addresses, any port and no encryption.
    pub private: Vec<String>,
    /// The ports of `hosts`.
    pub ports: Vec<u16>,
    /// Longest time for the files of one request.
    pub timeout: Duration,
    /// Most bytes that the files of one request may have together.
    pub max_bytes: usize,
}
