//! `/v1/responses/{id}`: responses by their id, while they are made and afterwards; always within the caller's own.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::super::answer::{set_completion_id, whole};
use super::super::completions::refuse_elsewhere;
use super::super::deleted::DeletedObject;
use super::super::error::{ApiError, codes};
use super::super::extract::{Order, OrderedQuery, Path, Query};
use super::super::openapi::headers::OF_LOOP;
use super::super::openapi::operation::Operation;
use super::super::reads::{self, ReadAnswer};
use super::super::routes::{ApiEndpoint, Concerned};
use super::super::stream::followed;
use super::super::{AppState, resume};
use super::items::{SessionItems, response_of};
use super::json_answer;
use crate::dialects::responses::encode::unfinished_of;
use crate::dialects::responses::encode::{ResponseEvent, ResponseObject};
use crate::dialects::responses::objects::ItemPage;
use agent::runs::{CancelMode, FollowError, RunRecord, RunRecordState, RunStatus};
use agent::session::StoredSession;
use protocol::ids::{Owner, RunId};
use protocol::openai::request::RequestError;

/// The routes of a response, whose requests concern its run.
pub(super) fn endpoints() -> [ApiEndpoint; 3] {
    const RESPONSE: &str = "/v1/responses/{id}";
    [
        ApiEndpoint::get(RESPONSE, show, describe_show).concerning(Concerned::Run),
        ApiEndpoint::delete(RESPONSE, delete, describe_delete).concerning(Concerned::Run),
        ApiEndpoint::post("/v1/responses/{id}/cancel", cancel, describe_cancel)
            .concerning(Concerned::Run),
    ]
}

/// The route of what a response was an answer to.
pub(super) fn input_endpoint() -> ApiEndpoint {
    let path = "/v1/responses/{id}/input_items";
    ApiEndpoint::get(path, input_items, describe_input_items)
}

/// The query of a reader of a response.
#[derive(Debug, Deserialize)]
pub(in super::super) struct ResponseQuery {
    stream: Option<String>,
    starting_after: Option<String>,
}

/// `GET /v1/responses/{id}`
async fn show(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    Query(query): Query<ResponseQuery>,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    let known = known_events(query.starting_after.as_deref())?;
    match query.stream.as_deref() {
        None | Some("false") => {}
        Some("true") => return events(&state, &owner, &id, known).await,
        Some(_) => return Err(RequestError::invalid("stream", "must be true or false").into()),
    }
    if let Some(response) = running(&state, &owner, &id) {
        return Ok(response);
    }
    let found = look_up(&state, &owner, &id).await?;
    match found.state {
        RunRecordState::Ended { bytes } => stored(&state, &owner, &id, bytes).await,
        RunRecordState::Interrupted => Err(codes::RUN_INTERRUPTED.into()),
        RunRecordState::RunningElsewhere | RunRecordState::Suspended => {
            unfinished(&found.into()).ok_or_else(|| codes::INTERNAL.error())
        }
        // It started in between.
        RunRecordState::Running => Err(not_found()),
    }
}

fn describe_show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getResponse", "A response as it is now")
        .described(
            "With `stream=true`, its events after the number `starting_after`, and those to come, while the run lasts and, for a \
             response in the background, ten minutes longer.",
        )
        .query(
            "stream",
            json!({"type": "boolean", "default": false}),
            "Whether the events are sent.",
        )
        .query(
            "starting_after",
            json!({"type": "integer", "minimum": 0}),
            "The `sequence_number` of the last event that the client has.",
        )
        .answers::<ResponseObject>(200, "The response, or its events.")
        .streams::<ResponseEvent>(200)
        .with_headers(200, &OF_LOOP)
        .fails(&[codes::EVENTS_EXPIRED, codes::REPLICA_UNREACHABLE, codes::APPROVAL_DECIDED])
        .fails_as_kept_run()
}

/// `DELETE /v1/responses/{id}`
async fn delete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    refuse_elsewhere(&state, &owner, &id).await?;
    let session = state.runs.session_of(&owner, &id).await?;
    // Before the answer is deleted, so that it is not refused after it.
    let needed = match &session {
        Some(session) => state.sessions.store.head(&owner, session).await?,
        None => None,
    };
    let needed = needed.map_or(0, |head| head.bytes);
    let _memory = reads::reserve(&state, &owner, needed.saturating_mul(reads::TEXT_FACTOR)).await?;
    // A turn that another run has resumed stays.
    let _ended_or_busy = resume::cancel(&state, &owner, &id, CancelMode::Abort).await;
    if !state.runs.delete(&owner, &id).await? {
        return Err(not_found());
    }
    if let Some(session) = session {
        let lease = state.sessions.lease(&owner, &session).await?;
        let stored = state.sessions.store.load(&owner, &session).await?;
        if stored.is_some_and(|stored| is_only_response(&stored, &id)) {
            state.sessions.delete(&lease).await?;
        }
    }
    let id = id.response_id();
    Ok(Json(DeletedObject::new("response", &id)).into_response())
}

fn describe_delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("deleteResponse", "Forgets a response")
        .described(
            "A run that has not ended is cancelled. The session keeps its messages, unless this was its only response.",
        )
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(&[codes::NOT_FOUND, codes::REPLICA_UNREACHABLE, codes::SESSION_BUSY, codes::SESSION_STORE_UNAVAILABLE])
}

/// `POST /v1/responses/{id}/cancel`
async fn cancel(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    if resume::cancel(&state, &owner, &id, CancelMode::Abort).await?
        && let Ok(Some(answer)) = state.runs.wait_for(&owner, &id).await
    {
        let read = reads::answer_in_memory(&state, &owner, answer).await;
        return Ok(ended(&id, read).await);
    }
    let found = look_up(&state, &owner, &id).await?;
    match found.state {
        RunRecordState::Ended { bytes } => stored(&state, &owner, &id, bytes).await,
        RunRecordState::Interrupted => Err(codes::RUN_INTERRUPTED.into()),
        RunRecordState::RunningElsewhere => Err(codes::REPLICA_UNREACHABLE.into()),
        RunRecordState::Suspended => {
            unfinished(&found.into()).ok_or_else(|| codes::INTERNAL.error())
        }
        RunRecordState::Running => Err(not_found()),
    }
}

fn describe_cancel(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("cancelResponse", "Ends the run of a response")
        .answers::<ResponseObject>(
            200,
            "The response, which has ended; unchanged if it had before.",
        )
        .fails(&[codes::REPLICA_UNREACHABLE, codes::APPROVAL_DECIDED])
        .fails_as_kept_run()
}

/// `GET /v1/responses/{id}/input_items`
async fn input_items(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    Query(query): Query<OrderedQuery>,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    if look_up(&state, &owner, &id).await?.state == RunRecordState::Running {
        // Which messages of the session are its input is stored with its answer.
        let _ended = state.runs.wait_for(&owner, &id).await;
    }
    let read = match state.runs.session_of(&owner, &id).await? {
        Some(session) => reads::session(&state, &owner, &session, reads::ITEMS_FACTOR)
            .await?
            .map(|read| (session, read.into_parts())),
        None => None,
    };
    let Some((session, (stored, mut memory))) = read else {
        let (none, has_more) = query.collector(Order::Descending)?.finish()?;
        return Ok(Json(ItemPage::of(none, has_more)).into_response());
    };
    let items = SessionItems {
        state: &state,
        owner: &owner,
        id: &session,
        session: &stored,
    };
    let page = items.page_of_input(&id, &query, &mut memory).await?;
    Ok(reads::json(&page, memory))
}

fn describe_input_items(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("listResponseInputItems", "What a response was an answer to")
        .answers::<ItemPage>(200, "The items.")
        .fails(&[
            codes::INVALID,
            codes::NOT_FOUND,
            codes::ANSWERS_OVERLOADED,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
}

/// How many events of a response the client has, given the number of the last one.
fn known_events(after: Option<&str>) -> Result<u64, RequestError> {
    match after.map(str::parse::<u64>) {
        // The log counts from 1.
        Some(Ok(number)) => Ok(number.saturating_add(1)),
        Some(Err(_)) => Err(invalid_number()),
        None => Ok(0),
    }
}

fn invalid_number() -> RequestError {
    RequestError::invalid("starting_after", "must be the sequence_number of an event")
}

/// The events of a run after the known ones, and those to come.
async fn events(
    state: &AppState,
    owner: &Owner,
    id: &RunId,
    known: u64,
) -> Result<Response, ApiError> {
    match look_up(state, owner, id).await?.state {
        RunRecordState::RunningElsewhere => return Err(codes::REPLICA_UNREACHABLE.into()),
        RunRecordState::Interrupted => return Err(codes::RUN_INTERRUPTED.into()),
        RunRecordState::Running | RunRecordState::Ended { .. } | RunRecordState::Suspended => {}
    }
    match state.runs.follow(owner, id, known) {
        Ok(follow) => {
            let mut response = followed(state, follow);
            set_completion_id(response.headers_mut(), &id.response_id());
            Ok(response)
        }
        Err(FollowError::PastEnd { .. }) => Err(invalid_number().into()),
        Err(FollowError::Expired | FollowError::NotFound) => Err(codes::EVENTS_EXPIRED.into()),
    }
}

/// The response of a run that has not ended.
fn running(state: &AppState, owner: &Owner, id: &RunId) -> Option<Response> {
    unfinished(&state.runs.status(owner, id)?)
}

fn unfinished(status: &RunStatus) -> Option<Response> {
    let body = match &status.unfinished {
        Some(unfinished) => Body::from(unfinished.clone()),
        None => Body::from(unfinished_of(&status.id, status.created)?),
    };
    Some(json_answer(body))
}

/// The stored response of a run that has ended, or its error.
async fn stored(
    state: &AppState,
    owner: &Owner,
    id: &RunId,
    bytes: u64,
) -> Result<Response, ApiError> {
    let read = reads::answer(state, owner, id, bytes).await?;
    Ok(ended(id, read.ok_or_else(not_found)?).await)
}

async fn ended(id: &RunId, read: ReadAnswer) -> Response {
    let ReadAnswer { answer, memory } = read;
    let response = match response_of(id, &answer).await {
        Some(response) => json_answer(response),
        None => whole(Some(&answer), None).await,
    };
    reads::counted(response, memory)
}

async fn look_up(state: &AppState, owner: &Owner, id: &RunId) -> Result<RunRecord, ApiError> {
    let found = state.runs.look_up_shown(owner, id).await?;
    found.ok_or_else(not_found)
}

/// Whether a session has no answer of another run.
fn is_only_response(session: &StoredSession, run: &RunId) -> bool {
    let answers = session
        .messages
        .iter()
        .filter_map(|stored| stored.view.as_ref());
    let mut others = answers.filter(|view| view.run.as_deref() != Some(run.as_str()));
    others.next().is_none()
}

/// The id of a run that should exist. Text that cannot be an id belongs to none.
fn run_id(text: &str) -> Result<RunId, ApiError> {
    RunId::parse(text).map_err(|_| not_found())
}

fn not_found() -> ApiError {
    codes::NOT_FOUND.with("no response has this id")
}
