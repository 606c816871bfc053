//! `/v1/containers/{id}`: the interpreter of a session and its files, in OpenAI's shapes.
//!
//! A container has the id of a run in the session of the interpreter.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::error::{ApiError, codes};
use super::extract::{DEFAULT_LIMIT, MAX_LIMIT, Path, Query, page_limit};
use super::openapi::operation::Operation;
use super::routes::{ApiEndpoint, Group};
use super::{AppState, files};
use crate::dialects::answer::Dialect;
use agent::metrics::RouteLabel;
use agent::session::files::{FileError, FileFilter, FileOrder, StoredFile};
use protocol::ids::{FileId, Owner, RunId, SessionId};
use protocol::openai::request::RequestError;

const FILE: &str = "The id of the file.";

/// The routes of containers.
pub(super) fn group() -> Group {
    const FILES: &str = "/v1/containers/{id}/files";
    const OF_FILE: &str = "/v1/containers/{id}/files/{file_id}";
    const CONTENT: &str = "/v1/containers/{id}/files/{file_id}/content";
    Group {
        tag: "Containers",
        label: RouteLabel::Responses,
        prefix: "/v1/containers",
        is_probed: true,
        dialect: Some(Dialect::Responses),
        id: "The id of the container, such as `cntr_…`.",
        endpoints: vec![
            ApiEndpoint::get("/v1/containers/{id}", show, describe_show),
            ApiEndpoint::get(FILES, list, describe_list),
            ApiEndpoint::get(OF_FILE, file, describe_file),
            ApiEndpoint::get(CONTENT, content, describe_content),
        ],
        ..Group::default()
    }
}

/// The query of a list of a container's files.
#[derive(Debug, Deserialize)]
pub(super) struct ContainerFilesQuery {
    limit: Option<String>,
    after: Option<String>,
    order: Option<String>,
}

/// The interpreter of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Container {
    id: String,
    #[schemars(extend("const" = "container"))]
    object: &'static str,
    /// The session.
    name: SessionId,
    /// When the session was made, in seconds since 1970.
    created_at: i64,
    /// When it was last written.
    last_active_at: i64,
    /// An interpreter is started when code runs.
    #[schemars(extend("const" = "running"))]
    status: &'static str,
}

/// A file of a container.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ContainerFile {
    id: FileId,
    #[schemars(extend("const" = "container.file"))]
    object: &'static str,
    container_id: String,
    /// When it was made, in seconds since 1970.
    created_at: i64,
    /// The size in bytes.
    bytes: u64,
    /// Where the code has it.
    path: String,
    /// `user` for a file that was uploaded, else `assistant`.
    source: &'static str,
}

/// A page of a container's files.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ContainerFileList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<ContainerFile>,
    first_id: Option<FileId>,
    last_id: Option<FileId>,
    has_more: bool,
}

/// `GET /v1/containers/{id}`
async fn show(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let session = session_of(&state, &owner, &id).await?;
    let head = state.sessions.store.head(&owner, &session).await?;
    let head = head.ok_or_else(not_found)?;
    let container = Container {
        id,
        object: "container",
        name: session,
        created_at: head.created_at,
        last_active_at: head.updated_at,
        status: "running",
    };
    Ok(Json(container).into_response())
}

fn describe_show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getContainer", "The interpreter of a session")
        .answers::<Container>(200, "The container.")
        .fails(&[codes::NOT_FOUND, codes::SESSION_STORE_UNAVAILABLE])
}

/// `GET /v1/containers/{id}/files`
async fn list(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    Query(query): Query<ContainerFilesQuery>,
) -> Result<Response, ApiError> {
    let limit = page_limit(query.limit.as_deref(), DEFAULT_LIMIT, MAX_LIMIT)?;
    let order = match query.order.as_deref() {
        None | Some("desc") => FileOrder::Descending,
        Some("asc") => FileOrder::Ascending,
        Some(_) => return Err(RequestError::invalid("order", "must be asc or desc").into()),
    };
    let session = session_of(&state, &owner, &id).await?;
    let after = query.after.as_deref().map(file_id).transpose()?;
    let filter = FileFilter {
        limit,
        after: after.as_ref(),
        order,
        purpose: None,
        session: Some(&session),
    };
    let page = state.sessions.files.list(&owner, &filter).await?;
    let list = ContainerFileList {
        object: "list",
        first_id: page.data.first().map(|file| file.id.clone()),
        last_id: page.data.last().map(|file| file.id.clone()),
        has_more: page.has_more,
        data: page
            .data
            .into_iter()
            .map(|file| container_file(&id, file))
            .collect(),
    };
    Ok(Json(list).into_response())
}

fn describe_list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("listContainerFiles", "The files of a session's interpreter")
        .query(
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
            "Most files.",
        )
        .query(
            "order",
            json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
            "The order of the files.",
        )
        .query(
            "after",
            json!({"type": "string"}),
            "The id of the last file that the client has.",
        )
        .answers::<ContainerFileList>(200, "The files.")
        .fails(&[
            codes::INVALID,
            codes::NOT_FOUND,
            codes::SESSION_STORE_UNAVAILABLE,
            codes::FILE_STORE_UNAVAILABLE,
        ])
}

/// `GET /v1/containers/{id}/files/{file_id}`
async fn file(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path((id, file)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let stored = found(&state, &owner, &id, &file).await?;
    Ok(Json(container_file(&id, stored)).into_response())
}

fn describe_file(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getContainerFile", "A file of a session's interpreter")
        .path("file_id", FILE)
        .answers::<ContainerFile>(200, "The file.")
        .fails(&[
            codes::NOT_FOUND,
            codes::SESSION_STORE_UNAVAILABLE,
            codes::FILE_STORE_UNAVAILABLE,
        ])
}

/// `GET /v1/containers/{id}/files/{file_id}/content`
async fn content(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path((id, file)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    found(&state, &owner, &id, &file).await?;
    files::content(State(state), Extension(owner), Path(file), method, headers).await
}

fn describe_content(operation: Operation<'_>) -> Operation<'_> {
    files::describe_content(operation)
        .named("getContainerFileContent", "The content of a file")
        .path("file_id", FILE)
        .fails(&[codes::SESSION_STORE_UNAVAILABLE])
}

/// A file of a container's session.
async fn found(
    state: &AppState,
    owner: &Owner,
    container: &str,
    file: &str,
) -> Result<StoredFile, ApiError> {
    let session = session_of(state, owner, container).await?;
    let id = file_id(file)?;
    let files = state.sessions.files.of_session(owner, &session).await?;
    let found = files.into_iter().find(|file| file.id == id);
    found.ok_or_else(|| FileError::NotFound.into())
}

fn container_file(container: &str, file: StoredFile) -> ContainerFile {
    ContainerFile {
        id: file.id,
        object: "container.file",
        container_id: container.to_owned(),
        created_at: file.created_at,
        bytes: file.bytes,
        path: format!("/mnt/data/{}", file.name),
        source: match file.tool {
            Some(_) => "assistant",
            None => "user",
        },
    }
}

/// The session of a container.
async fn session_of(state: &AppState, owner: &Owner, id: &str) -> Result<SessionId, ApiError> {
    let run = RunId::of_container(id).ok_or_else(not_found)?;
    let session = state.runs.session_of(owner, &run).await?;
    session.ok_or_else(not_found)
}

fn file_id(text: &str) -> Result<FileId, ApiError> {
    FileId::parse(text).ok_or_else(|| FileError::NotFound.into())
}

fn not_found() -> ApiError {
    codes::NOT_FOUND.with("no container has this id")
}
