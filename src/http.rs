//! The HTTP server: routes, authentication, request bodies and responses.
//!
//! A request starts a run or is passed through, and its outcome is encoded as the response. The loop itself is in
//! [`crate::agent`].

mod auth;
mod body;
mod chat;
mod completions;
mod dialect;
mod edge;
pub mod error;
mod extract;
mod files;
mod forward;
mod headers;
mod idempotency;
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
use crate::fair::FairSemaphore;
use crate::metrics::Metrics;
use crate::runs::Runs;
use crate::session::Sessions;
use crate::tools::source::Sources;
use crate::upstream::router::Router;
use auth::Authenticator;
use body::BodyBudgets;
use error::ApiError;
use forward::ForwardRules;
use operations::Readiness;
use settings::Settings;

/// The state that every handler gets; cheap to clone.
#[derive(Debug, Clone)]
pub struct AppState(Arc<StateInner>);

/// The parts of the server that handlers use.
#[derive(Debug)]
pub struct Services {
    /// What turns are decoded for.
    pub agent: Agent,
    /// Running turns.
    pub runs: Runs,
    /// The model servers.
    pub router: Arc<Router>,
    /// Stored conversations and their files.
    pub sessions: Sessions,
    /// Where server-side tools come from.
    pub sources: Arc<Sources>,
    /// The metrics.
    pub metrics: Metrics,
}

/// What all clones of [`AppState`] share.
#[derive(Debug)]
pub struct StateInner {
    services: Services,
    settings: Settings,
    authenticator: Authenticator,
    forward_rules: ForwardRules,
    readiness: Readiness,
    /// The memory of request bodies.
    bodies: BodyBudgets,
    /// Most connections.
    max_connections: usize,
    /// The requests in progress, if several owners share the connections.
    requests: Option<FairSemaphore>,
    /// Cancelled when the server accepts no new work.
    draining: CancellationToken,
    /// Cancelled when the grace period is over and running requests must end.
    stopping: CancellationToken,
}

impl std::ops::Deref for AppState {
    type Target = StateInner;

    fn deref(&self) -> &StateInner {
        &self.0
    }
}

impl std::ops::Deref for StateInner {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl AppState {
    /// The state of a server.
    pub fn new(services: Services, settings: Settings) -> Self {
        let authenticator = Authenticator::new(&settings.api_keys, &settings.allowed_hosts);
        let forward_rules = ForwardRules::new(&settings);
        let bodies = BodyBudgets::new(&settings);
        let max_connections = server::connection_limit(&settings);
        let is_shared = settings.api_keys.len() > 1;
        let (draining, stopping) = (CancellationToken::new(), CancellationToken::new());
        Self(Arc::new(StateInner {
            services,
            settings,
            authenticator,
            forward_rules,
            readiness: Readiness::default(),
            bodies,
            max_connections,
            requests: is_shared.then(|| FairSemaphore::with_reserve(max_connections)),
            draining,
            stopping,
        }))
    }
}

/// All routes. Requests to other paths below `/v1` are forwarded to an upstream.
pub fn router(state: AppState) -> axum::Router {
    let cors = cors(&state.settings);
    let routes = axum::Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route(
            "/v1/chat/completions/{id}",
            get(completions::show).delete(completions::delete),
        )
        .route(
            "/v1/chat/completions/{id}/messages",
            get(completions::messages),
        )
        .route("/v1/chat/completions/{id}/events", get(completions::events))
        .route(
            "/v1/chat/completions/{id}/cancel",
            post(completions::cancel),
        )
        .route(
            "/v1/sessions/{id}/cancel",
            post(completions::cancel_session),
        )
        .route("/v1/models", get(models::list))
        // Fine-tuned models are deleted at the upstream.
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
        // The configured limit is applied where bodies are read.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(edge::panic_response))
        // Outside the panic layer, so that the response to a panic also gets a request id, a log line and a count.
        .layer(middleware::from_fn_with_state(state.clone(), edge::guard));
    // The outermost layer, because a preflight request carries no key.
    let routes = match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.with_state(state)
}

/// The routes of the address for metrics, which needs no key.
fn metrics_router(state: AppState) -> axum::Router {
    axum::Router::new()
        .route("/metrics", get(operations::metrics_page))
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .fallback(async || ApiError::not_found("this address serves /metrics only"))
        .layer(CatchPanicLayer::custom(edge::panic_response))
        .with_state(state)
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
