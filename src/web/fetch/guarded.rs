//! Guarded clients for services that are no pages and whose URLs come from requests or other servers.

use std::sync::Arc;

use http::HeaderValue;
use url::Url;

use super::resolver::{GuardedResolver, MAX_LOOKUPS};
use super::target::UrlPolicy;
use super::{FetchError, MAX_HEADER_BYTES, POOL_IDLE};
use crate::{DomainFilter, SetupError};
use net::{ClientOptions, UntrustedHosts};
use protocol::ids::Owner;
use quota::FairSemaphore;

/// The hosts that such URLs may name. Cheap to clone.
#[derive(Clone)]
pub struct GuardedHosts {
    policy: Arc<UrlPolicy>,
    lookups: FairSemaphore,
}

/// Why a URL may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostRefusal {
    /// It cannot be read, or names no host that can be connected to. The text is the problem.
    #[error("{0}")]
    Unusable(String),
    /// The operator does not permit the host.
    #[error("the host '{0}' is not permitted")]
    NotAllowed(String),
    /// The host has no public address, and the operator does not permit a private one.
    #[error("'{0}' is no host of the public internet")]
    NotPublic(String),
    /// The port is not permitted.
    #[error("port {0} is not permitted")]
    Port(u16),
    /// What is sent to a public host has to be encrypted.
    #[error("its scheme must be https")]
    Unencrypted,
}

impl GuardedHosts {
    /// The hosts that match `allow` with one of the ports, and those that match `private` with any port and address.
    ///
    /// # Errors
    /// When a glob is invalid.
    pub fn new(allow: &[String], private: &[String], ports: &[u16]) -> Result<Self, SetupError> {
        Ok(Self {
            policy: Arc::new(UrlPolicy::only(allow, private, ports)?),
            lookups: FairSemaphore::with_reserve(MAX_LOOKUPS),
        })
    }

    /// Checks a URL before anything is connected to.
    ///
    /// # Errors
    /// When it may not be used.
    pub fn check(&self, url: &str) -> Result<Url, HostRefusal> {
        let target = self.policy.target(url, &DomainFilter::default());
        let target = target.map_err(|error| match error {
            FetchError::NotAllowed { host } => HostRefusal::NotAllowed(host),
            FetchError::Address { host } | FetchError::Host { host, .. } => {
                HostRefusal::NotPublic(host)
            }
            FetchError::Port { port } => HostRefusal::Port(port),
            other => HostRefusal::Unusable(other.to_string()),
        })?;
        match target.url.scheme() == "http" && !target.is_private {
            true => Err(HostRefusal::Unencrypted),
            false => Ok(target.url),
        }
    }

    /// A client for a URL that has been checked, on behalf of an owner. It connects to permitted addresses only, follows
    /// no redirect, repeats no request and shares no connection with other clients.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn client(&self, owner: &Owner, url: &Url) -> Result<reqwest::Client, SetupError> {
        let resolver =
            GuardedResolver::new(Arc::clone(&self.policy), self.lookups.clone()).for_owner(owner);
        let options = ClientOptions {
            user_agent: Some(HeaderValue::from_static("loopwright")),
            pool_idle_timeout: POOL_IDLE,
            tls: url.scheme() == "https",
            untrusted: Some(UntrustedHosts {
                resolver: Arc::new(resolver),
                max_header_bytes: MAX_HEADER_BYTES,
            }),
            ..ClientOptions::default()
        };
        let client = options.build();
        client.map_err(|error| SetupError::client("guarded services", &error))
    }
}

impl std::fmt::Debug for GuardedHosts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("GuardedHosts")
            .field(&self.policy)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_hosts_may_be_named_and_public_ones_by_https() {
        let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let hosts = GuardedHosts::new(
            &texts(&["mcp.example.org", "*.tools.example.org", "10.1.2.3"]),
            &texts(&["mcp.corp", "127.0.0.1"]),
            &[443, 8443],
        )
        .unwrap();
        for good in [
            "https://mcp.example.org/mcp",
            "https://a.tools.example.org:8443/",
            "http://mcp.corp:9000/mcp",
            "http://127.0.0.1:1/",
        ] {
            assert_eq!(hosts.check(good).map(String::from).as_deref(), Ok(good));
        }
        let refused = |host: &str| HostRefusal::NotAllowed(host.to_owned());
        for (url, expected) in [
            ("https://example.org/", refused("example.org")),
            (
                "https://mcp.example.org.evil.com/",
                refused("mcp.example.org.evil.com"),
            ),
            ("https://tools.example.org/", refused("tools.example.org")),
            (
                "https://10.1.2.3/",
                HostRefusal::NotPublic("10.1.2.3".to_owned()),
            ),
            (
                "https://0x7f.1.2/",
                HostRefusal::NotPublic("127.1.0.2".to_owned()),
            ),
            (
                "https://localhost/",
                HostRefusal::NotPublic("localhost".to_owned()),
            ),
            ("https://mcp.example.org:22/", HostRefusal::Port(22)),
            ("http://mcp.example.org:443/", HostRefusal::Unencrypted),
        ] {
            assert_eq!(hosts.check(url), Err(expected), "{url}");
        }
        for unusable in [
            "mcp.example.org",
            "ftp://mcp.example.org/",
            "https://a:b@mcp.example.org/",
            "https://mcp.example.org/\n",
        ] {
            assert!(
                matches!(hosts.check(unusable), Err(HostRefusal::Unusable(_))),
                "{unusable}"
            );
        }
        let none = GuardedHosts::new(&[], &[], &[443]).unwrap();
        assert_eq!(
            none.check("https://mcp.example.org/"),
            Err(refused("mcp.example.org"))
        );
    }
}
