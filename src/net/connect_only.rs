//! Connections that end as soon as they are established.

use std::future::ready;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use tower::{BoxError, Layer, Service};

/// Ends each connection as soon as it is established.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectOnly;

/// A connector whose connections are ended.
#[derive(Debug, Clone)]
pub(super) struct EndingConnector<S>(S);

/// The error of a request whose connection was established.
#[derive(Debug, thiserror::Error)]
#[error("the connection is there")]
pub(super) struct Connected;

impl<S> Layer<S> for ConnectOnly {
    type Service = EndingConnector<S>;

    fn layer(&self, connector: S) -> EndingConnector<S> {
        EndingConnector(connector)
    }
}

impl<S, R> Service<R> for EndingConnector<S>
where
    S: Service<R, Error = BoxError>,
    S::Response: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connecting = self.0.call(request);
        connecting
            .and_then(|_connection| ready(Err(Connected.into())))
            .boxed()
    }
}
