//! `/v1/sessions`: list, export, import, delete and fork sessions. Requests see only the sessions of their owner.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::deleted::DeletedObject;
use super::error::ApiError;
use super::extract::{DEFAULT_LIMIT, MAX_LIMIT, Path, Query, page_limit};
use super::reads::{self, ReadSession};
use super::{AppState, body};
use agent::inputs::use_named_files;
use agent::session::files::StoredFile;
use agent::session::{Replaced, SessionSummary, StoreError, StoredSession, export};
use protocol::ids::{Owner, RunId, SessionId, WorkspaceId};
use protocol::openai::request::{RequestError, body_member, body_object, refuse_unknown};

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

/// A new session that was forked, without its messages.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ForkedSession<'a> {
    /// Seconds since 1970.
    created_at: i64,
    /// The files that the session shares with the one that it was forked from.
    files: &'a [StoredFile],
    id: &'a SessionId,
    /// `null`: a new session has had no run.
    last_run: (),
    #[schemars(extend("const" = "session"))]
    object: &'static str,
    /// `null`: a new session has had no run.
    running: (),
    stats: ForkedStats,
    /// The beginning of the first message of the user.
    title: Option<&'a str>,
    /// Seconds since 1970.
    updated_at: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ForkedStats {
    message_count: u64,
}

/// The body of a fork.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ForkRequest {
    /// The fork has the messages before the one with this index in the export; by default all.
    before_message: Option<usize>,
    /// The id of the new session; by default a fresh one.
    id: Option<SessionId>,
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

/// `GET /v1/sessions/{id}`
pub(super) async fn export(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    let read = reads::session(&state, &owner, &id, reads::TEXT_FACTOR).await?;
    exported(&state, StatusCode::OK, &owner, &id, read).await
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

/// `DELETE /v1/sessions/{id}`
pub(super) async fn delete(
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
    let new_id = fork.id.unwrap_or_else(SessionId::fresh);
    let store = &state.sessions.store;
    let forked = store.fork(lease.fence(), fork.before_message, &new_id);
    let forked = forked.await.map_err(|error| match (error, fork.before_message) {
        (StoreError::PastEnd { messages }, Some(before)) => {
            let problem = format!(
                "before_message is {before}, but the session holds {messages} messages; send 0 to {messages}, or omit it \
                 to copy all"
            );
            RequestError::field("before_message", problem).into()
        }
        (error, _) => ApiError::from(error),
    })?;
    let files = state.sessions.files.of_session(&owner, &forked.id).await?;
    // Without the messages, which may be large and which the client knows or can get. A new session has had no run.
    let body = ForkedSession {
        created_at: forked.created_at,
        files: &files,
        id: &forked.id,
        last_run: (),
        object: "session",
        running: (),
        stats: ForkedStats {
            message_count: forked.message_count,
        },
        title: forked.title.as_deref(),
        updated_at: forked.updated_at,
    };
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
    refuse_unknown(&body, &["before_message", "id"])?;
    let id: Option<String> = body_member(&body, "id", "a string")?;
    let index = "the index of a message, a whole number of 0 or more";
    Ok(ForkBody {
        before_message: body_member(&body, "before_message", index)?,
        id: id.map(|text| parse_id("id", &text)).transpose()?,
    })
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
            let (json, memory) = exported.await.map_err(|_| ApiError::internal())?;
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
