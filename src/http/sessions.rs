//! `/v1/sessions`: list, export, import, delete and fork sessions. Requests see only the sessions of their owner.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::ApiError;
use super::extract::{Path, Query, page_limit};
use super::{AppState, body};
use crate::agent::inputs::use_named_files;
use crate::ids::{Owner, RunId, SessionId, WorkspaceId};
use crate::openai::request::{RequestError, body_member, body_object};
use crate::session::{Replaced, SessionSummary, export};

/// The number of entries of a page when the request has no `limit`.
const DEFAULT_LIMIT: usize = 20;
/// The largest `limit` of a list.
const MAX_LIMIT: usize = 100;

/// The query of `GET /v1/sessions`.
#[derive(Debug, Deserialize)]
pub(super) struct SessionListQuery {
    limit: Option<String>,
    after: Option<String>,
}

/// `GET /v1/sessions`
pub(super) async fn list(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Query(query): Query<SessionListQuery>,
) -> Result<Response, ApiError> {
    let limit = page_limit(query.limit.as_deref(), DEFAULT_LIMIT, MAX_LIMIT)?;
    let after = query
        .after
        .as_deref()
        .map(|text| parse_id("after", text))
        .transpose()?;
    let page = state.sessions.list(&owner, limit, after.as_ref()).await?;
    let entry = |session: &SessionSummary| {
        json!({
            "id": session.id, "created_at": session.created_at, "updated_at": session.updated_at,
            "message_count": session.message_count, "title": session.title,
            "running": state.runs.of_session(&owner, &session.id).map(|run| run.completion_id()),
            "last_run": session.last_run.as_ref().map(RunId::completion_id),
        })
    };
    let data: Vec<Value> = page.data.iter().map(entry).collect();
    Ok(Json(json!({"object": "list", "data": data, "has_more": page.has_more})).into_response())
}

/// `GET /v1/sessions/{id}`
pub(super) async fn export(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    exported(&state, StatusCode::OK, &owner, &id).await
}

/// `PUT /v1/sessions/{id}`
pub(super) async fn import(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = parse_id("id", &id)?;
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let bytes = body::read(&state, &owner, request_body, &head.headers).await?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| RequestError::body("the body is not UTF-8; send JSON encoded as UTF-8"))?;
    let session = export::import(text, state.sessions.max_messages)?;
    let lease = state.sessions.lease(&owner, &id).await?;
    let messages = session.messages.clone();
    let replaced = state.sessions.replace(&lease, session).await?;
    use_named_files(&state.sessions.files, &owner, &id, &messages).await;
    let status = match replaced {
        Replaced::Created => StatusCode::CREATED,
        Replaced::Replaced => StatusCode::OK,
    };
    exported(&state, status, &owner, &id).await
}

/// `DELETE /v1/sessions/{id}`
pub(super) async fn delete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    let lease = state.sessions.lease(&owner, &id).await?;
    if !state.sessions.delete(&lease).await? {
        return Err(crate::session::SessionError::NotFound.into());
    }
    let workspace = WorkspaceId::of(&owner, &id);
    state.sources.snapshot().session_deleted(&workspace);
    Ok(Json(json!({"id": id, "object": "session.deleted", "deleted": true})).into_response())
}

/// `POST /v1/sessions/{id}/fork`
pub(super) async fn fork(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let bytes = body::read(&state, &owner, request_body, &head.headers).await?;
    let fork = fork_body(&bytes)?;
    let lease = state.sessions.lease(&owner, &id).await?;
    let forked = state
        .sessions
        .fork(&lease, fork.before_message, fork.id)
        .await?;
    let files = state.sessions.files.of_session(&owner, &forked.id).await?;
    // Without the messages, which may be large and which the client knows or can get. A new session has had no run.
    let body = json!({
        "id": forked.id, "object": "session", "created_at": forked.created_at, "updated_at": forked.updated_at,
        "title": forked.title, "running": null, "last_run": null, "files": files,
        "stats": {"message_count": forked.message_count},
    });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// The body of `POST /v1/sessions/{id}/fork`.
#[derive(Default)]
struct ForkBody {
    before_message: Option<usize>,
    id: Option<SessionId>,
}

fn fork_body(bytes: &[u8]) -> Result<ForkBody, RequestError> {
    if bytes.is_empty() {
        return Ok(ForkBody::default());
    }
    let body = body_object(bytes)?;
    let id: Option<String> = body_member(&body, "id", "a string")?;
    let index = "the index of a message, a whole number of 0 or more";
    Ok(ForkBody {
        before_message: body_member(&body, "before_message", index)?,
        id: id.map(|text| parse_id("id", &text)).transpose()?,
    })
}

/// The id in a path. A text that is not a valid id is answered like an id of no session, with 404.
fn path_id(text: &str) -> Result<SessionId, ApiError> {
    SessionId::parse(text).map_err(|_| crate::session::SessionError::NotFound.into())
}

fn parse_id(param: &str, text: &str) -> Result<SessionId, RequestError> {
    SessionId::parse(text).map_err(|problem| {
        RequestError::field(param, format!("the session id in '{param}' {problem}"))
    })
}

/// A response with the stored session and the records of its files.
async fn exported(
    state: &AppState,
    status: StatusCode,
    owner: &Owner,
    id: &SessionId,
) -> Result<Response, ApiError> {
    let stored = state.sessions.load(owner, id).await?;
    let stored = stored.ok_or(crate::session::SessionError::NotFound)?;
    let files = state.sessions.files.of_session(owner, id).await?;
    let running = state.runs.of_session(owner, id);
    let json = export::export(id, &stored, &files, running.as_ref());
    Ok((status, [(CONTENT_TYPE, "application/json")], json).into_response())
}
