//! Connects to a server, with TLS where its URL says so, and sends nothing.

use std::future::ready;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use tower::{BoxError, Layer, Service};
use url::Url;

use super::certificates::CaCertificates;
use super::client::ClientOptions;

/// Ends each connection as soon as it is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectOnly;

/// A connector whose connections are ended.
#[derive(Debug, Clone)]
pub(super) struct EndingConnector<S>(S);

/// What a request fails with whose connection is there.
#[derive(Debug, thiserror::Error)]
#[error("the connection is there")]
struct Connected;

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

/// Connects to the server of an `http` or `https` URL.
///
/// # Errors
/// The cause, without the URL.
pub async fn reach(url: &Url, certificates: &CaCertificates) -> Result<(), String> {
    let options = ClientOptions {
        certificates: certificates.clone(),
        tls: url.scheme() == "https",
        connect_only: true,
        ..ClientOptions::default()
    };
    let client = options.build().map_err(|error| cause_of(&error))?;
    match client.get(url.clone()).send().await {
        Ok(_) => Ok(()),
        Err(error) if is_connected(&error) => Ok(()),
        Err(error) if error.is_timeout() => Err("no connection in time".to_owned()),
        Err(error) => Err(cause_of(&error)),
    }
}

fn is_connected(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<Connected>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The message of the last error in the chain. The errors before it may contain the URL.
pub fn cause_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    fn url(scheme: &str, listener: &TcpListener) -> Url {
        let address = listener.local_addr().unwrap();
        format!("{scheme}://{address}/run?token=secret")
            .parse()
            .unwrap()
    }

    #[tokio::test]
    async fn nothing_is_sent_on_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url("http", &listener);
        let certificates = CaCertificates::default();
        let (reached, sent) = tokio::join!(reach(&url, &certificates), async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut sent = Vec::new();
            socket.read_to_end(&mut sent).await.unwrap();
            sent
        });
        assert_eq!((reached, sent.len()), (Ok(()), 0));
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_or_speaks_no_tls_is_not_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secure = url("https", &listener);
        let certificates = CaCertificates::default();
        let (reached, ()) = tokio::join!(reach(&secure, &certificates), async {
            let (socket, _) = listener.accept().await.unwrap();
            drop(socket);
        });
        let cause = reached.unwrap_err();
        assert!(!cause.contains("secret"), "{cause}");
        let gone = url("http", &listener);
        drop(listener);
        let cause = reach(&gone, &certificates).await.unwrap_err();
        assert!(
            cause.contains("refused") && !cause.contains("secret"),
            "{cause}"
        );
    }
}
