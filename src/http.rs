//! The HTTP edge: routes, who may ask, bodies in and answers out.
//!
//! Turns requests into runs or passes them through, and encodes what comes back. Holds no logic of the loop.

mod auth;
mod body;
mod chat;
mod dialect;
mod edge;
pub mod error;
mod extract;
mod files;
mod forward;
mod headers;
mod models;
mod operations;
mod path;
pub mod server;
mod sessions;
pub mod settings;
mod stream;
mod turn;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{any, get, post};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowMethods, CorsLayer, ExposeHeaders};

use crate::agent::Agent;
use crate::metrics::Metrics;
use crate::session::Sessions;
use crate::tools::source::Sources;
use crate::upstream::router::Router;
use auth::Gatekeeper;
use error::ApiError;
use operations::Readiness;
use settings::Settings;

/// What handlers are given; cheap to clone.
#[derive(Debug, Clone)]
pub struct AppState(Arc<Shared>);

/// The parts that handlers work with.
#[derive(Debug)]
pub struct Handles {
    /// Runs turns.
    pub agent: Agent,
    /// The model servers.
    pub router: Arc<Router>,
    /// Stored conversations and their files.
    pub sessions: Sessions,
    /// Where server-side tools come from.
    pub sources: Arc<Sources>,
    /// What is counted.
    pub metrics: Metrics,
}

/// The one copy of the state.
#[derive(Debug)]
pub struct Shared {
    handles: Handles,
    /// The edge's settings.
    settings: Settings,
    gatekeeper: Gatekeeper,
    readiness: Readiness,
    /// No new work is taken any more.
    draining: CancellationToken,
    /// The grace is over: what still runs ends now.
    stopping: CancellationToken,
}

impl std::ops::Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl std::ops::Deref for Shared {
    type Target = Handles;

    fn deref(&self) -> &Handles {
        &self.handles
    }
}

impl AppState {
    /// The state of a server.
    pub fn new(handles: Handles, settings: Settings) -> Self {
        let gatekeeper = Gatekeeper::new(&settings.api_keys, &settings.allowed_hosts);
        let (draining, stopping) = (CancellationToken::new(), CancellationToken::new());
        Self(Arc::new(Shared {
            handles,
            settings,
            gatekeeper,
            readiness: Readiness::default(),
            draining,
            stopping,
        }))
    }
}

/// Every route. What is not listed below `/v1` goes to the upstream.
pub fn router(state: AppState) -> axum::Router {
    let cors = cors(&state.settings);
    let routes = axum::Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/models", get(models::list))
        // A fine-tuned model is deleted where it lives.
        .route("/v1/models/{*id}", any(forward::forward).get(models::show))
        .route("/v1/agent/tools", get(models::tools))
        .route("/v1/sessions", get(sessions::list))
        .route(
            "/v1/sessions/{id}",
            get(sessions::export)
                .put(sessions::import)
                .delete(sessions::delete),
        )
        .route("/v1/sessions/{id}/fork", post(sessions::fork))
        .route("/v1/files", get(files::list).post(files::upload))
        .route("/v1/files/{id}", get(files::show).delete(files::delete))
        .route("/v1/files/{id}/content", get(files::content))
        .route("/healthz", get(operations::healthz))
        .route("/readyz", get(operations::readyz))
        .route("/metrics", get(operations::metrics))
        .route("/v1/{*path}", any(forward::forward))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .fallback(async || {
            ApiError::not_found("this path does not exist; the paths of the API begin with /v1")
        })
        // Bodies are bounded where they are read, by the configured size.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(edge::panicked))
        // Outside the panic layer, so that a panic's answer has its id, log line and count too.
        .layer(middleware::from_fn_with_state(state.clone(), edge::guard));
    // Outermost: a preflight carries no key.
    let routes = match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.with_state(state)
}

fn cors(settings: &Settings) -> Option<CorsLayer> {
    if settings.cors_origins.is_empty() {
        return None;
    }
    let exposed = [
        "x-request-id",
        "x-session-id",
        "openai-processing-ms",
        "x-loopwright-overhead-ms",
    ];
    let exposed: Vec<_> = exposed
        .into_iter()
        .map(http::HeaderName::from_static)
        .collect();
    Some(
        CorsLayer::new()
            .allow_origin(settings.cors_origins.clone())
            .allow_methods(AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(ExposeHeaders::list(exposed)),
    )
}
