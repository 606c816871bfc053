//! Passes a request on to the replica that runs the run in question, and answers requests that other replicas pass on.
//!
//! The internal address has the same handlers as the public one, without this layer in front of them: a request that
//! another replica has passed on is never passed on again. A handler whose run is on another replica answers that the
//! replica cannot be reached.

use std::io;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde::Deserialize;
use tokio::time::timeout;
use tower_http::catch_panic::CatchPanicLayer;

use super::edge::{self, AnsweringReplica, REPLICA, REQUEST_ID, RequestPermit};
use super::error::{ApiError, codes, in_form};
use super::extract::{Path, Query};
use super::routes::Concerned;
use super::stream::{LAST_EVENT_ID, followed};
use super::{AppState, body};
use agent::runs::OtherReplica;
use net::cluster::{ReplicaBody, SignedRequest};
use protocol::ids::{Owner, RequestId, RunId, SessionId};
use upstream::headers::strip_hop_by_hop;

/// Where replicas read the lines of each other's runs, without numbers.
const LINES: &str = "/v1/runs/{id}/lines";
/// What another replica learns of the headers of a request, besides its id.
static PASSED_ON: [HeaderName; 3] = [ACCEPT, CONTENT_TYPE, HeaderName::from_static(LAST_EVENT_ID)];
/// How long another replica may be silent beyond two of its keep-alive comments. After it the stream breaks off.
const SILENCE: Duration = Duration::from_secs(30);

/// What a request concerns, as its path names it.
enum Subject {
    Run(RunId),
    /// The run of a session.
    Session(SessionId),
    /// Text that cannot be an id.
    Nothing,
}

impl Subject {
    fn read(concerned: Concerned, id: &str) -> Self {
        let subject = match concerned {
            Concerned::Session => SessionId::parse(id).ok().map(Self::Session),
            Concerned::Run => RunId::parse(id).ok().map(Self::Run),
        };
        subject.unwrap_or(Self::Nothing)
    }
}

/// The lines of a run that another replica reads.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LinesFrom {
    /// All lines.
    Start,
    /// Only the lines that follow.
    Now,
}

/// The query of a reader of lines.
#[derive(Debug, Deserialize)]
struct LinesQuery {
    from: LinesFrom,
}

/// The routes for other replicas: those whose requests concern a run, and the lines of a run.
pub(super) fn router(state: AppState, of_runs: axum::Router<AppState>) -> axum::Router {
    of_runs
        .route(LINES, get(lines))
        .method_not_allowed_fallback(async || codes::METHOD_NOT_ALLOWED)
        .fallback(async || codes::NOT_FOUND.with("this address serves other replicas only"))
        .layer((
            middleware::from_fn_with_state(state.clone(), admit),
            CatchPanicLayer::custom(edge::panic_response),
            DefaultBodyLimit::disable(),
        ))
        .with_state(state)
}

/// Lets the requests of replicas with the same key in, and signs the answers.
async fn admit(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let refused = || codes::INVALID_CLUSTER_KEY.into_response();
    let Some(cluster) = &state.cluster else {
        return refused();
    };
    let signed = cluster.request_of(request.method(), request.uri(), request.headers());
    let Some(signed) = signed else {
        tracing::debug!("a request to the internal address is not signed with the cluster key");
        return refused();
    };
    let form = state.routes.of(&request).error_form;
    let answered = answer_signed(&state, &signed, request, next).await;
    let response = answered.unwrap_or_else(IntoResponse::into_response);
    let mut response = in_form(response, form);
    if let Some(name) = &state.settings.replica_name {
        response.headers_mut().insert(REPLICA, name.clone());
    }
    cluster.sign_answer(&signed, &mut response);
    response
}

/// Answers a request of a replica as the owner that it names.
async fn answer_signed(
    state: &AppState,
    signed: &SignedRequest,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let (mut request, body) = with_whole_body(state, signed.owner(), request).await?;
    if !signed.has_body(&body) {
        tracing::debug!("a request to the internal address has another body than was signed");
        return Err(codes::INVALID_CLUSTER_KEY.into());
    }
    let request_id = edge::request_id(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(signed.owner().clone());
    request.extensions_mut().insert(request_id.clone());
    request.extensions_mut().insert(began);
    let mut response = next.run(request).await;
    response.extensions_mut().insert(RequestPermit(None));
    let status = response.status().as_u16();
    tracing::debug!(%request_id, %method, path, status, "another replica answered");
    Ok(response)
}

/// Passes a request on to the replica whose run it concerns. It is answered here if there is none, or it cannot be reached.
pub(super) async fn pass_on(
    State((state, concerned)): State<(AppState, Concerned)>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let subject = Subject::read(concerned, &id);
    let Some(address) = address_of(&state, &owner, &subject, request.uri()).await else {
        return Ok(next.run(request).await);
    };
    let (request, body) = with_whole_body(&state, &owner, request).await?;
    let head = head(&request);
    match ask(&state, &address, &owner, head, body).await {
        Some(answer) if !is_for_this(&state, &owner, &subject, answer.status()) => Ok(answer),
        Some(_) | None => Ok(next.run(request).await),
    }
}

/// Reads the lines of a run that another replica runs; `None` if that cannot be.
pub(super) async fn follow(
    state: &AppState,
    owner: &Owner,
    run: &RunId,
    from: LinesFrom,
) -> Option<Response> {
    let from = match from {
        LinesFrom::Start => "start",
        LinesFrom::Now => "now",
    };
    let other = state.runs.replica_of(owner, run).await.ok()??;
    let path = LINES.replace("{id}", &run.completion_id());
    let request = Request::get(format!("{path}?from={from}")).body(Body::empty());
    let head = head(&request.ok()?);
    let answer = ask(state, &other.address?, owner, head, Bytes::new()).await?;
    (answer.status() == StatusCode::OK).then_some(answer)
}

/// Reads the lines of another replica's run to their end, and drops them.
pub(super) async fn read_to_end(lines: Response) {
    let mut lines = lines.into_body().into_data_stream();
    while let Some(Ok(_)) = lines.next().await {}
}

/// `GET /v1/runs/{id}/lines` of the internal address.
async fn lines(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    Query(query): Query<LinesQuery>,
) -> Result<Response, ApiError> {
    let id = RunId::parse(&id).map_err(|_| codes::NOT_FOUND.with("no run has this id"))?;
    let follow = match query.from {
        LinesFrom::Start => state.runs.follow(&owner, &id, 0),
        LinesFrom::Now => state.runs.follow_on(&owner, &id),
    };
    let follow = follow.map_err(|_| codes::EVENTS_EXPIRED.error())?;
    Ok(followed(&state, follow))
}

/// The address of the other replica that a request is for.
async fn address_of(
    state: &AppState,
    owner: &Owner,
    subject: &Subject,
    uri: &Uri,
) -> Option<String> {
    let other = match subject {
        Subject::Run(id) => state.runs.replica_of(owner, id).await,
        Subject::Session(id) => state.sessions.store.replica_of_session(owner, id).await,
        Subject::Nothing => return None,
    };
    // If the store fails, the handler says so.
    let OtherReplica { address, ended } = other.ok()??;
    // The answer of a run that has ended is in the store. Its events are where it ran.
    address.filter(|_| !ended || reads_events(uri))
}

fn reads_events(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    uri.path().ends_with("/events") || query.split('&').any(|field| field == "stream=true")
}

/// Whether a request that another replica has refused is for this one: its own turn waits for the session.
fn is_for_this(state: &AppState, owner: &Owner, subject: &Subject, answered: StatusCode) -> bool {
    let nothing_there = matches!(answered, StatusCode::NOT_FOUND | StatusCode::CONFLICT);
    match subject {
        Subject::Session(id) => nothing_there && state.runs.of_session(owner, id).is_some(),
        Subject::Run(_) | Subject::Nothing => false,
    }
}

/// A request whose body has arrived, and a copy of the body.
async fn with_whole_body(
    state: &AppState,
    owner: &Owner,
    request: Request,
) -> Result<(Request, Bytes), ApiError> {
    if request.method() != Method::POST {
        return Ok((request, Bytes::new()));
    }
    let (mut parts, body) = request.into_parts();
    let body = body::read(state, owner, body, &parts.headers).await?;
    let body = body.into_bytes();
    // It has been decoded.
    parts.headers.remove(CONTENT_ENCODING);
    parts.headers.remove(CONTENT_LENGTH);
    Ok((Request::from_parts(parts, Body::from(body.clone())), body))
}

/// The head of a request as another replica gets it.
fn head(request: &Request) -> Parts {
    let (mut head, ()) = http::Request::new(()).into_parts();
    (head.method, head.uri) = (request.method().clone(), request.uri().clone());
    for name in &PASSED_ON {
        if let Some(value) = request.headers().get(name) {
            head.headers.insert(name.clone(), value.clone());
        }
    }
    let id = request.extensions().get::<RequestId>();
    if let Some(id) = id.and_then(|id| HeaderValue::from_str(id.as_str()).ok()) {
        head.headers.insert(REQUEST_ID, id);
    }
    head
}

/// The answer of another replica, if it gives one.
async fn ask(
    state: &AppState,
    address: &str,
    owner: &Owner,
    head: Parts,
    body: Bytes,
) -> Option<Response> {
    let cluster = state.cluster.as_ref()?;
    match cluster.ask(address, owner, head, body).await {
        Ok(answer) => Some(client_response(state, answer)),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(address, %error, cause, "another replica could not be asked");
            None
        }
    }
}

/// The answer of another replica for the client. Its body fails if that replica does or is silent, or this one stops.
fn client_response(state: &AppState, answer: http::Response<ReplicaBody>) -> Response {
    let (mut parts, body) = answer.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    // The client gets the id of its own request.
    parts.headers.remove(REQUEST_ID);
    let replica = parts.headers.remove(REPLICA);
    let silence = state.settings.keep_alive.saturating_mul(2) + SILENCE;
    let stopping = state.stopping.clone();
    let body = stream::unfold(Some(body), move |body| {
        let stopping = stopping.clone();
        async move {
            let mut body = body?;
            let next = tokio::select! {
                next = timeout(silence, body.next()) => next,
                () = stopping.cancelled() => Ok(Some(Err(io::Error::other("the server stops")))),
            };
            match next {
                Ok(Some(Ok(data))) => Some((Ok(data), Some(body))),
                Ok(Some(Err(error))) => Some((Err(error), None)),
                Ok(None) => None,
                Err(_elapsed) => Some((Err(io::ErrorKind::TimedOut.into()), None)),
            }
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    if let Some(name) = replica {
        response.extensions_mut().insert(AnsweringReplica(name));
    }
    response
}
