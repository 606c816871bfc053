//! The body of a request, and why a request fails.

use std::time::Duration;

/// The body of a request.
pub type RequestBody = reqwest::Body;

/// Why a request failed, without its URL.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URI has no host, or a scheme other than `http` and `https`.
    #[error("the URI cannot be requested")]
    Uri,
    /// No connection in this time.
    #[error("no connection within {} s", .0.as_secs_f64())]
    ConnectTimeout(Duration),
    /// The server cannot be reached.
    #[error("could not connect")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The certificate of the server is refused. Holds the remedy.
    #[error("{0}")]
    Certificate(
        &'static str,
        #[source] Box<dyn std::error::Error + Send + Sync>,
    ),
    /// The connection failed after the request was sent, perhaps in part.
    #[error("the connection failed")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ClientError {
    pub(super) fn unreachable(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Connect(Box::new(error))
    }

    pub(super) fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Broken(Box::new(error))
    }
}
