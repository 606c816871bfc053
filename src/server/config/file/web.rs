//! `[search]` and `[file_urls]`: the access to the web.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::sections;
use crate::config::text::{ProviderName, ServiceUrl, UserAgent, VariableName};
use crate::config::value::{
    ByteSize, Count, KIB, MIB, MINUTE_MS, NamePatterns, Ports, Seconds, Switch,
};
use ::web::settings::FetchSettings;

/// `[search]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct SearchSection {
    pub(in crate::config) on_request: bool,
    pub(in crate::config) timeout: Seconds<10_000>,
    pub(in crate::config) max_retries: Count<0, 1>,
    pub(in crate::config) max_results: Count<1, 10, 20>,
    pub(in crate::config) max_pages: Count<0, 6>,
    pub(in crate::config) pages_timeout: Seconds<12_000>,
    pub(in crate::config) cache_ttl: Seconds<{ 15 * MINUTE_MS }, true>,
    pub(in crate::config) cache_bytes: ByteSize<0, { 64 * MIB }>,
    pub(in crate::config) parsers: Count<1, 2>,
    pub(in crate::config) parser_timeout: Seconds<10_000>,
    /// The least for a parser, its stack and a small page.
    pub(in crate::config) parser_memory: ByteSize<{ 64 * MIB }, { 512 * MIB }>,
    pub(in crate::config) embedding_model: Option<String>,
    /// By default the first upstream.
    pub(in crate::config) embedding_upstream: Option<String>,
    pub(in crate::config) embedding_timeout: Seconds<5_000>,
    pub(in crate::config) pages: PagesSection,
    pub(in crate::config) providers: Vec<ProviderSection>,
}

/// One entry of `[[search.providers]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct ProviderSection {
    pub(in crate::config) name: ProviderName,
    pub(in crate::config) url: Option<ServiceUrl>,
    pub(in crate::config) api_key_env: Option<VariableName>,
    pub(in crate::config) api_key_file: Option<PathBuf>,
    /// The default is the limit of the provider's smallest plan.
    pub(in crate::config) requests_per_minute: Option<Count<1>>,
}

/// `[file_urls]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct FileUrlsSection {
    pub(in crate::config) hosts: NamePatterns,
    pub(in crate::config) private: NamePatterns,
    pub(in crate::config) ports: Ports,
    pub(in crate::config) timeout: Seconds<30_000>,
    pub(in crate::config) max_bytes: ByteSize<1, { 32 * MIB }>,
}

sections! {
    /// `[search.pages]`.
    PagesSection => FetchSettings {
        user_agent: UserAgent,
        connect_timeout: Seconds<5_000>,
        timeout: Seconds<15_000>,
        max_bytes: ByteSize<KIB, { 8 * MIB }>,
        max_redirects: Count<0, 5>,
        ports: Ports,
        allow: NamePatterns,
        block: NamePatterns,
        private: NamePatterns,
        robots: Switch<true>,
        per_host: Count<1, 2>,
        host_interval: Seconds<100, true>,
    }
}
