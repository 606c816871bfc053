//! The configuration file: every key with its type, bounds and default. Of secrets it holds only where they are.
//!
//! `config/loopwright.toml` explains the keys. After the checks the same types hold the effective values, which
//! `check-config` prints.

pub(super) mod hooks;
pub(super) mod mcp;
pub(super) mod web;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::hooks::{ApprovalWebhookSection, ApproverSection, HookSection};
use self::mcp::{McpRequestsSection, McpServerSection};
use self::web::{FileUrlsSection, SearchSection};
use super::text::{
    AffinityHeader, BaseUrl, BrowserOrigin, EntryName, FilesDir, HostName, KeyDigest,
    ListenAddress, LogFormat, LogLevel, ModuleName, NamePattern, ProviderName, PythonProgram,
    ReplicaName, ServiceUrl, SessionHeader, StoreLocation, ToolDescription, ToolMethod, ToolName,
    ToolPermission, UpstreamKind, VariableName, WorkDir,
};
use super::value::{
    ByteSize, CommandLine, Count, DAY_MS, GIB, Headers, KIB, MIB, MINUTE_MS, RequiredTier, Seconds,
    Switch, UserIds,
};
use crate::http::settings::DEFAULT_FORWARD;
use agent::settings::{CitationStyle, ImageStyle};
use policy::rules::RuleEntry;
use sandbox::settings::{InterpreterLimits, Network};
use tools::settings::CODING_AGENT_TOOLS;
use upstream::retry::RetryPolicy;
use upstream::settings::ChosenQuirks;

/// The top level.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: ListenAddress,
    pub(super) insecure_no_auth: bool,
    pub(super) allowed_hosts: Vec<HostName>,
    pub(super) console: Switch<true>,
    pub(super) cors_origins: Vec<BrowserOrigin>,
    #[serde(default = "inference_paths")]
    pub(super) forward: Vec<NamePattern>,
    pub(super) shutdown_grace: Seconds<30_000, true>,
    /// By default the host name, if replicas share the session store.
    pub(super) replica_name: Option<ReplicaName>,
    pub(super) cluster_listen: Option<ListenAddress>,
    /// By default the address.
    pub(super) cluster_url: Option<BaseUrl>,
    pub(super) cluster_key_env: Option<VariableName>,
    pub(super) metrics_listen: Option<ListenAddress>,
    pub(super) ca_file: Option<PathBuf>,

    /// One model server; an entry of `upstreams` after the checks.
    #[serde(skip_serializing)]
    pub(super) upstream: Option<BaseUrl>,
    #[serde(skip_serializing)]
    pub(super) upstream_api_key_env: Option<VariableName>,
    #[serde(skip_serializing)]
    pub(super) upstream_kind: Option<UpstreamKind>,

    pub(super) tool_dispatch_url: Option<ServiceUrl>,
    /// By default the functions that chat completions declare, without `client_tool_names`, and none of other dialects.
    pub(super) dispatch_tools: Option<Vec<NamePattern>>,
    #[serde(default = "coding_agent_tools")]
    pub(super) client_tool_names: Vec<NamePattern>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) dispatch_headers: Headers,
    pub(super) dispatch_secret_env: Option<VariableName>,
    pub(super) dispatch_secret_file: Option<PathBuf>,
    pub(super) dispatch_timeout: Seconds<30_000>,
    pub(super) dispatch_max_retries: Count<0, 2>,
    pub(super) dispatch_max_answer_bytes: ByteSize<1, { 4 * MIB }>,
    pub(super) dispatch_sequential: bool,
    pub(super) dispatch_idempotent: bool,
    pub(super) tool_connect_timeout: Seconds<5_000>,
    pub(super) max_parallel_tools: Count<1, 8>,
    /// The least value has space for the head of a result, the note about the cut, and its tail.
    pub(super) max_result_chars: Count<256, 48_000>,
    pub(super) max_turn_bytes: ByteSize<0, { 64 * MIB }>,
    pub(super) redact_secrets: Switch<true>,

    pub(super) mcp_config: Option<PathBuf>,
    pub(super) mcp_start_timeout: Seconds<10_000>,
    pub(super) tool_search_above: Option<Count<0, 40>>,

    pub(super) plain_models: Vec<NamePattern>,
    pub(super) ignore_tools: Vec<NamePattern>,
    pub(super) agent_permission: ToolPermission,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) permissions: Vec<RuleEntry>,
    pub(super) approval_wait: Seconds<{ 5 * MINUTE_MS }, true>,
    pub(super) approval_timeout: Seconds<DAY_MS>,
    pub(super) max_tool_rounds: Count<0, 256>,
    pub(super) max_tool_calls: Option<Count<1, 0, { i64::MAX as u64 }>>,
    pub(super) max_seconds: Option<Seconds>,
    pub(super) max_total_tokens: Option<Count<1, 0, { i64::MAX as u64 }>>,
    /// The most is the number of calls that the guard remembers. A later check refuses 1, because the first call is no
    /// repetition.
    pub(super) repeat_threshold: Count<0, 3, 8>,
    pub(super) repeat_override: bool,
    pub(super) citations: CitationStyle,
    pub(super) images: ImageStyle,

    pub(super) enable_code_execution: bool,
    pub(super) code_execution_on_request: Switch<true>,
    /// A later check refuses zero, with all other times outside the range of one call.
    pub(super) code_exec_timeout: Seconds<MINUTE_MS, true>,
    pub(super) code_exec_python: PythonProgram,

    pub(super) enable_search: bool,
    /// One search provider; an entry of `search.providers` after the checks.
    #[serde(skip_serializing)]
    pub(super) search_provider: Option<ProviderName>,
    #[serde(skip_serializing)]
    pub(super) search_url: Option<ServiceUrl>,

    pub(super) session_store: StoreLocation,
    pub(super) session_ttl: Seconds<{ 30 * DAY_MS }, true>,
    pub(super) nameless_session_ttl: Seconds<DAY_MS, true>,
    pub(super) session_wait_ms: Count<0, 30_000, DAY_MS>,
    pub(super) session_max_messages: Count<1, 20_000>,
    pub(super) session_max_bytes: ByteSize<KIB, { 64 * MIB }>,
    /// By default 20 GiB, or `session_max_bytes` if that is more.
    pub(super) max_total_session_bytes: Option<ByteSize<1>>,
    pub(super) min_free_disk: ByteSize<0, GIB>,
    pub(super) session_headers: Vec<SessionHeader>,

    pub(super) answer_ttl: Seconds<DAY_MS>,
    pub(super) max_total_answer_bytes: ByteSize<KIB, GIB>,
    pub(super) max_total_event_bytes: ByteSize<KIB, { 256 * MIB }>,

    /// By default beside the session store.
    pub(super) files_dir: Option<FilesDir>,
    pub(super) max_file_bytes: ByteSize<1, { 64 * MIB }>,
    /// By default 10 GiB, or `max_file_bytes` if that is more.
    pub(super) max_total_file_bytes: Option<ByteSize<1>>,

    /// A request does not fit into a smaller body.
    pub(super) max_body_bytes: ByteSize<KIB, { 32 * MIB }>,
    pub(super) max_parsed_bytes: ByteSize<MIB, { 512 * MIB }>,
    /// The smallest buffer that the HTTP library accepts.
    pub(super) max_header_bytes: ByteSize<{ 8 * KIB }, { 64 * KIB }>,
    pub(super) max_messages: Count<1, 10_000>,
    pub(super) header_timeout: Seconds<30_000>,
    pub(super) body_timeout: Seconds<30_000>,
    pub(super) first_byte_wait: Seconds<15_000, true>,
    pub(super) keep_alive: Seconds<10_000>,
    pub(super) write_timeout: Seconds<60_000>,
    /// By default half of the file descriptors that the process may open.
    pub(super) max_connections: Option<Count<1>>,

    pub(super) log_format: LogFormat,
    pub(super) log_level: LogLevel,

    /// The default comes from the variables of OpenTelemetry.
    pub(super) otlp_endpoint: Option<ServiceUrl>,
    pub(super) otlp_contents: bool,

    pub(super) retry: RetrySection,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) upstreams: Vec<UpstreamSection>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<ToolSection>,
    /// After the checks, it includes the servers of the JSON file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) mcp_servers: BTreeMap<String, McpServerSection>,
    pub(super) mcp_requests: McpRequestsSection,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hooks: Vec<HookSection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approver: Option<ApproverSection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval_webhook: Option<ApprovalWebhookSection>,
    pub(super) file_urls: FileUrlsSection,
    /// After the checks: only if code execution is on.
    pub(super) sandbox: Option<SandboxSection>,
    /// After the checks: only if web search is on.
    pub(super) search: Option<SearchSection>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) api_keys: Vec<ApiKeySection>,
}

fn inference_paths() -> Vec<NamePattern> {
    patterns(DEFAULT_FORWARD)
}

fn coding_agent_tools() -> Vec<NamePattern> {
    patterns(CODING_AGENT_TOOLS.split_whitespace())
}

fn patterns<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<NamePattern> {
    let patterns = texts.into_iter();
    patterns.map(|text| NamePattern(text.to_owned())).collect()
}

/// `[sandbox]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SandboxSection {
    pub(super) require: RequiredTier,
    pub(super) network: Network,
    pub(super) command: CommandLine,
    pub(super) preload: Vec<ModuleName>,
    /// By default 1, or none if `max_workers` is 1.
    pub(super) spares: Option<Count<0>>,
    /// By default derived from the memory.
    pub(super) max_workers: Option<Count<1>>,
    pub(super) max_waiting: Count<0, 32>,
    pub(super) idle_ttl: Seconds<{ 20 * MINUTE_MS }>,
    pub(super) max_age: Seconds<{ 240 * MINUTE_MS }>,
    /// By default beside the session store.
    pub(super) work_dir: Option<WorkDir>,
    pub(super) saved_size: ByteSize<MIB, { 10 * GIB }>,
    pub(super) uids: UserIds,
    pub(super) limits: LimitsSection,
}

/// One entry of `[[upstreams]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamSection {
    pub(super) name: EntryName,
    pub(super) base_url: BaseUrl,
    #[serde(default)]
    pub(super) kind: UpstreamKind,
    pub(super) affinity_header: Option<AffinityHeader>,
    #[serde(default)]
    pub(super) models: Vec<NamePattern>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) model_map: BTreeMap<String, String>,
    pub(super) api_key_env: Option<VariableName>,
    pub(super) api_key_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers: Headers,
    #[serde(default)]
    pub(super) connect_timeout: Seconds<5_000>,
    #[serde(default)]
    pub(super) first_byte_timeout: Seconds<600_000>,
    #[serde(default)]
    pub(super) idle_timeout: Seconds<300_000>,
    /// The least for a short answer.
    #[serde(default)]
    pub(super) max_stream_bytes: ByteSize<{ 64 * KIB }, { 64 * MIB }>,
    #[serde(default)]
    pub(super) quirks: ChosenQuirks,
}

/// One entry of `[[tools]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolSection {
    pub(super) name: ToolName,
    pub(super) description: ToolDescription,
    pub(super) parameters: Option<toml::Table>,
    pub(super) parameters_file: Option<PathBuf>,
    /// The schema as JSON, after the checks.
    #[serde(skip)]
    pub(super) parameters_json: String,
    /// By default the dispatch URL.
    pub(super) url: Option<ServiceUrl>,
    #[serde(default)]
    pub(super) method: ToolMethod,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers: Headers,
    pub(super) secret_env: Option<VariableName>,
    pub(super) secret_file: Option<PathBuf>,
    /// The defaults of these three, without `url`, are the values of the dispatch URL.
    pub(super) timeout: Option<Seconds<30_000>>,
    pub(super) max_retries: Option<Count<0, 2>>,
    pub(super) max_answer_bytes: Option<ByteSize<1, { 4 * MIB }>>,
    #[serde(default)]
    pub(super) sequential: bool,
    #[serde(default)]
    pub(super) idempotent: bool,
    #[serde(default)]
    pub(super) read_only: bool,
    #[serde(default)]
    pub(super) destructive: Switch<true>,
    #[serde(default)]
    pub(super) open_world: Switch<true>,
    #[serde(default)]
    pub(super) repeatable: bool,
}

/// One entry of `[[api_keys]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApiKeySection {
    pub(super) name: EntryName,
    #[serde(skip_serializing)]
    pub(super) sha256: Option<KeyDigest>,
    pub(super) env: Option<VariableName>,
    /// By default the list of the top level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forward: Option<Vec<NamePattern>>,
    #[serde(default)]
    pub(super) operator: bool,
    /// By default the key says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agent_permission: Option<ToolPermission>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) permissions: Vec<RuleEntry>,
}

/// Tables whose keys are the fields of a part's settings.
macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident => $settings:ident {
        $($(#[$key_doc:meta])* $key:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub(in crate::config) struct $name {
            $($(#[$key_doc])* pub(in crate::config) $key: $type,)*
        }

        impl From<&$name> for $settings {
            fn from(section: &$name) -> Self {
                Self { $($key: section.$key.clone().into(),)* }
            }
        }
    )*};
}
use sections;

sections! {
    /// `[retry]`.
    RetrySection => RetryPolicy {
        max_attempts: Count<1, 3, 100>,
        base_delay: Seconds<500>,
        max_delay: Seconds<30_000>,
    }

    /// `[sandbox.limits]`.
    LimitsSection => InterpreterLimits {
        memory: ByteSize<{ 64 * MIB }, GIB>,
        address_space: ByteSize<{ 256 * MIB }, { 4 * GIB }>,
        processes: Count<4, 64>,
        cpus: Count<0, 1>,
        disk: ByteSize<MIB, { 256 * MIB }>,
        tmp: ByteSize<MIB, { 64 * MIB }>,
        inodes: Count<64, 4096>,
        file_size: ByteSize<{ 64 * KIB }, { 64 * MIB }>,
        open_files: Count<32, 256>,
        output: ByteSize<{ 64 * KIB }, { 64 * MIB }>,
        output_kept: ByteSize<KIB, { 32 * KIB }>,
        value: ByteSize<256, { 16 * KIB }>,
        images: Count<0, 10>,
        /// One frame of the protocol holds an image, and no more than 8 MiB.
        image_bytes: ByteSize<{ 4 * KIB }, { 4 * MIB }, { 8 * MIB }>,
        files: Count<0, 20>,
        captured_file: ByteSize<0, { 32 * MIB }>,
        captured_total: ByteSize<0, { 64 * MIB }>,
    }
}
