//! The replicas that share a session store: the key that they have in common, and requests from one to another.
//!
//! A request carries the key and the owner on whose behalf it is sent; the receiver trusts nothing else. What is asked for,
//! and which replica is asked, is up to the callers.

pub mod settings;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::timeout;

use self::settings::Settings;
use crate::ids::Owner;
use crate::net::{ClientError, ClientOptions, HttpClient};

/// The owner on whose behalf a replica asks another one; empty where no API keys are configured.
const OWNER: HeaderName = HeaderName::from_static("x-loopwright-owner");
/// Longest wait for a connection to another replica, which is near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for the head of an answer. A run that is told to end answers once it has ended.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an unused connection is kept: less than replicas wait for the next request.
const POOL_IDLE: Duration = Duration::from_secs(10);

/// What this replica asks others with, and how it knows them.
pub struct Cluster {
    client: HttpClient,
    address: String,
    authorization: HeaderValue,
    key_sha256: [u8; 32],
}

/// The body of an answer of another replica.
pub type ReplicaBody = BoxStream<'static, io::Result<Bytes>>;

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The key cannot be sent in a header.
    #[error("the cluster key cannot be sent in a header")]
    Key,
    /// The HTTP client cannot be made, usually because the machine has no root certificates.
    #[error("cannot set up the client for other replicas")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why another replica has given no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// What it has announced is no URL.
    #[error("its address is no URL")]
    Address,
    /// It has another key.
    #[error("it refuses the cluster key; every replica must have the same")]
    Key,
    /// It says nothing.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// It cannot be reached, or the connection fails.
    #[error("the connection failed")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Cluster {
    /// The cluster of a replica that listens on this address; opens no connection.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub fn new(settings: &Settings, listening: SocketAddr) -> Result<Self, ClusterError> {
        let key = settings.key.expose_secret();
        let authorization = HeaderValue::try_from(format!("Bearer {key}"));
        let mut authorization = authorization.map_err(|_| ClusterError::Key)?;
        authorization.set_sensitive(true);
        let address = match &settings.url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => format!("http://{listening}"),
        };
        let options = ClientOptions {
            connect_timeout: CONNECT_TIMEOUT,
            pool_idle_timeout: POOL_IDLE,
            // The others have addresses of the same kind.
            tls: address.starts_with("https:"),
            certificates: settings.certificates.clone(),
            ..ClientOptions::default()
        };
        let client = options.build_http();
        Ok(Self {
            client: client.map_err(|error| ClusterError::Client(Box::new(error)))?,
            address,
            key_sha256: Sha256::digest(authorization.as_bytes()).into(),
            authorization,
        })
    }

    /// The URL at which other replicas reach this one.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The owner on whose behalf another replica asks; `None` if the request is of no replica with the same key.
    pub fn owner_of(&self, headers: &HeaderMap) -> Option<Owner> {
        let given = headers.get(AUTHORIZATION)?;
        // The digests have one length, and are compared in constant time.
        let given: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        if !bool::from(self.key_sha256.ct_eq(&given)) {
            return None;
        }
        let owner = headers.get(OWNER)?.to_str().ok()?;
        Some(Owner::key(owner))
    }

    /// Asks the replica at an address on behalf of an owner; waits for the head of its answer. The URI of the request is a
    /// path and a query.
    ///
    /// # Errors
    /// When there is no answer of a replica with the same key.
    ///
    /// # Cancel safety
    /// Dropping the future, or the body of the answer, closes the connection.
    pub async fn ask(
        &self,
        address: &str,
        owner: &Owner,
        head: Parts,
        body: Bytes,
    ) -> Result<Response<ReplicaBody>, ReplicaError> {
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = Uri::try_from(format!("{address}{path}"));
        let uri = uri.map_err(|_| ReplicaError::Address)?;
        let owner = HeaderValue::from_str(owner.as_str());
        let owner = owner.map_err(ReplicaError::connection)?;
        let mut request = Request::new(body.into());
        *request.method_mut() = head.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = head.headers;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(OWNER, owner);
        let asked = timeout(HEAD_TIMEOUT, self.client.execute(request));
        let answer = asked
            .await
            .map_err(|_| ReplicaError::Silent(HEAD_TIMEOUT))?
            .map_err(ReplicaError::connection)?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Err(ReplicaError::Key);
        }
        let failed = |error: ClientError| io::Error::other(error);
        Ok(answer.map(|body| body.map(move |data| data.map_err(failed)).boxed()))
    }
}

impl ReplicaError {
    fn connection(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Connection(Box::new(error))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cluster")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::CaCertificates;

    fn cluster(key: &str, url: Option<&str>) -> Cluster {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = Settings {
            listen,
            url: url.map(|url| url.parse().unwrap()),
            key: key.to_owned().into(),
            certificates: CaCertificates::default(),
        };
        Cluster::new(&settings, SocketAddr::from(([127, 0, 0, 1], 7))).unwrap()
    }

    #[test]
    fn an_owner_is_believed_with_the_whole_key_only() {
        let cluster = cluster("0123456789abcdef", None);
        let owner_of = |key: Option<&str>, owner: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(key) = key {
                headers.insert(AUTHORIZATION, key.parse().unwrap());
            }
            if let Some(owner) = owner {
                headers.insert(OWNER, owner.parse().unwrap());
            }
            cluster.owner_of(&headers)
        };
        let key = Some("Bearer 0123456789abcdef");
        assert_eq!(owner_of(key, Some("alice")), Some(Owner::key("alice")));
        assert_eq!(owner_of(key, Some("")), Some(Owner::everybody()));
        assert_eq!(owner_of(key, None), None);
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "0123456789abcdef",
            "Bearer ",
        ] {
            assert_eq!(owner_of(Some(wrong), Some("alice")), None, "{wrong}");
        }
        assert_eq!(owner_of(None, Some("alice")), None);
    }

    #[test]
    fn the_address_is_the_url_or_what_is_listened_on_and_the_key_is_not_shown() {
        let key = "0123456789abcdef";
        for (url, address) in [
            (None, "http://127.0.0.1:7"),
            (Some("http://replica-1:8081/"), "http://replica-1:8081"),
            (Some("http://mesh/replica-1"), "http://mesh/replica-1"),
        ] {
            let cluster = cluster(key, url);
            assert_eq!(cluster.address(), address);
            assert!(!format!("{cluster:?}").contains(key));
        }
    }
}
