//! Runs a turn and answers with its events, in the dialect of the request.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use serde_json::value::to_raw_value;
use tokio::time::timeout;

use super::AppState;
use super::answer::{set_completion_id, whole, whole_of};
use super::body::HeldBody;
use super::caller::set_forwarded_headers;
use super::encoding::{AnswerContext, encode};
use super::error::{ApiError, codes};
use super::headers::{SESSION_ID, upstream_rate_limits};
use super::idempotency::{self, IdempotencyOutcome, KeyedRequest};
use super::running::accepted;
use super::served::Served;
use super::stream::{EventBody, event_stream};
use crate::dialects::answer::AnswerForm;
use agent::options::{OnDisconnect, Options};
use agent::runs::{Closed, FirstReader, IdempotencyKey, InlineRunSlot, RunStart, StreamHead};
use agent::traces::TRACEPARENT;
use agent::turn::{RunResumption, TurnRequest};
use protocol::ids::{RunId, SessionId};
use quota::ReservedMemory;

/// Why a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunOrigin {
    /// A request starts it.
    Request,
    /// The run waited, and resumes because its request was sent again. That request gets the answer.
    Repeated,
    /// The run waited, and resumes by itself.
    Resumed,
}

/// A run, and why it starts.
#[derive(Debug)]
pub(super) struct StartedRun {
    /// When the request came.
    pub(super) began: Instant,
    pub(super) run: RunId,
    pub(super) origin: RunOrigin,
}

/// How a turn is answered, besides its dialect.
#[derive(Debug)]
pub(super) struct ResponseContext<'a> {
    /// The headers of the request.
    headers: &'a HeaderMap,
    start: StartedRun,
    /// The key under which the request may be sent again.
    key: Option<IdempotencyKey>,
    /// The connection that the answer goes to.
    connection: InlineRunSlot,
    /// The memory for the part of the request's body that the turn holds.
    memory: Arc<ReservedMemory>,
}

impl<'a> ResponseContext<'a> {
    /// For a request that starts a run.
    ///
    /// # Errors
    /// When its idempotency key cannot be used.
    pub(super) fn new(
        (began, run): (Instant, RunId),
        head: &'a Parts,
        body: HeldBody,
    ) -> Result<Self, ApiError> {
        let key = idempotency::key(&head.headers, head.uri.path(), &body)?;
        // The server gives every request the handle of its connection.
        let connection = head.extensions.get::<InlineRunSlot>().cloned();
        Ok(Self {
            headers: &head.headers,
            start: StartedRun {
                began,
                run,
                origin: RunOrigin::Request,
            },
            key,
            connection: connection.unwrap_or_default(),
            memory: Arc::new(body.into_kept()),
        })
    }
}

/// How a run resumes by itself, if it has a record from its start.
fn resumption(
    request: &TurnRequest,
    form: &AnswerForm,
    context: &ResponseContext<'_>,
) -> Option<RunResumption> {
    let has_key = context.key.is_some();
    let is_request = context.start.origin == RunOrigin::Request;
    let recorded = has_key || !is_request || finishes(&request.options, has_key);
    if !recorded || request.options.ephemeral {
        return None;
    }
    let first_span = context.headers.get(TRACEPARENT);
    let first_span = first_span.and_then(|span| span.to_str().ok());
    Some(RunResumption {
        run: context.start.run.as_str().into(),
        reply: to_raw_value(form).ok()?,
        first_span: first_span.map(Into::into),
    })
}

/// Whether a run continues when its last reader leaves.
fn finishes(options: &Options, has_key: bool) -> bool {
    options.background
        || match options.on_disconnect {
            OnDisconnect::Auto => has_key,
            OnDisconnect::Cancel => false,
            OnDisconnect::Finish => true,
        }
}

/// Starts a run and answers with its lines, or with the run that the request's key leads to.
pub(super) async fn answer(
    state: &AppState,
    mut request: TurnRequest,
    form: AnswerForm,
    mut context: ResponseContext<'_>,
) -> Result<Response, ApiError> {
    set_forwarded_headers(state, &mut request.caller, context.headers);
    let owner = request.caller.owner.clone();
    let served = Served::by_turn(&request.model, &request.caller.record);
    if let Some(key) = &mut context.key {
        key.in_memory = request.options.ephemeral;
    }
    let id = context.start.run.clone();
    let background = request.options.background;
    let mut start = run_start(state, &request, &form, &context.start, context.key.as_ref())?;
    start.held = Box::new((context.memory.clone(), start.held));
    let session_id = start.session_id.clone();
    let prepared = state.runs.prepare(&owner, start);
    let prepared = prepared.map_err(|Closed| codes::SHUTTING_DOWN.error())?;
    request.resumption = resumption(&request, &form, &context);
    if let Some(key) = &context.key {
        let keyed = KeyedRequest {
            owner: &owner,
            key,
            form: &form,
            background,
            restarts: true,
        };
        match idempotency::attach(state, keyed, &id).await? {
            IdempotencyOutcome::Start(interrupted) => {
                let session = &mut request.options.session_id;
                *session = session.take().or(interrupted);
            }
            IdempotencyOutcome::Answer(response) => return Ok(response),
            IdempotencyOutcome::Suspended { run, session } => {
                drop(prepared);
                resume_in(&mut request, session);
                let start = StartedRun {
                    run,
                    origin: RunOrigin::Repeated,
                    ..context.start
                };
                let context = ResponseContext {
                    start,
                    key: None,
                    ..context
                };
                return Box::pin(answer(state, request, form, context)).await;
            }
        }
    }
    // After an earlier response, a fork may take the place of the session.
    let session = session_id.filter(|_| request.options.previous.is_none());
    let session = session.and_then(|id| HeaderValue::from_str(id.as_str()).ok());
    let reader = prepared.launch(request.into(), &context.connection);
    let streamed = form.is_streamed();
    let began = context.start.began;
    let mut response = match streamed {
        true => stream_of(state, reader, began).await,
        false if background && reader.record_stored().await => accepted(&form, &reader.status()),
        false => whole_of(reader, began).await,
    };
    response.extensions_mut().insert(served);
    let headers = response.headers_mut();
    if let Some(session) = session {
        headers.insert(SESSION_ID, session);
    }
    if streamed || background {
        set_completion_id(headers, &form.id_of(&id));
    }
    Ok(response)
}

/// What a run is started with.
///
/// # Errors
/// When the owner has too many turns.
pub(super) fn run_start(
    state: &AppState,
    request: &TurnRequest,
    form: &AnswerForm,
    start: &StartedRun,
    key: Option<&IdempotencyKey>,
) -> Result<RunStart, ApiError> {
    let options = &request.options;
    let resumes = start.origin != RunOrigin::Request;
    let has_key = resumes || key.is_some();
    let finish = resumes || finishes(options, has_key);
    let context = AnswerContext {
        metrics: state.metrics.clone(),
        began: start.began,
        has_key,
        is_resumed: resumes,
    };
    let permit = state.permit_for_turn(&request.caller.owner)?;
    Ok(RunStart {
        id: start.run.clone(),
        encode: encode(form, &start.run, context),
        finish,
        streamed: form.is_streamed(),
        recorded: finish || has_key,
        key: key.cloned(),
        ephemeral: options.ephemeral,
        // A turn that is not stored shows no session.
        session_id: options.session_id.clone().filter(|_| !options.ephemeral),
        unfinished: form.unfinished(&start.run, "in_progress"),
        held: Box::new(permit),
    })
}

/// Makes a request that was sent again one that resumes the turn which waits in this session.
fn resume_in(request: &mut TurnRequest, session: SessionId) {
    request.messages.clear();
    request.answered_calls.clear();
    request.options.previous = None;
    request.options.session_id = Some(session);
}

/// The head of a stream waits for the first model call, so that its error keeps its status, but not for ever.
async fn stream_of(state: &AppState, reader: FirstReader, began: Instant) -> Response {
    let wait = state.settings.first_byte_wait;
    let headers = match timeout(wait, reader.stream_head()).await {
        Ok(StreamHead::Headers(upstream)) => upstream_rate_limits(&upstream),
        // Cancelled before the first model call was answered.
        Ok(StreamHead::Over(Some(answer))) if answer.status.is_success() => HeaderMap::new(),
        Ok(StreamHead::Over(answer)) => return whole(answer.as_deref(), Some(began)).await,
        Err(_elapsed) => HeaderMap::new(),
    };
    let body = EventBody::new(reader, state.settings.keep_alive, &state.metrics);
    let mut response = Response::new(Body::new(body));
    *response.headers_mut() = headers;
    event_stream(response.headers_mut());
    response
}
