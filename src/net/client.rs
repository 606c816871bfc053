//! Builds the HTTP clients of all modules.

mod certificates;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use reqwest::Client;
use reqwest::dns::Resolve;
use reqwest::redirect::Policy;

pub use self::certificates::CaCertificates;
use super::connect_only::ConnectOnly;
use super::http_client::HttpClient;

/// The options of a client. No client uses the proxy of the environment or sends a `referer`.
#[derive(Debug)]
pub struct ClientOptions {
    /// The `user-agent` of requests that have none.
    pub user_agent: Option<HeaderValue>,
    /// Further headers of every request.
    pub headers: HeaderMap,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest time for a request, its response included; unlimited by default.
    pub request_timeout: Option<Duration>,
    /// How long an unused connection stays open.
    pub pool_idle_timeout: Duration,
    /// Which redirects are followed.
    pub redirects: Policy,
    /// Whether `https` is used.
    pub tls: bool,
    /// Certificate authorities that are trusted in addition to the system's.
    pub certificates: CaCertificates,
    /// Whether connections are only made, and nothing is sent on them: every request fails.
    pub connect_only: bool,
    /// Set for a client whose URLs come from requests, models or pages.
    pub untrusted: Option<UntrustedHosts>,
}

/// Limits for connections to untrusted hosts. A client with these limits does not repeat requests.
pub struct UntrustedHosts {
    /// Resolves names and refuses forbidden addresses.
    pub resolver: Arc<dyn Resolve>,
    /// Most bytes of the header fields of a response.
    pub max_header_bytes: u32,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: None,
            headers: HeaderMap::new(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: None,
            pool_idle_timeout: Duration::from_secs(90),
            redirects: Policy::none(),
            tls: true,
            certificates: CaCertificates::default(),
            connect_only: false,
            untrusted: None,
        }
    }
}

impl fmt::Debug for UntrustedHosts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UntrustedHosts")
            .finish_non_exhaustive()
    }
}

impl ClientOptions {
    /// Builds the client for model servers and tools; opens no connection. The options for untrusted hosts, a time for
    /// whole requests, redirects and further headers are not for it.
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    pub fn build_http(self) -> Result<HttpClient, reqwest::Error> {
        let user_agent = self.user_agent.clone();
        let (connect_timeout, idle_timeout) = (self.connect_timeout, self.pool_idle_timeout);
        let secure = match self.tls {
            true => Some(self.build()?),
            false => None,
        };
        let client = HttpClient::new(secure, user_agent, connect_timeout, idle_timeout);
        Ok(client)
    }

    /// Builds the client; opens no connection.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn build(self) -> Result<Client, reqwest::Error> {
        let mut builder = Client::builder()
            .no_proxy()
            .referer(false)
            .tcp_nodelay(true)
            .default_headers(self.headers)
            .connect_timeout(self.connect_timeout)
            .pool_idle_timeout(self.pool_idle_timeout)
            .redirect(self.redirects);
        if let Some(user_agent) = self.user_agent {
            builder = builder.user_agent(user_agent);
        }
        if let Some(timeout) = self.request_timeout {
            builder = builder.timeout(timeout);
        }
        builder = match self.tls {
            true if machine_has_roots() => builder.tls_certs_merge(self.certificates.iter()),
            true => builder.tls_certs_only(self.certificates.iter()),
            false => builder.tls_certs_only([]),
        };
        if self.connect_only {
            builder = builder.connector_layer(ConnectOnly);
        }
        if let Some(untrusted) = self.untrusted {
            builder = builder
                .dns_resolver(untrusted.resolver)
                .retry(reqwest::retry::never())
                .http2_max_header_list_size(untrusted.max_header_bytes);
        }
        builder.build()
    }
}

/// Whether the machine has root certificates. A small container may have none; then only the certificates of the
/// settings count.
fn machine_has_roots() -> bool {
    static HAS_ROOTS: OnceLock<bool> = OnceLock::new();
    *HAS_ROOTS.get_or_init(|| {
        let has_roots = !rustls_native_certs::load_native_certs().certs.is_empty();
        if !has_roots {
            tracing::warn!(
                "this machine has no root certificates, so that no https:// address can be reached but by `ca_file`; \
                 install the package ca-certificates, or name a file in SSL_CERT_FILE"
            );
        }
        has_roots
    })
}

/// Checks that certificates can be trusted, whatever the machine has.
fn check_certificates(certificates: &CaCertificates) -> Result<(), reqwest::Error> {
    let builder = Client::builder().tls_certs_only(certificates.iter());
    builder.build().map(drop)
}
