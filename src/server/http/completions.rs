//! `/v1/chat/completions/{id}`: answers by their id, while they are made and afterwards; always within the caller's own.

pub(super) mod messages;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::approvals;
use super::deleted::DeletedObject;
use super::error::{ApiError, codes};
use super::extract::{Path, Query};
use super::openapi::cases;
use super::openapi::headers::RETRY;
use super::openapi::operation::Operation;
use super::reads::{self, ReadAnswer};
use super::routes::{ApiEndpoint, Concerned, Group};
use super::running::{RUN_OBJECT, RunningCompletion, still_running};
use super::stream::{LAST_EVENT_ID, followed};
use super::{AppState, answer, body, chat, resume};
use crate::dialects::answer::Dialect;
use crate::dialects::chat::encode::{ChatCompletion, StreamedData};
use crate::dialects::responses::encode::as_completion;
use agent::runs::{CancelMode, FollowError, RunAnswer, RunRecord, RunRecordState, RunStatus};
use agent::session::StoreError;
use net::polling::taking_apart;
use protocol::ids::{Owner, RunId, SessionId};
use protocol::openai::request::{
    RequestError, body_member, body_object, listed, one_of, refuse_unknown,
};

/// The routes of chat completions.
pub(super) fn group() -> Group {
    const ANSWER: &str = "/v1/chat/completions/{id}";
    Group {
        tag: "Chat",
        prefix: "/v1/chat/completions",
        is_probed: true,
        dialect: Some(Dialect::Chat),
        id: "The id of the answer, such as `chatcmpl-…`.",
        endpoints: vec![
            chat::endpoint(),
            ApiEndpoint::get(ANSWER, show, describe_show).concerning(Concerned::Run),
            ApiEndpoint::delete(ANSWER, delete, describe_delete).concerning(Concerned::Run),
            ApiEndpoint::get("/v1/chat/completions/{id}/events", events, describe_events)
                .concerning(Concerned::Run),
            ApiEndpoint::post("/v1/chat/completions/{id}/cancel", cancel, describe_cancel)
                .concerning(Concerned::Run),
            messages::endpoint(),
        ],
        ..Group::default()
    }
}

/// The words of `mode`.
const CANCEL_MODES: [(&str, CancelMode); 2] = [
    ("abort", CancelMode::Abort),
    ("after_round", CancelMode::AfterRound),
];

/// The query of a reader of events.
#[derive(Debug, Deserialize)]
pub(super) struct EventsQuery {
    after: Option<String>,
}

/// `GET /v1/chat/completions/{id}`
async fn show(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    if let Some(status) = state.runs.status(&owner, &id) {
        return waiting_or_running(&state, &owner, &status).await;
    }
    let found = look_up(&state, &owner, &id).await?;
    match found.state {
        RunRecordState::Ended { bytes } => {
            let read = reads::answer(&state, &owner, &id, bytes).await?;
            let ReadAnswer { answer, memory } = read.ok_or_else(not_found)?;
            let answer = completion_of(&id, answer).await;
            let response = answer::whole(Some(&answer), None).await;
            Ok(reads::counted(response, memory))
        }
        RunRecordState::Interrupted => Err(codes::RUN_INTERRUPTED.into()),
        RunRecordState::RunningElsewhere | RunRecordState::Suspended => {
            waiting_or_running(&state, &owner, &found.into()).await
        }
        // It started in between.
        RunRecordState::Running => Err(not_found()),
    }
}

fn describe_show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getChatCompletion", "The answer of a run")
        .described("The error of a run that failed comes with its own status.")
        .answers::<ChatCompletion>(200, "The answer.")
        .answers::<RunningCompletion<'_>>(202, "The run has not ended.")
        .with_headers(202, &[RETRY])
        .fails_as_kept_run()
}

/// The answer for a run that has not ended, with the calls that wait.
async fn waiting_or_running(
    state: &AppState,
    owner: &Owner,
    status: &RunStatus,
) -> Result<Response, ApiError> {
    let (approvals, memory) = approvals::of_run(state, owner, status).await?;
    let blocked = state.runs.blocked(&status.id);
    Ok(reads::counted(
        still_running(status, approvals, blocked),
        memory,
    ))
}

/// The answer of a run as a completion, also where its request was one of another dialect.
async fn completion_of(id: &RunId, answer: Arc<RunAnswer>) -> Arc<RunAnswer> {
    // Only answers of that dialect are stored as long as their session.
    if !answer.kept {
        return answer;
    }
    let body = answer.body.clone().whole().await.unwrap_or_default();
    let text = std::str::from_utf8(&body).ok();
    let completion = || as_completion(id, text?);
    match taking_apart(body.len(), completion) {
        Some(completion) => Arc::new(RunAnswer {
            body: completion.into(),
            ..(*answer).clone()
        }),
        None => answer,
    }
}

/// A run that is told to end.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CancellingCompletion {
    /// The id of the run and of its answer.
    id: String,
    #[schemars(extend("const" = RUN_OBJECT))]
    object: &'static str,
    #[schemars(extend("const" = "cancelling"))]
    status: &'static str,
}

/// The body of a cancellation; it may be absent.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct CancelRequest {
    /// `abort`, the default, ends the model's stream and running calls; `after_round` lets the batch or the call of the
    /// model in progress end.
    #[schemars(extend("enum" = ["abort", "after_round", null]))]
    mode: Option<String>,
}

/// `GET /v1/chat/completions/{id}/events`
async fn events(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    let after = after(query.after.as_deref(), &headers)?;
    match look_up(&state, &owner, &id).await?.state {
        RunRecordState::RunningElsewhere => return Err(codes::REPLICA_UNREACHABLE.into()),
        RunRecordState::Interrupted => return Err(codes::RUN_INTERRUPTED.into()),
        RunRecordState::Running | RunRecordState::Ended { .. } | RunRecordState::Suspended => {}
    }
    match state.runs.follow(&owner, &id, after) {
        Ok(follow) => Ok(followed(&state, follow.numbered())),
        Err(FollowError::PastEnd { lines }) => {
            let problem =
                format!("is {after}, but the run has {lines} lines so far; send 0 to {lines}");
            Err(RequestError::invalid("after", &problem).into())
        }
        Err(FollowError::Expired | FollowError::NotFound) => Err(codes::EVENTS_EXPIRED.into()),
    }
}

fn describe_events(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("streamChatCompletionEvents", "The events of a run, as its stream has them")
        .described("Each `data:` line has an `id:` line with its number. After those that exist, the stream goes on live.")
        .query(
            "after",
            json!({"type": "integer", "minimum": 0, "default": 0}),
            "The number of the last line that the client has.",
        )
        .header(
            "last-event-id",
            json!({"type": "string"}),
            "The same, if there is no `after`: the `id` of an event.",
        )
        .answers_nothing(200, "The events.")
        .streams::<StreamedData>(200)
        .fails(&[
            codes::INVALID,
            codes::NOT_FOUND,
            codes::EVENTS_EXPIRED,
            codes::REPLICA_UNREACHABLE,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
        .fails(cases::INTERRUPTED)
}

/// `POST /v1/chat/completions/{id}/cancel`
async fn cancel(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    let mode = cancel_mode(&state, &owner, request).await?;
    match resume::cancel(&state, &owner, &id, mode).await? {
        true => Ok(cancelling(&id)),
        false => match look_up(&state, &owner, &id).await?.state {
            RunRecordState::RunningElsewhere => Err(codes::REPLICA_UNREACHABLE.into()),
            RunRecordState::Running
            | RunRecordState::Ended { .. }
            | RunRecordState::Suspended
            | RunRecordState::Interrupted => Err(codes::NOT_RUNNING.into()),
        },
    }
}

fn describe_cancel(operation: Operation<'_>) -> Operation<'_> {
    describe_end(operation.named("cancelChatCompletion", "Ends a run"))
}

/// `POST /v1/sessions/{id}/cancel`
async fn cancel_session(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let missing = || ApiError::from(StoreError::NotFound);
    let id = SessionId::parse(&id).map_err(|_| missing())?;
    let mode = cancel_mode(&state, &owner, request).await?;
    let store = &state.sessions.store;
    let run = match state.runs.of_session(&owner, &id) {
        Some(run) => Some(run),
        None => store.suspended_run_of(&owner, &id).await?,
    };
    if let Some(run) = run
        && resume::cancel(&state, &owner, &run, mode).await?
    {
        return Ok(cancelling(&run));
    }
    if store.replica_of_session(&owner, &id).await?.is_some() {
        return Err(codes::REPLICA_UNREACHABLE.into());
    }
    match store.head(&owner, &id).await? {
        Some(_) => Err(codes::NOT_RUNNING.into()),
        None => Err(missing()),
    }
}

/// The route of the run of a session.
pub(super) fn cancel_session_endpoint() -> ApiEndpoint {
    let path = "/v1/sessions/{id}/cancel";
    ApiEndpoint::post(path, cancel_session, |operation| {
        describe_end(operation.named("cancelSession", "Ends the run of a session"))
    })
    .concerning(Concerned::Session)
}

fn describe_end(operation: Operation<'_>) -> Operation<'_> {
    operation
        .reads::<CancelRequest>(false)
        .answers::<CancellingCompletion>(202, "The run is told to end.")
        .fails(&[
            codes::NOT_FOUND,
            codes::NOT_RUNNING,
            codes::SESSION_BUSY,
            codes::SHUTTING_DOWN,
            codes::REPLICA_UNREACHABLE,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
}

/// `DELETE /v1/chat/completions/{id}`
async fn delete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    refuse_elsewhere(&state, &owner, &id).await?;
    // A turn that another run has resumed stays.
    let _ended_or_busy = resume::cancel(&state, &owner, &id, CancelMode::Abort).await;
    if !state.runs.delete(&owner, &id).await? {
        return Err(not_found());
    }
    let id = id.completion_id();
    let body = DeletedObject::new("chat.completion.deleted", &id);
    Ok(Json(body).into_response())
}

fn describe_delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("deleteChatCompletion", "Forgets the answer of a run")
        .described("A run that has not ended is cancelled. The session keeps its messages.")
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(&[
            codes::NOT_FOUND,
            codes::REPLICA_UNREACHABLE,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
}

/// Refuses to delete a run that another replica runs, because it would continue.
pub(super) async fn refuse_elsewhere(
    state: &AppState,
    owner: &Owner,
    id: &RunId,
) -> Result<(), ApiError> {
    match state.runs.replica_of(owner, id).await? {
        Some(other) if !other.ended => Err(codes::REPLICA_UNREACHABLE.into()),
        Some(_) | None => Ok(()),
    }
}

/// What is known of a run.
async fn look_up(state: &AppState, owner: &Owner, id: &RunId) -> Result<RunRecord, ApiError> {
    let found = state.runs.look_up_shown(owner, id).await?;
    found.ok_or_else(not_found)
}

fn cancelling(id: &RunId) -> Response {
    let body = CancellingCompletion {
        id: id.completion_id(),
        object: RUN_OBJECT,
        status: "cancelling",
    };
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

async fn cancel_mode(
    state: &AppState,
    owner: &Owner,
    request: Request,
) -> Result<CancelMode, ApiError> {
    let (head, request_body) = request.into_parts();
    let bytes = body::read(state, owner, request_body, &head.headers).await?;
    if bytes.is_empty() {
        return Ok(CancelMode::default());
    }
    body::require_json(&head.headers)?;
    let object = body_object(&bytes)?;
    refuse_unknown(&object, &["mode"])?;
    let mode: Option<String> = body_member(&object, "mode", &listed(&CANCEL_MODES))?;
    let mode = mode.map(|word| one_of("mode", &word, &CANCEL_MODES));
    Ok(mode.transpose()?.unwrap_or_default())
}

/// The number of the last line that the reader has. The query counts more than the header.
fn after(query: Option<&str>, headers: &HeaderMap) -> Result<u64, RequestError> {
    let header = || headers.get(LAST_EVENT_ID)?.to_str().ok();
    let (param, text) = match (query, header()) {
        (Some(text), _) => ("after", text),
        (None, Some(text)) => (LAST_EVENT_ID, text),
        (None, None) => return Ok(0),
    };
    let problem = "must be the number of a line, an integer of 0 or more";
    text.parse()
        .map_err(|_| RequestError::invalid(param, problem))
}

/// The id of a run that should exist. Text that cannot be an id belongs to none.
fn run_id(text: &str) -> Result<RunId, ApiError> {
    RunId::parse(text).map_err(|_| not_found())
}

fn not_found() -> ApiError {
    codes::NOT_FOUND.with("no answer has this id")
}
