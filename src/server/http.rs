//! The HTTP server: routes, authentication, request bodies and responses.
//!
//! A request starts a run or is passed through, and its outcome is encoded as the response. The loop itself is in
//! [`agent`].

mod access;
mod answer;
mod approvals;
mod auth;
mod body;
mod caller;
mod chat;
mod cluster;
mod completions;
mod console;
mod containers;
mod deleted;
mod edge;
mod encoding;
pub(crate) mod error;
mod extract;
mod files;
mod forward;
mod headers;
mod idempotency;
#[cfg_attr(not(feature = "mcp"), path = "http/no_mcp.rs")]
mod mcp;
mod models;
pub mod openapi;
mod operations;
mod path;
mod permissions;
mod probe;
mod reads;
mod responses;
pub(crate) mod resume;
mod routes;
mod running;
mod served;
pub(crate) mod server;
mod sessions;
pub(crate) mod settings;
mod stream;
mod tool_call;
mod tools;
mod turn;

use std::sync::Arc;

use access::CurrentAccess;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::get;
use body::BodyBudgets;
use edge::RefusalLog;
use error::{ApiError, codes};
use operations::Readiness;
use responses::RetriedRequests;
use routes::{Group, RouteTable};
use settings::Settings;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowMethods, CorsLayer, ExposeHeaders};

use ::tools::source::Sources;
use agent::Agent;
use agent::metrics::Metrics;
use agent::runs::Runs;
use agent::session::Sessions;
use agent::traces::Traces;
use net::cluster::Cluster;
use protocol::ids::Owner;
use quota::{FairPermit, FairSemaphore, MemoryBudget};
use upstream::router::Router;

/// The state that every handler gets; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct AppState(Arc<StateInner>);

/// The parts of the server that handlers use.
#[derive(Debug)]
pub(crate) struct Services {
    /// What turns are decoded for.
    pub(crate) agent: Agent,
    /// Running turns.
    pub(crate) runs: Runs,
    /// The model servers.
    pub(crate) router: Arc<Router>,
    /// Stored conversations and their files.
    pub(crate) sessions: Sessions,
    /// Where server-side tools come from.
    pub(crate) sources: Arc<Sources>,
    pub(crate) metrics: Metrics,
    /// Starts spans.
    pub(crate) traces: Traces,
    /// The other replicas, if they can be asked.
    pub(crate) cluster: Option<Cluster>,
}

/// What all clones of [`AppState`] share.
#[derive(Debug)]
pub(crate) struct StateInner {
    services: Services,
    settings: Settings,
    routes: RouteTable,
    access: CurrentAccess,
    readiness: Readiness,
    /// The memory of request bodies.
    bodies: BodyBudgets,
    /// Requests that clients may send again.
    retried: RetriedRequests,
    /// Most connections.
    max_connections: usize,
    /// The requests in progress of owners that share the connections.
    requests: FairSemaphore,
    /// The memory of what is read from the store for answers.
    reads: MemoryBudget,
    /// The turns and forwarded requests of owners, which share the connections to model servers. A turn can run without
    /// a client connection.
    turns: FairSemaphore,
    /// The log of refused requests.
    refusals: RefusalLog,
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
    pub(crate) fn new(services: Services, settings: Settings) -> Self {
        let access = CurrentAccess::new(&settings);
        let bodies = BodyBudgets::new(&settings);
        let limits = server::limits(&settings);
        let turns = FairSemaphore::new(limits.turns);
        let is_shared = settings.api_keys.len() > 1;
        turns.share(is_shared);
        services.sessions.store.share_connections(is_shared);
        let reads = MemoryBudget::new(settings.max_parsed_bytes, is_shared);
        let (draining, stopping) = (CancellationToken::new(), CancellationToken::new());
        Self(Arc::new(StateInner {
            services,
            settings,
            routes: RouteTable::new(&groups()),
            access,
            readiness: Readiness::default(),
            bodies,
            retried: RetriedRequests::default(),
            max_connections: limits.connections,
            requests: FairSemaphore::with_reserve(limits.connections),
            reads,
            turns,
            refusals: RefusalLog::default(),
            draining,
            stopping,
        }))
    }

    pub(crate) fn serves_console(&self) -> bool {
        self.settings.console
    }

    /// A permit for what is sent to model servers, with or without a client.
    fn permit_for_turn(&self, owner: &Owner) -> Result<FairPermit, ApiError> {
        let permit = self.turns.try_acquire(owner);
        permit.ok_or_else(|| codes::RATE_LIMIT_EXCEEDED.with("too many turns and forwarded requests of this API key are running, background ones included; wait until some of them have ended, or cancel some"))
    }

    /// Cancelled when the server accepts no new work.
    pub(crate) fn draining(&self) -> CancellationToken {
        self.draining.clone()
    }
}

/// All routes. Requests to other paths below `/v1` are forwarded to an upstream.
fn groups() -> Vec<Group> {
    let mut groups = vec![
        responses::group(),
        responses::conversations::group(),
        containers::group(),
        completions::group(),
        models::group(),
        tools::group(),
        permissions::group(),
        sessions::group(),
        files::group(),
        operations::group(),
        console::group(),
    ];
    groups.extend(forward::groups());
    groups
}

/// The routes as they are served, with the layers around them.
pub(crate) fn router(state: AppState) -> axum::Router {
    let cors = cors(&state.settings);
    let routes = groups().into_iter().flat_map(|group| group.endpoints);
    let router = routes.fold(axum::Router::new(), |router, route| {
        let handler = match (route.concerns, &state.cluster) {
            (Some(concerned), Some(_)) => {
                let with = (state.clone(), concerned);
                route
                    .handler
                    .route_layer(middleware::from_fn_with_state(with, cluster::pass_on))
            }
            _ => route.handler,
        };
        router.route(route.path, handler)
    });
    let routes = router
        .method_not_allowed_fallback(async || codes::METHOD_NOT_ALLOWED)
        .fallback(async || ApiError::no_such_path())
        // Together, because each call of `layer` boxes the service of every route once more.
        .layer((
            // Outside the panic layer, so that the response to a panic also gets a request id, a log line and a count.
            middleware::from_fn_with_state(state.clone(), edge::guard),
            CatchPanicLayer::custom(edge::panic_response),
            // The configured limit is applied where bodies are read.
            DefaultBodyLimit::disable(),
        ));
    // The outermost layer, because a preflight request carries no key.
    let routes = match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.with_state(state)
}

/// The routes of the internal address: those whose requests concern a run of this replica, and what only replicas ask.
fn replica_router(state: AppState) -> axum::Router {
    let routes = groups().into_iter().flat_map(|group| group.endpoints);
    let of_runs = routes.filter(|route| route.concerns.is_some());
    let of_runs = of_runs.fold(axum::Router::new(), |router, route| {
        router.route(route.path, route.handler)
    });
    cluster::router(state, of_runs)
}

/// The routes of the address for metrics, which needs no key.
fn metrics_router(state: AppState) -> axum::Router {
    axum::Router::new()
        .route("/metrics", get(operations::metrics_page))
        .method_not_allowed_fallback(async || codes::METHOD_NOT_ALLOWED)
        .fallback(async || codes::NOT_FOUND.with("this address serves /metrics only"))
        .layer(CatchPanicLayer::custom(edge::panic_response))
        .with_state(state)
}

fn cors(settings: &Settings) -> Option<CorsLayer> {
    if settings.cors_origins.is_empty() {
        return None;
    }
    let exposed = headers::EXPOSED.map(http::HeaderName::from_static);
    Some(
        CorsLayer::new()
            .allow_origin(settings.cors_origins.clone())
            .allow_methods(AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(ExposeHeaders::list(exposed)),
    )
}
