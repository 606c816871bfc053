//! The file as it is written: every key, none of them checked beyond its type.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::input::Place;
use super::value::{HeaderText, Seconds, Size, Whole};
use super::{ConfigError, Origin, locate};
use crate::ids::CallIdStyle;
use crate::sandbox::settings::{Network, Tier};
use crate::upstream::settings::FinalCall;

/// Headers by name.
pub(super) type Headers = BTreeMap<String, HeaderText>;

/// The top level.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<String>,
    pub(super) insecure_no_auth: Option<bool>,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) cors_origins: Vec<String>,
    pub(super) shutdown_grace: Option<Seconds>,

    pub(super) upstream: Option<String>,
    pub(super) upstream_api_key_env: Option<String>,

    pub(super) tool_dispatch_url: Option<String>,
    pub(super) dispatch_tools: Option<Vec<String>>,
    pub(super) dispatch_headers: Headers,
    pub(super) dispatch_secret_env: Option<String>,
    pub(super) dispatch_secret_file: Option<PathBuf>,
    pub(super) dispatch_timeout: Option<Seconds>,
    pub(super) dispatch_max_retries: Option<Whole>,
    pub(super) dispatch_max_answer_bytes: Option<Size>,
    pub(super) dispatch_sequential: bool,
    pub(super) dispatch_idempotent: bool,
    pub(super) tool_connect_timeout: Option<Seconds>,
    pub(super) max_parallel_tools: Option<Whole>,
    pub(super) max_result_chars: Option<Whole>,

    pub(super) agent_permission: Option<String>,
    pub(super) max_tool_rounds: Option<Whole>,
    pub(super) max_tool_calls: Option<Whole>,
    pub(super) max_seconds: Option<Seconds>,
    pub(super) max_total_tokens: Option<Whole>,
    pub(super) repeat_threshold: Option<Whole>,

    pub(super) enable_code_execution: Option<bool>,
    pub(super) code_exec_timeout: Option<Seconds>,
    pub(super) code_exec_python: Option<String>,

    pub(super) enable_search: Option<bool>,
    pub(super) search_provider: Option<String>,
    pub(super) search_url: Option<String>,

    pub(super) session_store: Option<String>,
    pub(super) session_ttl: Option<Seconds>,
    pub(super) session_wait_ms: Option<Whole>,
    pub(super) session_max_messages: Option<Whole>,
    pub(super) session_headers: Vec<String>,

    pub(super) files_dir: Option<String>,
    pub(super) max_file_bytes: Option<Size>,
    pub(super) max_total_file_bytes: Option<Size>,

    pub(super) max_body_bytes: Option<Size>,
    pub(super) max_header_bytes: Option<Size>,
    pub(super) max_messages: Option<Whole>,
    pub(super) header_timeout: Option<Seconds>,
    pub(super) body_timeout: Option<Seconds>,
    pub(super) first_byte_wait: Option<Seconds>,
    pub(super) keep_alive: Option<Seconds>,

    pub(super) log_format: Option<String>,
    pub(super) log_level: Option<String>,

    pub(super) sandbox: Option<Sandbox>,
    pub(super) search: Option<Search>,
    pub(super) retry: Retry,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) tools: Vec<Tool>,
    pub(super) api_keys: Vec<ApiKey>,
}

/// `[search]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Search {
    pub(super) on_request: bool,
    pub(super) timeout: Option<Seconds>,
    pub(super) max_retries: Option<Whole>,
    pub(super) max_results: Option<Whole>,
    pub(super) max_pages: Option<Whole>,
    pub(super) pages_timeout: Option<Seconds>,
    pub(super) cache_ttl: Option<Seconds>,
    pub(super) cache_bytes: Option<Size>,
    pub(super) parsers: Option<Whole>,
    pub(super) parser_timeout: Option<Seconds>,
    pub(super) parser_memory: Option<Size>,
    pub(super) embedding_model: Option<String>,
    pub(super) embedding_upstream: Option<String>,
    pub(super) embedding_timeout: Option<Seconds>,
    pub(super) pages: SearchPages,
    pub(super) providers: Vec<SearchProvider>,
}

/// `[search.pages]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SearchPages {
    pub(super) user_agent: Option<String>,
    pub(super) connect_timeout: Option<Seconds>,
    pub(super) timeout: Option<Seconds>,
    pub(super) max_bytes: Option<Size>,
    pub(super) max_redirects: Option<Whole>,
    pub(super) ports: Option<Vec<Whole>>,
    pub(super) allow: Vec<String>,
    pub(super) block: Vec<String>,
    pub(super) private: Vec<String>,
    pub(super) robots: Option<bool>,
    pub(super) per_host: Option<Whole>,
    pub(super) host_interval: Option<Seconds>,
}

/// One entry of `[[search.providers]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchProvider {
    pub(super) name: String,
    pub(super) url: Option<String>,
    pub(super) api_key_env: Option<String>,
    pub(super) api_key_file: Option<PathBuf>,
    pub(super) requests_per_minute: Option<Whole>,
}

/// `[sandbox]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Sandbox {
    pub(super) require: Option<Tier>,
    pub(super) network: Option<Network>,
    pub(super) command: Vec<String>,
    pub(super) preload: Vec<String>,
    pub(super) spares: Option<Whole>,
    pub(super) max_workers: Option<Whole>,
    pub(super) max_waiting: Option<Whole>,
    pub(super) idle_ttl: Option<Seconds>,
    pub(super) max_age: Option<Seconds>,
    pub(super) work_dir: Option<PathBuf>,
    pub(super) saved_size: Option<Size>,
    pub(super) uids: Option<(Whole, Whole)>,
    pub(super) limits: SandboxLimits,
}

/// `[sandbox.limits]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SandboxLimits {
    pub(super) memory: Option<Size>,
    pub(super) address_space: Option<Size>,
    pub(super) processes: Option<Whole>,
    pub(super) cpus: Option<Whole>,
    pub(super) disk: Option<Size>,
    pub(super) tmp: Option<Size>,
    pub(super) inodes: Option<Whole>,
    pub(super) file_size: Option<Size>,
    pub(super) open_files: Option<Whole>,
    pub(super) output: Option<Size>,
    pub(super) output_kept: Option<Size>,
    pub(super) value: Option<Size>,
    pub(super) images: Option<Whole>,
    pub(super) image_bytes: Option<Size>,
    pub(super) files: Option<Whole>,
    pub(super) captured_file: Option<Size>,
    pub(super) captured_total: Option<Size>,
}

/// `[retry]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Retry {
    pub(super) max_attempts: Option<Whole>,
    pub(super) base_delay: Option<Seconds>,
    pub(super) max_delay: Option<Seconds>,
}

/// One entry of `[[upstreams]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) base_url: String,
    #[serde(default)]
    pub(super) models: Vec<String>,
    #[serde(default)]
    pub(super) model_map: BTreeMap<String, String>,
    pub(super) api_key_env: Option<String>,
    pub(super) api_key_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) headers: Headers,
    pub(super) connect_timeout: Option<Seconds>,
    pub(super) first_byte_timeout: Option<Seconds>,
    pub(super) idle_timeout: Option<Seconds>,
    pub(super) max_stream_bytes: Option<Size>,
    #[serde(default)]
    pub(super) quirks: Quirks,
}

/// `quirks` of an upstream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Quirks {
    pub(super) streams: Option<bool>,
    pub(super) stream_options: Option<bool>,
    pub(super) think_tags: Option<bool>,
    pub(super) split_names: Option<bool>,
    pub(super) send_reasoning: Option<bool>,
    pub(super) final_call: Option<FinalCall>,
    pub(super) call_ids: Option<CallIdStyle>,
    pub(super) images: Option<bool>,
    pub(super) hosted_tools: Option<Vec<String>>,
}

/// One entry of `[[tools]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Option<toml::Table>,
    pub(super) parameters_file: Option<PathBuf>,
    pub(super) url: String,
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) headers: Headers,
    pub(super) secret_env: Option<String>,
    pub(super) secret_file: Option<PathBuf>,
    pub(super) timeout: Option<Seconds>,
    pub(super) max_retries: Option<Whole>,
    pub(super) max_answer_bytes: Option<Size>,
    #[serde(default)]
    pub(super) sequential: bool,
    #[serde(default)]
    pub(super) idempotent: bool,
}

/// One entry of `[[api_keys]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApiKey {
    pub(super) name: String,
    pub(super) sha256: Option<String>,
    pub(super) env: Option<String>,
}

/// Reads the file that `origin` names.
pub(super) fn read(path: &Path, origin: Origin) -> Result<(File, Place), ConfigError> {
    let text = fs::read_to_string(path).map_err(|cause| ConfigError::Unreadable {
        origin,
        path: path.to_owned(),
        cause,
    })?;
    parse(&text, path.display().to_string().into())
}

/// Reads the text of the file called `name`.
pub(super) fn parse(text: &str, name: Arc<str>) -> Result<(File, Place), ConfigError> {
    match toml::from_str(text) {
        Ok(file) => Ok((file, Place::root(name))),
        Err(error) => Err(locate::explain(text, name, &error)),
    }
}
