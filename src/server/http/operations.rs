//! `/healthz`, `/readyz` and `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode, Uri};
use parking_lot::Mutex as SyncMutex;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::AppState;
use super::error::{ApiError, codes};
use super::openapi::headers::HeaderKind;
use super::openapi::operation::Operation;
use super::routes::{ApiEndpoint, Group};
use agent::metrics::{self, RouteLabel};
use protocol::ids::Owner;
use tools::source::{Health, Source};
use upstream::probe::{UpstreamProbe, UpstreamState, probe_all};

/// Longest wait for the session store and the storage of files. After it the server is not ready.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the result of a probe is reused.
/// Tried by `operators::while_a_probe_runs_the_last_result_is_the_answer`.
const PROBE_MAX_AGE: Duration = Duration::from_secs(1);

/// The member of an upstream that only operators get.
const URL: &str = "url";

/// The routes for operators.
pub(super) fn group() -> Group {
    Group {
        tag: "Operations",
        label: RouteLabel::Operations,
        endpoints: vec![
            // Without a key and an allowed host they show the status only.
            ApiEndpoint::get("/healthz", healthz, describe_healthz).open(),
            ApiEndpoint::get("/readyz", readyz, describe_readyz).open(),
            ApiEndpoint::get("/metrics", metrics, describe_metrics),
        ],
        ..Group::default()
    }
}

/// `GET /healthz`: always 200.
async fn healthz() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

fn describe_healthz(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getHealth", "Whether the server is alive")
        .public()
        .answers::<Liveness>(200, "It is.")
}

/// `GET /readyz`: 200 if an upstream, the session store and the storage of files are reachable and the server is not
/// shutting down, else 503.
///
/// The status is public; the rest of the body is for callers who may send requests.
async fn readyz(State(state): State<AppState>, headers: HeaderMap, uri: Uri) -> Response {
    let Reachable {
        upstream,
        upstreams,
        store,
        files,
    } = state.readiness.check(&state).await;
    let draining = state.draining.is_cancelled();
    let word = |ok: bool| if ok { "ok" } else { "unreachable" };
    let ready = upstream && store && files && !draining;
    let status = match (ready, draining) {
        (true, _) => "ok",
        (false, true) => "shutting_down",
        (false, false) => "unavailable",
    };
    let mut body = json!({"status": status});
    if let Ok(owner) = state
        .access
        .get()
        .authenticator
        .authenticate(&headers, &uri)
    {
        body["version"] = env!("CARGO_PKG_VERSION").into();
        if let Some(commit) = option_env!("LOOPWRIGHT_COMMIT") {
            body["commit"] = commit.into();
        }
        body["upstream"] = word(upstream).into();
        body["session_store"] = word(store).into();
        body["file_store"] = word(files).into();
        let mut upstreams = Map::clone(&upstreams);
        if !state.access.get().authenticator.is_operator(&owner) {
            let all = upstreams.values_mut().filter_map(Value::as_object_mut);
            all.for_each(|facts| {
                facts.remove(URL);
            });
        }
        body["upstreams"] = upstreams.into();
        let sources = state.sources.snapshot_for(&owner);
        for (key, status) in sources.iter().filter_map(Source::status) {
            match (body[key].as_object_mut(), status) {
                // Several sources of one kind.
                (Some(known), Value::Object(status)) => known.extend(status),
                (_, status) => body[key] = status,
            }
        }
    }
    let body = Json(body);
    match ready {
        true => body.into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], body).into_response(),
    }
}

fn describe_readyz(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getReadiness",
            "Whether a model server and the session store are reachable",
        )
        .described("A request with a key, or without keys one with an allowed host, also gets the details.")
        .public()
        .answers::<ReadinessAnswer>(200, "They are.")
        .answers::<ReadinessAnswer>(503, "They are not, or the server is shutting down.")
        .with_headers(503, &[("retry-after", HeaderKind::Number, "Seconds to wait.")])
}

/// The result of a probe.
#[derive(Debug, Clone)]
struct Reachable {
    upstream: bool,
    /// What was seen of each upstream.
    upstreams: Arc<Map<String, Value>>,
    store: bool,
    files: bool,
}

/// The last probe and its time. The endpoint needs no key, so a result is reused for [`PROBE_MAX_AGE`].
#[derive(Debug, Default)]
pub(super) struct Readiness {
    last: SyncMutex<Option<(Instant, Reachable)>>,
    /// Held while a probe runs.
    probing: Mutex<()>,
}

impl Readiness {
    /// The last result, or the result of a new probe if it is too old. While a probe runs, other requests get the last
    /// result: a hanging upstream must not hold their connections.
    async fn check(&self, state: &AppState) -> Reachable {
        let _probing = match (self.probing.try_lock(), self.last()) {
            (Ok(probing), _) => probing,
            (Err(_), Some((_, found))) => return found,
            (Err(_), None) => self.probing.lock().await,
        };
        if let Some((when, found)) = self.last()
            && when.elapsed() < PROBE_MAX_AGE
        {
            return found;
        }
        let headers = HeaderMap::new();
        let (seen, store, files) = tokio::join!(
            probe_all(&state.router, &headers),
            timeout(PROBE_TIMEOUT, state.sessions.store.ping()),
            timeout(PROBE_TIMEOUT, state.sessions.files.ping())
        );
        let found = Reachable {
            upstream: is_reachable(&seen),
            upstreams: Arc::new(seen.iter().map(details).collect()),
            store: matches!(store, Ok(Ok(()))),
            files: matches!(files, Ok(Ok(()))),
        };
        *self.last.lock() = Some((Instant::now(), found.clone()));
        found
    }

    fn last(&self) -> Option<(Instant, Reachable)> {
        self.last.lock().clone()
    }
}

/// Whether an upstream lists its models, or at least the first one is reachable; a 401 is expected when only clients
/// have its key.
fn is_reachable(seen: &[UpstreamProbe]) -> bool {
    let any_lists = seen.iter().any(|probe| probe.state == UpstreamState::Ok);
    any_lists || seen.first().is_some_and(|first| first.state.is_reachable())
}

/// The part of an upstream's state that holders of a key see; its URL is for operators.
fn details(probe: &UpstreamProbe) -> (String, Value) {
    let mut details = json!({"state": probe.state, URL: probe.upstream.address()});
    if let Some(kind) = probe.upstream.kind() {
        details["kind"] = json!(kind);
    }
    (probe.upstream.name().to_owned(), details)
}

/// `GET /metrics`: the metrics in the Prometheus text format, for operators.
async fn metrics(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
) -> Result<Response, ApiError> {
    match state.access.get().authenticator.is_operator(&owner) {
        true => Ok(metrics_page(State(state)).await),
        false => Err(codes::OPERATOR_REQUIRED.into()),
    }
}

fn describe_metrics(operation: Operation<'_>) -> Operation<'_> {
    let media = metrics::CONTENT_TYPE;
    let media = media.split(';').next().unwrap_or(media);
    operation
        .named("getMetrics",
            "The metrics in the text format of Prometheus",
        )
        .described(
            "With API keys they are for those with `operator = true`, or for all while none has that mark. `metrics_listen` \
             serves them on an address of their own, without a key.",
        )
        .answers_as(200, media, json!({"type": "string"}), "The metrics.")
        .fails(&[codes::OPERATOR_REQUIRED])
}

/// The metrics. They are public.
pub(super) async fn metrics_page(State(state): State<AppState>) -> Response {
    for source in state.sources.snapshot().iter() {
        state.metrics.source(source);
    }
    (
        [(CONTENT_TYPE, metrics::CONTENT_TYPE)],
        state.metrics.encode(),
    )
        .into_response()
}

/// Whether the server can work.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Liveness {
    #[schemars(extend("const" = "ok"))]
    status: String,
}

/// Whether the server can work. A caller without a key gets the status only, and so does one of a host that is not allowed.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "Readiness")]
#[expect(dead_code, reason = "only its schema is used")]
struct ReadinessAnswer {
    #[schemars(extend("enum" = ["ok", "unavailable", "shutting_down"]))]
    status: String,
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The commit that the program was built from, if the build was given it.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[schemars(with = "String", extend("enum" = ["ok", "unreachable"]), skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    /// The model servers, by name.
    #[schemars(
        with = "BTreeMap<String, UpstreamFacts>",
        skip_serializing_if = "Option::is_none"
    )]
    upstreams: Option<BTreeMap<String, UpstreamFacts>>,
    #[schemars(with = "String", extend("enum" = ["ok", "unreachable"]), skip_serializing_if = "Option::is_none")]
    session_store: Option<String>,
    /// Where the contents of files are kept.
    #[schemars(with = "String", extend("enum" = ["ok", "unreachable"]), skip_serializing_if = "Option::is_none")]
    file_store: Option<String>,
    /// The isolation of the code, and how many interpreters there are; absent if code execution is switched off.
    #[schemars(with = "Map<String, Value>", skip_serializing_if = "Option::is_none")]
    code_execution: Option<Map<String, Value>>,
    /// The MCP servers that the caller may use, by name; absent if there are none.
    #[schemars(
        with = "BTreeMap<String, McpReadiness>",
        skip_serializing_if = "Option::is_none"
    )]
    mcp_servers: Option<BTreeMap<String, McpReadiness>>,
}

/// What is known of a model server.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct UpstreamFacts {
    /// What it is, from the settings, by its host or by what it answered; absent if that is not known.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Whether it lists its models, and if not, why.
    state: UpstreamState,
    /// Its base URL; only for those who may read `/metrics`.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// Whether calls of an MCP server's tools can run.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct McpReadiness {
    state: Health,
    /// How many tools it has.
    tools: usize,
    /// Why calls cannot run; absent if they can.
    #[schemars(with = "String", skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}
