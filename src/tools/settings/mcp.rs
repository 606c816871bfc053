//! Settings of MCP servers.

use std::path::PathBuf;
use std::time::Duration;

use ::http::HeaderMap;
use secrecy::SecretString;
use url::Url;

use crate::globs::Globs;
use net::CaCertificates;

/// Settings of MCP servers.
#[derive(Debug, Clone)]
pub struct McpSettings {
    /// The servers, in the order of the file; their tools are offered in this order.
    pub servers: Vec<McpServerSettings>,
    /// How many of their tools a request is offered at most; of more it is offered a search. `None` offers all.
    pub search_above: Option<usize>,
    /// Longest wait for a server to start and to list its tools.
    pub start_timeout: Duration,
    /// This binary, which guards the processes of servers.
    pub guard: PathBuf,
    /// The servers that requests may declare.
    pub requests: McpRequestSettings,
    /// Certificate authorities for the servers of the settings, in addition to the system's.
    pub certificates: CaCertificates,
}

/// Settings of the servers that requests declare.
#[derive(Debug, Clone)]
pub struct McpRequestSettings {
    /// The hosts, as globs such as `*.example.org`; none with an empty list.
    pub hosts: Vec<String>,
    /// Further hosts, which may have private addresses, any port and no encryption.
    pub private: Vec<String>,
    /// Ports of the other hosts.
    pub ports: Vec<u16>,
    /// Longest wait for a server to list its tools.
    pub start_timeout: Duration,
    /// Longest time of one call.
    pub timeout: Duration,
    /// Most connections at the same time.
    pub max_connections: usize,
    /// Most connections of one owner.
    pub max_connections_per_owner: usize,
    /// How long a connection without a request stays open.
    pub idle_ttl: Duration,
    /// Largest message of a server, in bytes.
    pub max_answer_bytes: usize,
}

impl McpRequestSettings {
    /// Whether any server may be declared.
    pub fn is_used(&self) -> bool {
        !self.hosts.is_empty() || !self.private.is_empty()
    }
}

/// Settings of one MCP server.
#[derive(Debug, Clone)]
pub struct McpServerSettings {
    /// The name, as the operator wrote it.
    pub name: String,
    /// How the server is reached.
    pub transport: McpTransport,
    /// Put before the names of its tools; by default the name and two underscores.
    pub tool_prefix: Option<String>,
    /// Longest time of one call.
    pub timeout: Duration,
    /// The tools that are offered, by the names that the server gives them; all by default.
    pub allowed_tools: Option<Globs>,
    /// Only tools that say, or that do not say, of themselves that they change nothing are offered; by default both.
    pub allowed_read_only: Option<bool>,
    /// A batch that holds one of its calls runs one after another.
    pub sequential: bool,
    /// The tools that change nothing; by default those that say so themselves.
    pub read_only: Option<Globs>,
    /// The tools that may safely be called twice; by default those that say so themselves.
    pub idempotent: Option<Globs>,
    /// The tools whose identical calls are never held back.
    pub repeatable: Globs,
    /// Who shares a connection.
    pub scope: McpScope,
    /// Most connections of owners at the same time.
    pub max_instances: usize,
    /// How long an owner's connection without a call stays open.
    pub idle_ttl: Duration,
    /// The names of the API keys that may use the server; all by default.
    pub keys: Option<Globs>,
    /// Largest message of the server, in bytes.
    pub max_answer_bytes: usize,
    /// Titles and examples are left out of the schemas for the model.
    pub trim_schemas: bool,
    /// The server's instructions are added to the descriptions of its tools.
    pub instructions: bool,
}

/// How an MCP server is reached.
#[derive(Debug, Clone)]
pub enum McpTransport {
    /// A child process, over its standard input and output.
    Stdio(McpCommand),
    /// A URL, over HTTP.
    Http(Box<McpEndpoint>),
}

/// Replaced by the owner of a process in the arguments, the environment and the working directory of its command.
pub const OWNER_PLACEHOLDER: &str = "${OWNER}";

/// The command of an MCP server.
#[derive(Debug, Clone)]
pub struct McpCommand {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: String,
    /// Its arguments, which may hold secrets.
    pub args: Vec<SecretString>,
    /// Its whole environment.
    pub env: Vec<(String, SecretString)>,
    /// Its working directory; by default the directory of this process.
    pub cwd: Option<PathBuf>,
}

/// The URL of an MCP server.
#[derive(Debug, Clone)]
pub struct McpEndpoint {
    /// The URL.
    pub url: Url,
    /// Headers of every request; secret ones are marked sensitive.
    pub headers: HeaderMap,
    /// The transport.
    pub kind: HttpKind,
    /// The credentials with which access tokens are asked for.
    pub oauth: Option<McpOAuth>,
}

/// The transport of a server with a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpKind {
    /// Streamable HTTP, or the older transport of 2024-11-05 if the server supports nothing newer.
    Any,
    /// Only the transport of 2024-11-05.
    Sse,
}

/// OAuth client credentials.
#[derive(Debug, Clone)]
pub struct McpOAuth {
    /// The client's id.
    pub client_id: String,
    /// Its secret.
    pub client_secret: SecretString,
    /// The scopes that are asked for.
    pub scopes: Vec<String>,
    /// The token endpoint; by default the server is asked for it.
    pub token_url: Option<Url>,
}

/// Who shares a connection to an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpScope {
    /// Each API key has a connection, and with it a process or an MCP session, of its own.
    Owner,
    /// All share one.
    Shared,
}
