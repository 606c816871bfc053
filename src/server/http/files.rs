//! `/v1/files`: upload, list, show, download and delete files. Requests see only the files of their owner.

mod content;
mod upload;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) use self::content::{content, describe as describe_content};
use self::upload::{MAX_FIELDS, MAX_VALUE_BYTES, upload};
use super::AppState;
use super::deleted::DeletedObject;
use super::error::{ApiError, codes};
use super::extract::{Path, Query, page_limit};
use super::openapi::cases;
use super::openapi::operation::Operation;
use super::routes::{ApiEndpoint, Group};
use agent::metrics::RouteLabel;
use agent::session::files::{FileError, FileFilter, FileOrder, Purpose, StoredFile};
use protocol::ids::{FileId, Owner, SessionId};
use protocol::openai::request::RequestError;

/// The routes of files.
pub(super) fn group() -> Group {
    const FILE: &str = "/v1/files/{id}";
    Group {
        tag: "Files",
        label: RouteLabel::Files,
        prefix: "/v1/files",
        id: "The id of the file, such as `file-…`.",
        endpoints: vec![
            ApiEndpoint::get("/v1/files", list, describe_list),
            ApiEndpoint::post("/v1/files", upload, describe_upload),
            ApiEndpoint::get(FILE, show, describe_show),
            ApiEndpoint::delete(FILE, delete, describe_delete),
            ApiEndpoint::get("/v1/files/{id}/content", content, describe_content),
        ],
        ..Group::default()
    }
}

/// Default number of entries of a page.
pub(super) const DEFAULT_LIMIT: usize = 1000;
/// Largest `limit` of a list, the same as OpenAI's. A larger one is a 400.
/// Tried by `files::lists_have_openais_shape_and_pages`.
pub(super) const MAX_LIMIT: usize = 10_000;

/// The query of `GET /v1/files`.
#[derive(Debug, Deserialize)]
pub(super) struct FileListQuery {
    limit: Option<String>,
    after: Option<String>,
    order: Option<String>,
    purpose: Option<String>,
    session_id: Option<String>,
}

/// A page of files.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FileList<'a> {
    /// The files, newest first unless `order` says otherwise.
    data: &'a [StoredFile],
    /// The id of the first file of the page.
    first_id: Option<&'a FileId>,
    /// Whether another page follows.
    has_more: bool,
    /// The id of the last file of the page, which is `after` of the next one.
    last_id: Option<&'a FileId>,
    #[schemars(extend("const" = "list"))]
    object: &'static str,
}

/// `GET /v1/files`
async fn list(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Query(query): Query<FileListQuery>,
) -> Result<Response, ApiError> {
    let limit = page_limit(query.limit.as_deref(), DEFAULT_LIMIT, MAX_LIMIT)?;
    let order = match query.order.as_deref() {
        None | Some("desc") => FileOrder::Descending,
        Some("asc") => FileOrder::Ascending,
        Some(_) => {
            let message = "'order' must be asc or desc".to_owned();
            return Err(RequestError::field("order", message).into());
        }
    };
    let after = query.after.as_deref().map(path_id).transpose()?;
    let purpose = query.purpose.as_deref().map(purpose).transpose()?;
    let session = query.session_id.as_deref().map(session_id).transpose()?;
    let filter = FileFilter {
        limit,
        after: after.as_ref(),
        order,
        purpose,
        session: session.as_ref(),
    };
    let page = state.sessions.files.list(&owner, &filter).await?;
    let (first, last) = (page.data.first(), page.data.last());
    let answer = FileList {
        data: &page.data,
        first_id: first.map(|file| &file.id),
        has_more: page.has_more,
        last_id: last.map(|file| &file.id),
        object: "list",
    };
    Ok(Json(answer).into_response())
}

fn describe_list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("listFiles", "Files")
        .query(
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}),
            "Most files of the page.",
        )
        .query("after", json!({"type": "string"}), "The id of the last file of the page before.")
        .query(
            "order",
            json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
            "The order by the time at which the files were stored.",
        )
        .query("purpose", purposes(), "Only files of this purpose.")
        .query("session_id", session(), "Only files of this session.")
        .answers::<FileList<'_>>(200, "A page of files.")
        .fails(&[codes::INVALID, codes::NOT_FOUND, codes::FILE_STORE_UNAVAILABLE])
}

/// `GET /v1/files/{id}`
async fn show(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let file = state.sessions.files.get(&owner, &path_id(&id)?).await?;
    Ok(Json(file).into_response())
}

fn describe_show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getFile", "What is known of a file")
        .answers::<StoredFile>(200, "The file.")
        .fails(&[codes::NOT_FOUND, codes::FILE_STORE_UNAVAILABLE])
}

/// `DELETE /v1/files/{id}`
async fn delete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    if !state.sessions.files.delete(&owner, &id).await? {
        return Err(FileError::NotFound.into());
    }
    Ok(Json(DeletedObject::new("file", id.as_str())).into_response())
}

fn describe_upload(operation: Operation<'_>) -> Operation<'_> {
    let form = json!({
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {
                "type": "string", "contentMediaType": "application/octet-stream",
                "description": "The file, with its name.",
            },
            "purpose": purposes(),
            "session_id": session(),
        },
        "additionalProperties": {
            "type": "string", "maxLength": MAX_VALUE_BYTES, "description": "Not looked at.",
        },
        "maxProperties": MAX_FIELDS,
    });
    operation
        .named("uploadFile", "Stores a file")
        .reads_as("multipart/form-data", form, true)
        .answers::<StoredFile>(200, "The file.")
        .fails(&[
            codes::INVALID,
            codes::FILE_STORE_UNAVAILABLE,
            codes::FILE_STORE_FULL,
            codes::SHUTTING_DOWN,
        ])
        .fails(cases::BODY)
        .fails(cases::MEDIA_TYPE)
}

fn describe_delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("deleteFile", "Deletes a file")
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(&[codes::NOT_FOUND, codes::FILE_STORE_UNAVAILABLE])
}

/// The id in a path. A text that is not a valid id is answered like an id of no file, with 404.
fn path_id(text: &str) -> Result<FileId, ApiError> {
    FileId::parse(text).ok_or_else(|| FileError::NotFound.into())
}

fn purpose(text: &str) -> Result<Purpose, RequestError> {
    Purpose::parse(text).ok_or_else(|| {
        let known: Vec<&str> = Purpose::ALL.into_iter().map(Purpose::as_str).collect();
        let message = format!("'purpose' must be one of {}", known.join(", "));
        RequestError::field("purpose", message)
    })
}

fn session_id(text: &str) -> Result<SessionId, RequestError> {
    SessionId::parse(text).map_err(|problem| {
        let message = format!("the session id in 'session_id' {problem}");
        RequestError::field("session_id", message)
    })
}

/// The words for the purpose of a file.
fn purposes() -> Value {
    let words: Vec<&str> = Purpose::ALL.into_iter().map(Purpose::as_str).collect();
    json!({"type": "string", "enum": words})
}

/// The id of a session.
fn session() -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"})
}
