//! Settings of one upstream.

use std::time::Duration;

use ::http::HeaderMap;
use secrecy::SecretString;
use url::Url;

use super::retry::RetryPolicy;
use crate::ids::CallIdStyle;

/// All upstreams and the retry policy.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// The upstreams in fail-over order.
    pub upstreams: Vec<Settings>,
    /// How failed calls are retried.
    pub retry: RetryPolicy,
}

/// One checked `[[upstreams]]` entry.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name for logs and metrics.
    pub name: String,
    /// The base URL, ending in `/v1` or wherever the OpenAI paths begin; no trailing slash.
    pub base_url: Url,
    /// The key sent as `authorization: Bearer`. Without it the caller's header is passed on, if that is allowed.
    pub api_key: Option<SecretString>,
    /// Headers added to every request.
    pub headers: HeaderMap,
    /// Model name patterns (globs) that this server takes; empty takes every model.
    pub models: Vec<String>,
    /// Renamed models: the client's name, the upstream's name.
    pub model_map: Vec<(String, String)>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the response head.
    pub first_byte_timeout: Duration,
    /// Longest silence within a response.
    pub idle_timeout: Duration,
    /// Most bytes of one streamed response in the loop.
    pub max_stream_bytes: u64,
    /// The known deviations of this upstream.
    pub quirks: Quirks,
}

/// Known deviations of an upstream.
#[derive(Debug, Clone)]
pub struct Quirks {
    /// The server can stream.
    pub streams: bool,
    /// The server takes `stream_options`.
    pub stream_options: bool,
    /// Reasoning arrives in the text between `<think>` and `</think>`.
    pub think_tags: bool,
    /// Models write calls as text, which the server does not parse.
    pub text_calls: bool,
    /// A call's name comes in pieces; otherwise a repeated name is the same name again.
    pub split_names: bool,
    /// Reasoning is sent back with the history.
    pub send_reasoning: bool,
    /// How the final call prevents tool calls.
    pub final_call: FinalCall,
    /// The form of tool-call ids that the server takes.
    pub call_ids: CallIdStyle,
    /// The model takes images in its prompt.
    pub images: bool,
    /// Types of hosted tools (such as `web_search`) that the server runs itself.
    pub hosted_tools: Vec<String>,
}

/// How the final call prevents the model from calling tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalCall {
    /// With `tool_choice: "none"`. The tools stay in the request, so that the server's prompt cache stays valid.
    #[default]
    ToolChoiceNone,
    /// Without `tools` and `tool_choice`.
    RemoveTools,
}

impl Settings {
    /// The upstream's name of the model that clients call `model`.
    pub fn model_name<'a>(&'a self, model: &'a str) -> &'a str {
        let known = self.model_map.iter().find(|(name, _)| name == model);
        known.map_or(model, |(_, upstream_name)| upstream_name)
    }
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            streams: true,
            stream_options: true,
            think_tags: false,
            text_calls: false,
            split_names: false,
            send_reasoning: true,
            final_call: FinalCall::default(),
            call_ids: CallIdStyle::default(),
            images: false,
            hosted_tools: Vec::new(),
        }
    }
}
