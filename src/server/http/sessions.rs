//! `/v1/sessions`: list, export, import, delete and fork sessions. Requests see only the sessions of their owner.

mod fork;

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::completions;
use super::deleted::DeletedObject;
use super::error::{ApiError, codes};
use super::extract::{DEFAULT_LIMIT, MAX_LIMIT, Path, Query, page_limit};
use super::openapi::cases;
use super::openapi::operation::Operation;
use super::reads::{self, ReadSession};
use super::routes::{ApiEndpoint, Group};
use super::{AppState, body};
use agent::inputs::use_named_files;
use agent::metrics::RouteLabel;
use agent::session::export::SessionExport;
use agent::session::export::SessionImport;
use agent::session::{Replaced, SessionSummary, StoreError, StoredSession, export};
use protocol::ids::{Owner, RunId, SessionId, WorkspaceId};
use protocol::openai::request::RequestError;

/// Operations on a session.
const OF_ID: [&str; 4] = [
    "exportSession",
    "deleteSession",
    "forkSession",
    "cancelSession",
];

/// The routes of sessions.
pub(super) fn group() -> Group {
    const SESSION: &str = "/v1/sessions/{id}";
    Group {
        tag: "Sessions",
        label: RouteLabel::Sessions,
        prefix: "/v1/sessions",
        id: "The id of the session.",
        endpoints: vec![
            ApiEndpoint::get("/v1/sessions", list, describe_list),
            ApiEndpoint::get(SESSION, export, describe_export),
            ApiEndpoint::put(SESSION, import, describe_import),
            ApiEndpoint::delete(SESSION, delete, describe_delete),
            ApiEndpoint::post("/v1/sessions/{id}/fork", fork::fork, fork::describe),
            completions::cancel_session_endpoint(),
        ],
        ..Group::default()
    }
}

/// The query of `GET /v1/sessions`.
#[derive(Debug, Deserialize)]
pub(super) struct SessionListQuery {
    limit: Option<String>,
    after: Option<String>,
}

/// A page of sessions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SessionList {
    /// The sessions, the one written last first.
    data: Vec<SessionEntry>,
    /// Whether another page follows.
    has_more: bool,
    #[schemars(extend("const" = "list"))]
    object: &'static str,
}

/// A session, without its messages.
#[derive(Debug, Serialize, JsonSchema)]
struct SessionEntry {
    /// Seconds since 1970.
    created_at: i64,
    id: SessionId,
    /// The id of the run that wrote the session last.
    last_run: Option<String>,
    message_count: u64,
    /// The id of the run that is going on.
    running: Option<String>,
    /// The beginning of the first message of the user.
    title: Option<String>,
    /// Seconds since 1970.
    updated_at: i64,
}

/// `GET /v1/sessions`
async fn list(
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
    let store = &state.sessions.store;
    let page = store.list(&owner, limit, after.as_ref()).await?;
    let entry = |session: SessionSummary| SessionEntry {
        created_at: session.created_at,
        last_run: session.last_run.as_ref().map(RunId::completion_id),
        message_count: session.message_count,
        running: state
            .runs
            .of_session(&owner, &session.id)
            .map(|run| run.completion_id()),
        title: session.title,
        updated_at: session.updated_at,
        id: session.id,
    };
    let page = SessionList {
        data: page.data.into_iter().map(entry).collect(),
        has_more: page.has_more,
        object: "list",
    };
    Ok(Json(page).into_response())
}

fn describe_list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("listSessions", "Sessions, the one written last first")
        .query(
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}),
            "Most sessions of the page.",
        )
        .query(
            "after",
            json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}),
            "The id of the last session of the page before.",
        )
        .answers::<SessionList>(200, "A page of sessions.")
        .fails(&[codes::INVALID, codes::NOT_FOUND, codes::SESSION_STORE_UNAVAILABLE])
}

/// `GET /v1/sessions/{id}`
async fn export(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    let read = reads::session(&state, &owner, &id, reads::TEXT_FACTOR).await?;
    exported(&state, StatusCode::OK, &owner, &id, read).await
}

fn describe_export(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("exportSession", "A session with its messages")
        .answers::<SessionExport>(200, "The session.")
        .fails(&[
            codes::NOT_FOUND,
            codes::ANSWERS_OVERLOADED,
            codes::SESSION_STORE_UNAVAILABLE,
            codes::FILE_STORE_UNAVAILABLE,
        ])
}

/// `PUT /v1/sessions/{id}`
async fn import(
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
    // Before the write, so that it is not refused after it.
    let needed = reads::TEXT_FACTOR.saturating_mul(bytes.len() as u64);
    let memory = reads::reserve(&state, &owner, needed).await?;
    let lease = state.sessions.lease(&owner, &id).await?;
    let messages = session.messages.clone();
    let replaced = state.sessions.replace(&lease, session).await?;
    use_named_files(&state.sessions.files, &owner, &id, &messages).await;
    let status = match replaced {
        Replaced::Created => StatusCode::CREATED,
        Replaced::Replaced => StatusCode::OK,
    };
    let read = reads::session_within(&state, &owner, &id, memory).await?;
    exported(&state, status, &owner, &id, read).await
}

fn describe_import(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            "importSession",
            "Stores a session, in place of one with the same id",
        )
        .path(
            "id",
            "The id of the session: 1 to 128 characters of `A-Za-z0-9._:-`.",
        )
        .reads::<SessionImport>(true)
        .answers::<SessionExport>(200, "The session, which replaces the former one.")
        .leads_to(200, &OF_ID)
        .answers::<SessionExport>(201, "The session, which is new.")
        .leads_to(201, &OF_ID)
        .fails(&[
            codes::NOT_FOUND,
            codes::SESSION_BUSY,
            codes::SESSION_STORE_UNAVAILABLE,
            codes::FILE_STORE_UNAVAILABLE,
        ])
        .fails(cases::STORAGE)
}

/// `DELETE /v1/sessions/{id}`
async fn delete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    let lease = state.sessions.lease(&owner, &id).await?;
    if !state.sessions.delete(&lease).await? {
        return Err(StoreError::NotFound.into());
    }
    let workspace = WorkspaceId::of(&owner, &id);
    state.sources.snapshot().session_deleted(&workspace);
    Ok(Json(DeletedObject::new("session.deleted", id.as_str())).into_response())
}

fn describe_delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("deleteSession", "Deletes a session")
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(&[
            codes::NOT_FOUND,
            codes::SESSION_BUSY,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
}

/// The id in a path. A text that is not a valid id is answered like an id of no session, with 404.
fn path_id(text: &str) -> Result<SessionId, ApiError> {
    SessionId::parse(text).map_err(|_| StoreError::NotFound.into())
}

fn parse_id(param: &str, text: &str) -> Result<SessionId, RequestError> {
    SessionId::parse(text).map_err(|problem| {
        RequestError::field(param, format!("the session id in '{param}' {problem}"))
    })
}

/// A response with a session that was read, and the records of its files.
async fn exported(
    state: &AppState,
    status: StatusCode,
    owner: &Owner,
    id: &SessionId,
    read: Option<ReadSession>,
) -> Result<Response, ApiError> {
    let running = state.runs.of_session(owner, id);
    let files = state.sessions.files.of_session(owner, id).await?;
    let json = match read {
        Some(read) => {
            let id = id.clone();
            // A large one takes long.
            let exported = tokio::task::spawn_blocking(move || {
                let (stored, memory) = read.into_parts();
                let json = export::export(&id, &stored, &files, running.as_ref());
                (json, memory)
            });
            let (json, memory) = exported.await.map_err(|_| codes::INTERNAL.error())?;
            let response = (status, [(CONTENT_TYPE, "application/json")], json);
            return Ok(reads::counted(response.into_response(), memory));
        }
        // Its first turn runs, and nothing of it is stored yet.
        None if running.is_some() => {
            let stored = StoredSession {
                created_at: agent::unix_seconds(),
                ..StoredSession::default()
            };
            export::export(id, &stored, &files, running.as_ref())
        }
        None => return Err(StoreError::NotFound.into()),
    };
    Ok((status, [(CONTENT_TYPE, "application/json")], json).into_response())
}
