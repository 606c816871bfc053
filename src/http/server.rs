//! Accepting connections, and the graceful shutdown.

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

/// Delay after a failed accept, so that a lack of file descriptors does not cause a busy loop.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// How long requests that are ended at shutdown have to write the end of their response.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until `shutdown` resolves. Then no new requests are accepted, running ones have the configured grace period,
/// and those that still run after it are ended.
///
/// # Errors
/// None at present: failures of single connections are logged.
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
    // Runs may go on without a connection.
    let ended = async { tokio::join!(connections.wait(), state.runs.ended_all()) };
    let in_time = timeout(state.settings.shutdown_grace, ended).await.is_ok();
    state.runs.close();
    if !in_time {
        state.stopping.cancel();
        // A client that does not read cannot delay the shutdown.
        let ended = async { tokio::join!(connections.wait(), state.runs.ended_all()) };
        let _ended_or_dropped = timeout(FINAL_WRITE_TIMEOUT, ended).await;
    }
    Ok(())
}

/// Accepts connections without end.
async fn accept(listener: &TcpListener, state: &AppState, connections: &TaskTracker) {
    let router = super::router(state.clone());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, router.clone(), state.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Serves the requests of one connection.
async fn connection(stream: TcpStream, router: axum::Router, state: AppState) {
    // Sends small writes at once instead of waiting for the acknowledgement of the last one.
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
        // The middleware applies the exact limit, because hyper's refusals have no error envelope and no request id.
        // This limit is larger and bounds the memory.
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
