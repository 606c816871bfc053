//! `/healthz`, `/readyz` and `/metrics`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::AppState;
use crate::metrics;
use crate::tools::source::Source;
use crate::upstream::UpstreamError;
use crate::upstream::models::merged;

/// Longest wait for the parts that readiness asks.
const READY_WAIT: Duration = Duration::from_secs(5);
/// How long an answer about readiness holds.
const READY_FOR: Duration = Duration::from_secs(1);

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

/// `GET /readyz`: an upstream and the session store are reachable, and the process is not stopping.
pub(super) async fn readyz(State(state): State<AppState>) -> Response {
    let Reachable { upstream, store } = state.readiness.look(&state).await;
    let draining = state.draining.is_cancelled();
    let word = |ok: bool| if ok { "ok" } else { "unreachable" };
    let ready = upstream && store && !draining;
    let status = match (ready, draining) {
        (true, _) => "ok",
        (false, true) => "shutting_down",
        (false, false) => "unavailable",
    };
    let mut body =
        json!({"status": status, "upstream": word(upstream), "session_store": word(store)});
    for (key, status) in state.sources.snapshot().iter().filter_map(Source::status) {
        body[key] = status;
    }
    let body = Json(body);
    match ready {
        true => body.into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], body).into_response(),
    }
}

/// Which parts answered.
#[derive(Debug, Clone, Copy)]
struct Reachable {
    upstream: bool,
    store: bool,
}

/// What was last found out about the parts. Everybody may ask, without a key, so one look serves all who ask within a
/// second.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<Option<(Instant, Reachable)>>);

impl Readiness {
    async fn look(&self, state: &AppState) -> Reachable {
        let mut last = self.0.lock().await;
        if let Some((when, found)) = *last
            && when.elapsed() < READY_FOR
        {
            return found;
        }
        let headers = HeaderMap::new();
        let asked = async { tokio::join!(merged(&state.router, &headers), state.sessions.ping()) };
        let found = match timeout(READY_WAIT, asked).await {
            Ok((models, ping)) => Reachable {
                upstream: reachable(&models.map(drop)),
                store: ping.is_ok(),
            },
            Err(_elapsed) => Reachable {
                upstream: false,
                store: false,
            },
        };
        *last = Some((Instant::now(), found));
        found
    }
}

/// `GET /metrics`: Prometheus text.
pub(super) async fn metrics(State(state): State<AppState>) -> Response {
    for source in state.sources.snapshot().iter() {
        state.metrics.source(source);
    }
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
