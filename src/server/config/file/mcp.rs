//! `[mcp_servers.NAME]`: the keys of one MCP server.

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::text::NamePattern;
use crate::config::value::{
    ByteSize, Count, DAY_MS, HeaderText, Headers, MIB, NamePatterns, Ports, Seconds, Switch,
};

/// One entry of `[mcp_servers]`, or of the file that `mcp_config` names.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct McpServerSection {
    pub(in crate::config) enabled: Switch<true>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(in crate::config) kind: Option<McpKind>,
    pub(in crate::config) command: Option<String>,
    #[serde(skip_serializing_if = "HiddenTexts::is_empty")]
    pub(in crate::config) args: HiddenTexts,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub(in crate::config) env: Headers,
    pub(in crate::config) cwd: Option<String>,
    #[serde(serialize_with = "without_query")]
    pub(in crate::config) url: Option<String>,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub(in crate::config) headers: Headers,
    pub(in crate::config) bearer_token: Option<HeaderText>,
    pub(in crate::config) oauth: Option<McpOAuthSection>,
    pub(in crate::config) tool_prefix: Option<String>,
    pub(in crate::config) timeout_ms: Count<1, 60_000, DAY_MS>,
    /// By default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::config) allowed_tools: Option<Vec<NamePattern>>,
    pub(in crate::config) sequential: bool,
    /// The default comes from the annotations of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::config) read_only: Option<Vec<NamePattern>>,
    /// The default comes from the annotations of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::config) idempotent: Option<Vec<NamePattern>>,
    pub(in crate::config) repeatable: NamePatterns,
    /// By default `owner` if there are API keys.
    pub(in crate::config) scope: Option<McpScopeWord>,
    pub(in crate::config) max_instances: Count<1, 16>,
    pub(in crate::config) idle_ttl: Seconds<600_000>,
    /// By default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::config) keys: Option<Vec<NamePattern>>,
    /// The least for the handshake.
    pub(in crate::config) max_answer_bytes: ByteSize<{ 64 * 1024 }, { 4 * MIB }>,
    pub(in crate::config) trim_schemas: bool,
    pub(in crate::config) instructions: bool,
}

/// `oauth` of a server.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct McpOAuthSection {
    pub(in crate::config) client_id: Option<String>,
    pub(in crate::config) client_secret: Option<HeaderText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::config) scopes: Vec<String>,
    #[serde(serialize_with = "without_query")]
    pub(in crate::config) token_url: Option<String>,
}

/// `[mcp_requests]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct McpRequestsSection {
    pub(in crate::config) hosts: NamePatterns,
    pub(in crate::config) private: NamePatterns,
    pub(in crate::config) ports: Ports,
    pub(in crate::config) timeout_ms: Count<1, 60_000, DAY_MS>,
    pub(in crate::config) max_connections: Count<1, 64>,
    pub(in crate::config) max_connections_per_owner: Count<1, 8>,
    pub(in crate::config) idle_ttl: Seconds<600_000>,
    /// The least for the handshake.
    pub(in crate::config) max_answer_bytes: ByteSize<{ 64 * 1024 }, { 4 * MIB }>,
}

/// How the server is reached; by default what `command` or `url` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub(in crate::config) enum McpKind {
    #[serde(rename = "stdio")]
    Stdio,
    #[serde(
        rename = "http",
        alias = "streamable-http",
        alias = "streamable_http",
        alias = "streamableHttp"
    )]
    Http,
    #[serde(rename = "sse")]
    Sse,
}

/// Who shares a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum McpScopeWord {
    Owner,
    Shared,
}

/// Texts that may hold secrets and are not shown.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct HiddenTexts(pub(in crate::config) Vec<SecretString>);

impl HiddenTexts {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for HiddenTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        Ok(Self(texts.into_iter().map(Into::into).collect()))
    }
}

impl Serialize for HiddenTexts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("({} arguments, not shown)", self.0.len()))
    }
}

/// A URL without its query, which may hold a token.
#[expect(
    clippy::ref_option,
    reason = "the form of a function that writes a field"
)]
fn without_query<S: Serializer>(url: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let shown = url
        .as_deref()
        .map(|url| url.split_once('?').map_or(url, |(plain, _)| plain));
    shown.serialize(serializer)
}
