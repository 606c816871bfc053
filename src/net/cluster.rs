//! The replicas that share a session store: the key that they have in common, and requests from one to another.
//!
//! A request says on whose behalf it is sent. The request and the head of its answer are signed with the key. The key
//! itself is never sent: the addresses of other replicas come from the store, and a party that can write there must not
//! learn the key. The callers choose what is asked for, and which replica is asked.

pub mod settings;
mod signature;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tokio::time::timeout;

use self::settings::Settings;
pub use self::signature::SignedRequest;
use self::signature::{Asked, ClusterKey};
use crate::{ClientError, ClientOptions, HttpClient};
use protocol::ids::Owner;

/// The owner on whose behalf a replica asks another one; empty where no API keys are configured.
const OWNER: HeaderName = HeaderName::from_static("x-loopwright-owner");
/// Longest wait for a connection to another replica, which is near. After it the replica counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for the head of an answer; a run that is told to end answers once it has ended. After it the replica
/// counts as unreachable.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an unused connection is kept: less than replicas wait for the next request.
const POOL_IDLE: Duration = Duration::from_secs(10);

/// The client and the key with which this replica asks others and checks their requests.
pub struct Cluster {
    client: HttpClient,
    address: String,
    key: ClusterKey,
}

/// The body of an answer of another replica.
pub type ReplicaBody = BoxStream<'static, io::Result<Bytes>>;

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The key cannot sign.
    #[error("the cluster key cannot be used")]
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
    /// It does not take the signature.
    #[error(
        "it refuses the signature; every replica must have the same cluster key, a clock that is right within five minutes, and a \
         `cluster_url` of its own"
    )]
    Refused,
    /// Its answer, which has this status, is not signed.
    #[error("its answer ({0}) does not prove that it has the cluster key, and is not used")]
    Unproven(StatusCode),
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
        let key = ClusterKey::new(&settings.key).ok_or(ClusterError::Key)?;
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
            key,
        })
    }

    /// The URL at which other replicas reach this one.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A request of another replica; `None` if it is of no replica with the same key, or for another address. Its body is to be
    /// checked by [`SignedRequest::has_body`].
    pub fn request_of(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<SignedRequest> {
        let owner = headers.get(OWNER)?.to_str().ok()?;
        let asked = Asked {
            method,
            path: path_of(uri),
            address: &self.address,
            owner,
        };
        self.key.check_request(asked, headers)
    }

    /// Signs the answer to a request.
    pub fn sign_answer<B>(&self, request: &SignedRequest, answer: &mut Response<B>) {
        let status = answer.status();
        self.key.sign_answer(request, status, answer.headers_mut());
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
        let path = path_of(&head.uri);
        let uri = Uri::try_from(format!("{address}{path}"));
        let uri = uri.map_err(|_| ReplicaError::Address)?;
        let mut headers = head.headers;
        let name = HeaderValue::from_str(owner.as_str());
        headers.insert(OWNER, name.map_err(ReplicaError::connection)?);
        let asked = Asked {
            method: &head.method,
            path,
            address,
            owner: owner.as_str(),
        };
        let signed = self.key.sign_request(asked, &body, &mut headers);
        let mut request = Request::new(body.into());
        *request.method_mut() = head.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let asked = timeout(HEAD_TIMEOUT, self.client.execute(request));
        let mut answer = asked
            .await
            .map_err(|_| ReplicaError::Silent(HEAD_TIMEOUT))?
            .map_err(ReplicaError::connection)?;
        let status = answer.status();
        if status == StatusCode::UNAUTHORIZED {
            return Err(ReplicaError::Refused);
        }
        if !self
            .key
            .take_signature(&signed, status, answer.headers_mut())
        {
            return Err(ReplicaError::Unproven(status));
        }
        let failed = |error: ClientError| io::Error::other(error);
        Ok(answer.map(|body| body.map(move |data| data.map_err(failed)).boxed()))
    }
}

/// The path and the query, as they are signed.
fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
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
    use crate::CaCertificates;

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
