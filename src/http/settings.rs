//! What can be configured about the HTTP edge.

use std::net::SocketAddr;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue};

/// Everything about the edge.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Largest request body held in memory, in bytes.
    pub max_body_bytes: usize,
    /// Largest head of a request, in bytes.
    pub max_header_bytes: usize,
    /// Most messages in one request.
    pub max_messages: usize,
    /// Longest wait for a request's head.
    pub header_timeout: Duration,
    /// Longest silence while a request's body arrives.
    pub body_timeout: Duration,
    /// Longest time that a stream's head waits for the first model call.
    pub first_byte_wait: Duration,
    /// Silence after which a keep-alive comment is sent.
    pub keep_alive: Duration,
    /// How long running requests get at shutdown.
    pub shutdown_grace: Duration,
    /// Headers that carry a session id, `x-session-id` among them.
    pub session_headers: Vec<HeaderName>,
    /// Host names accepted besides loopback ones where no keys are configured.
    pub allowed_hosts: Vec<String>,
    /// Origins that a browser may call from.
    pub cors_origins: Vec<HeaderValue>,
    /// The keys.
    pub api_keys: Vec<ApiKey>,
}

/// One configured API key.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// The name, which everything made with the key belongs to.
    pub name: String,
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
}
