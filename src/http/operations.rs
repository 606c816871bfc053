//! `/healthz`, `/readyz` and `/metrics`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use serde_json::json;
use tokio::time::timeout;

use super::AppState;
use crate::metrics;
use crate::upstream::UpstreamError;
use crate::upstream::models::merged;

/// Longest wait for the parts that readiness asks.
const READY_WAIT: Duration = Duration::from_secs(5);

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

/// `GET /readyz`: an upstream and the session store are reachable, and the process is not stopping.
pub(super) async fn readyz(State(state): State<AppState>) -> Response {
    let parts = state.agent.parts();
    let headers = HeaderMap::new();
    let asked = async { tokio::join!(merged(&parts.router, &headers), parts.store.ping()) };
    let (upstream, store) = match timeout(READY_WAIT, asked).await {
        Ok((models, ping)) => (reachable(&models.map(drop)), ping.is_ok()),
        Err(_elapsed) => (false, false),
    };
    let draining = state.draining.is_cancelled();
    let word = |ok: bool| if ok { "ok" } else { "unreachable" };
    let ready = upstream && store && !draining;
    let status = match (ready, draining) {
        (true, _) => "ok",
        (false, true) => "shutting_down",
        (false, false) => "unavailable",
    };
    let body =
        Json(json!({"status": status, "upstream": word(upstream), "session_store": word(store)}));
    match ready {
        true => body.into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], body).into_response(),
    }
}

/// `GET /metrics`: Prometheus text.
pub(super) async fn metrics(State(state): State<AppState>) -> Response {
    (
        [(CONTENT_TYPE, metrics::CONTENT_TYPE)],
        state.metrics.encode(),
    )
        .into_response()
}

/// A server that answers at all is reachable, even when it wants a key that only clients bring.
fn reachable(answer: &Result<(), UpstreamError>) -> bool {
    match answer {
        Ok(()) => true,
        Err(UpstreamError::Status { status, .. }) => !status.is_server_error(),
        Err(_) => false,
    }
}
