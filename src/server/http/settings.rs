//! The settings of the HTTP server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ::http::{HeaderName, HeaderValue};

pub(crate) use agent::turn::KeyDefaults;

/// Memory for a byte of a body that is parsed.
pub(crate) const PARSE_FACTOR: u64 = 8;

/// The paths below `/v1/` that holders of API keys may have forwarded by default: inference, which keeps nothing at the
/// upstream.
pub(crate) const DEFAULT_FORWARD: [&str; 11] = [
    "embeddings",
    "completions",
    "audio/*",
    "images/*",
    "moderations",
    "rerank",
    "score",
    "tokenize",
    "detokenize",
    "messages",
    "messages/count_tokens",
];

/// The settings of the HTTP server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Largest request body held in memory, in bytes.
    pub max_body_bytes: usize,
    /// Most memory for parsing request bodies at a time, in bytes; bodies that arrive may take half as much again.
    pub max_parsed_bytes: u64,
    /// Largest head of a request, in bytes.
    pub max_header_bytes: usize,
    /// Most messages in one request.
    pub max_messages: usize,
    /// Longest wait for the head of a request.
    pub header_timeout: Duration,
    /// Longest wait for the next data of a request body. The total time is this and the time of its length at 64 KiB/s.
    pub body_timeout: Duration,
    /// Longest time for which the head of a streamed response waits for the first model call.
    pub first_byte_wait: Duration,
    /// Time without data after which a keep-alive comment is sent on a stream.
    pub keep_alive: Duration,
    /// The time in which a client must take some of the data that waits for it, else it is disconnected.
    pub write_timeout: Duration,
    /// The address that serves the metrics without a key, if there is one.
    pub metrics_listen: Option<SocketAddr>,
    /// Most connections; by default half of the file descriptors that the process may open.
    pub max_connections: Option<usize>,
    /// How long running requests may take after the shutdown has begun.
    pub shutdown_grace: Duration,
    /// The name of this replica, which every response carries; `None` sends none.
    pub replica_name: Option<HeaderValue>,
    /// Headers in which front ends send the id of a chat.
    pub session_headers: Vec<HeaderName>,
    /// Globs of host names that are accepted besides loopback names when no keys are configured.
    pub allowed_hosts: Vec<String>,
    /// Whether the console is served.
    pub console: bool,
    /// Origins of web pages that may send requests (CORS).
    pub cors_origins: Vec<HeaderValue>,
    /// Globs of the paths below `/v1/` that are forwarded for holders of API keys.
    pub forward: Vec<String>,
    /// The configured API keys; empty when requests need no key.
    pub api_keys: Vec<ApiKey>,
}

impl Settings {
    /// The name of the machine, if it can stand in a header.
    pub(crate) fn host_name() -> Option<HeaderValue> {
        let system = rustix::system::uname();
        HeaderValue::from_bytes(system.nodename().to_bytes()).ok()
    }
}

/// The URL by which this machine reaches an address that a server listens on.
pub(crate) fn local_url(listen: SocketAddr) -> String {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, listen.port()))
}

/// One configured API key.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// The name, which is the owner of sessions and files.
    pub name: String,
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
    /// Globs of paths that take the place of [`Settings::forward`] for this key.
    pub(crate) forward: Option<Vec<String>>,
    /// Whether the key may read the figures of all keys.
    pub(crate) operator: bool,
    /// What it gives the drafts of its callers.
    pub(crate) defaults: KeyDefaults,
}

#[cfg(test)]
impl Settings {
    /// Settings with small limits and without keys.
    pub(super) fn for_tests() -> Self {
        let second = Duration::from_secs(1);
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            max_body_bytes: 1024 * 1024,
            max_parsed_bytes: 64 * 1024 * 1024,
            max_header_bytes: 64 * 1024,
            max_messages: 100,
            header_timeout: second,
            body_timeout: second,
            first_byte_wait: second,
            keep_alive: second,
            write_timeout: second,
            metrics_listen: None,
            max_connections: None,
            shutdown_grace: second,
            replica_name: None,
            session_headers: Vec::new(),
            allowed_hosts: Vec::new(),
            console: true,
            cors_origins: Vec::new(),
            forward: Vec::new(),
            api_keys: Vec::new(),
        }
    }
}
