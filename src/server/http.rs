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
mod turn;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowMethods, CorsLayer, ExposeHeaders};

use access::CurrentAccess;

use agent::Agent;
use agent::metrics::Metrics;
use agent::runs::Runs;
use agent::session::Sessions;
use agent::traces::Traces;
use body::BodyBudgets;
use edge::RefusalLog;
use error::ApiError;
use net::cluster::Cluster;
use operations::Readiness;
use protocol::ids::Owner;
use quota::{FairPermit, FairSemaphore, MemoryBudget};
use responses::RetriedRequests;
use routes::Routes;
use settings::Settings;
use tools::source::Sources;
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
    /// The turns and forwarded requests of owners that share the connections to model servers. A turn goes on without a
    /// connection of a client.
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
        permit.ok_or_else(ApiError::too_many_turns)
    }

    /// Cancelled when the server accepts no new work.
    pub(crate) fn draining(&self) -> CancellationToken {
        self.draining.clone()
    }
}

/// All routes, with their descriptions. Requests to other paths below `/v1` are forwarded to an upstream.
fn routes() -> Routes {
    routes_with(run_routes())
}

/// The routes of runs, whose requests concern the replica that runs them.
fn run_routes() -> Routes {
    const COMPLETION: &str = "/v1/chat/completions/{id}";
    const RESPONSE: &str = "/v1/responses/{id}";
    Routes::default()
        .get(COMPLETION, completions::show, openapi::runs::show)
        .delete(COMPLETION, completions::delete, openapi::runs::delete)
        .get(
            "/v1/chat/completions/{id}/events",
            completions::events,
            openapi::runs::events,
        )
        .post(
            "/v1/chat/completions/{id}/cancel",
            completions::cancel,
            openapi::runs::cancel,
        )
        .post(
            "/v1/sessions/{id}/cancel",
            completions::cancel_session,
            openapi::runs::cancel_session,
        )
        .get(RESPONSE, responses::show, openapi::responses::show)
        .delete(RESPONSE, responses::delete, openapi::responses::delete)
        .post(
            "/v1/responses/{id}/cancel",
            responses::cancel,
            openapi::responses::cancel,
        )
}

/// Adds the other routes.
fn routes_with(of_runs: Routes) -> Routes {
    const MODEL: &str = "/v1/models/{*id}";
    const SESSION: &str = "/v1/sessions/{id}";
    const FILE: &str = "/v1/files/{id}";
    conversation_routes(response_routes(of_runs))
        .post(
            "/v1/chat/completions",
            chat::complete,
            openapi::chat::complete,
        )
        .get(
            "/v1/chat/completions/{id}/messages",
            completions::messages::list,
            openapi::runs::messages,
        )
        .get("/v1/models", models::list, openapi::server::models)
        .get(MODEL, models::show, openapi::server::model)
        // Fine-tuned models are deleted at the upstream.
        .any(MODEL, forward::forward, openapi::server::forwarded_model)
        .get("/v1/agent/tools", models::tools, openapi::server::tools)
        .post(
            "/v1/agent/tools/{name}/call",
            tool_call::call,
            openapi::server::call,
        )
        .get(
            "/v1/agent/approvals",
            approvals::list,
            openapi::server::approvals,
        )
        .post(
            "/v1/agent/approvals/{id}",
            approvals::decide,
            openapi::server::decide,
        )
        .post("/mcp", mcp::answer, openapi::server::mcp)
        .post(
            "/v1/permissions/explain",
            permissions::explain,
            openapi::server::explain,
        )
        .get("/v1/sessions", sessions::list, openapi::sessions::list)
        .get(SESSION, sessions::export, openapi::sessions::export)
        .put(SESSION, sessions::import, openapi::sessions::import)
        .delete(SESSION, sessions::delete, openapi::sessions::delete)
        .post(
            "/v1/sessions/{id}/fork",
            sessions::fork,
            openapi::sessions::fork,
        )
        .get("/v1/files", files::list, openapi::files::list)
        .post("/v1/files", files::upload, openapi::files::upload)
        .get(FILE, files::show, openapi::files::show)
        .delete(FILE, files::delete, openapi::files::delete)
        .get(
            "/v1/files/{id}/content",
            files::content,
            openapi::files::content,
        )
        .get("/healthz", operations::healthz, openapi::server::healthz)
        .get("/readyz", operations::readyz, openapi::server::readyz)
        .get("/metrics", operations::metrics, openapi::server::metrics)
        .get("/", console::page, openapi::server::console_page)
        .get("/ui/{*file}", console::file, openapi::server::console_file)
        .any("/v1/{*path}", forward::forward, openapi::server::forwarded)
}

/// Adds the routes of the Responses API.
fn response_routes(routes: Routes) -> Routes {
    routes
        .post(
            "/v1/responses",
            responses::create,
            openapi::responses::create,
        )
        .post(
            "/v1/responses/input_tokens",
            responses::input_tokens,
            openapi::responses::input_tokens,
        )
        .post(
            "/v1/responses/compact",
            responses::compact,
            openapi::responses::compact,
        )
        .get(
            "/v1/responses/{id}/input_items",
            responses::input_items,
            openapi::responses::input_items,
        )
        .get(
            "/v1/containers/{id}",
            containers::show,
            openapi::containers::show,
        )
        .get(
            "/v1/containers/{id}/files",
            containers::list,
            openapi::containers::list,
        )
        .get(
            "/v1/containers/{id}/files/{file_id}",
            containers::file,
            openapi::containers::file,
        )
        .get(
            "/v1/containers/{id}/files/{file_id}/content",
            containers::content,
            openapi::containers::content,
        )
}

/// Adds the routes of the Conversations API.
fn conversation_routes(routes: Routes) -> Routes {
    const CONVERSATION: &str = "/v1/conversations/{id}";
    const CONVERSATION_ITEMS: &str = "/v1/conversations/{id}/items";
    const CONVERSATION_ITEM: &str = "/v1/conversations/{id}/items/{item_id}";
    routes
        .post(
            "/v1/conversations",
            responses::conversations::create,
            openapi::conversations::create,
        )
        .get(
            CONVERSATION,
            responses::conversations::show,
            openapi::conversations::show,
        )
        .post(
            CONVERSATION,
            responses::conversations::update,
            openapi::conversations::update,
        )
        .delete(
            CONVERSATION,
            responses::conversations::delete,
            openapi::conversations::delete,
        )
        .get(
            CONVERSATION_ITEMS,
            responses::conversations::items,
            openapi::conversations::items,
        )
        .post(
            CONVERSATION_ITEMS,
            responses::conversations::add_items,
            openapi::conversations::add_items,
        )
        .get(
            CONVERSATION_ITEM,
            responses::conversations::item,
            openapi::conversations::item,
        )
        .delete(
            CONVERSATION_ITEM,
            responses::conversations::delete_item,
            openapi::conversations::delete_item,
        )
}

/// The routes as they are served, with the layers around them.
pub(crate) fn router(state: AppState) -> axum::Router {
    let cors = cors(&state.settings);
    let of_runs = match &state.cluster {
        Some(_) => run_routes().passed_on(&state),
        None => run_routes(),
    };
    let (router, _) = routes_with(of_runs).into_parts();
    let routes = router
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
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
    let exposed = headers::EXPOSED.map(http::HeaderName::from_static);
    Some(
        CorsLayer::new()
            .allow_origin(settings.cors_origins.clone())
            .allow_methods(AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(ExposeHeaders::list(exposed)),
    )
}
