//! Accepting connections, and ending well: drain, then break off.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use super::AppState;

/// Pause after a failed accept, so that running out of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long ended requests get to write their last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves until `shutdown` resolves; then takes no new requests, gives the running ones their grace, and ends them.
///
/// # Errors
/// When the listener has no address, which does not happen to a bound one.
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let connections = TaskTracker::new();
    tokio::select! {
        () = shutdown => {}
        () = accept(&listener, &state, &connections) => {}
    }
    drop(listener);
    state.draining.cancel();
    connections.close();
    tracing::info!(connections = connections.len(), "draining");
    if timeout(state.settings.shutdown_grace, connections.wait())
        .await
        .is_err()
    {
        state.stopping.cancel();
        // A client that reads nothing cannot hold the process.
        let _slow_clients_are_cut = timeout(LAST_WORDS, connections.wait()).await;
    }
    Ok(())
}

/// Takes connections for ever.
async fn accept(listener: &TcpListener, state: &AppState, connections: &TaskTracker) {
    let router = super::router(state.clone());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, router.clone(), state.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection, with its requests one after another.
async fn connection(stream: TcpStream, router: axum::Router, state: AppState) {
    // Without this every small write could wait for the peer's acknowledgement.
    let _best_effort = stream.set_nodelay(true);
    let settings = &state.settings;
    let service = service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        async move { Ok::<_, Infallible>(answer(&mut router, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        // What hyper refuses has no envelope and no request id, so the edge counts exactly and this is the stop behind it.
        .max_buf_size(settings.max_header_bytes.saturating_mul(2))
        .half_close(false);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let draining: CancellationToken = state.draining.child_token();
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = draining.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

async fn answer(router: &mut axum::Router, request: Request<Incoming>) -> http::Response<Body> {
    match router.call(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
