//! `/v1/files`.

use serde_json::{Value, json};

use super::errors;
use super::headers::HeaderKind::Text;
use super::operation::Operation;
use crate::http::deleted::DeletedObject;
use crate::http::files::{DEFAULT_LIMIT, FileList, MAX_FIELDS, MAX_LIMIT, MAX_VALUE_BYTES};
use agent::session::files::{Purpose, StoredFile};

const TAG: &str = "Files";
const ID: &str = "The id of the file, such as `file-…`.";

fn purposes() -> Value {
    let words: Vec<&str> = Purpose::ALL.into_iter().map(Purpose::as_str).collect();
    json!({"type": "string", "enum": words})
}

fn session() -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"})
}

pub(in crate::http) fn list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "listFiles", "Files")
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
        .fails(errors::INVALID)
        .fails(errors::NOT_FOUND)
        .fails(errors::FILE_STORE)
}

pub(in crate::http) fn upload(operation: Operation<'_>) -> Operation<'_> {
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
        .named(TAG, "uploadFile", "Stores a file")
        .reads_as("multipart/form-data", form, true)
        .answers::<StoredFile>(200, "The file.")
        .fails(errors::INVALID)
        .fails(errors::BODY)
        .fails(errors::MEDIA_TYPE)
        .fails(errors::FILE_STORE)
        .fails(errors::FILE_STORE_FULL)
        .fails(errors::DRAINING)
}

pub(in crate::http) fn show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "getFile", "What is known of a file")
        .path("id", ID)
        .answers::<StoredFile>(200, "The file.")
        .fails(errors::NOT_FOUND)
        .fails(errors::FILE_STORE)
}

pub(in crate::http) fn delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "deleteFile", "Deletes a file")
        .path("id", ID)
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(errors::NOT_FOUND)
        .fails(errors::FILE_STORE)
}

pub(in crate::http) fn content(operation: Operation<'_>) -> Operation<'_> {
    let text = || json!({"type": "string"});
    let validators = [
        ("etag", Text, "Stands for the content, which never changes."),
        ("cache-control", Text, "`private, no-cache`."),
    ];
    let of_content = [
        ("accept-ranges", Text, "`bytes`."),
        (
            "content-disposition",
            Text,
            "`attachment`, with the name of the file.",
        ),
        (
            "content-security-policy",
            Text,
            "Keeps browsers from running the file.",
        ),
        ("x-content-type-options", Text, "`nosniff`."),
    ];
    operation
        .named(
            TAG,
            "downloadFile",
            "The content of a file, or a part of it",
        )
        .path("id", ID)
        .header(
            "range",
            text(),
            "A range of bytes, such as `bytes=0-99`. Other forms are ignored.",
        )
        .header("if-range", text(), "The `etag` for which the range counts.")
        .header(
            "if-none-match",
            text(),
            "The `etag` of the content that the client has.",
        )
        .answers_as(
            200,
            "*/*",
            json!({}),
            "The content, with the media type of the file.",
        )
        .with_headers(200, &validators)
        .with_headers(200, &of_content)
        .answers_as(206, "*/*", json!({}), "The part of the content.")
        .with_headers(206, &validators)
        .with_headers(206, &of_content)
        .with_headers(206, &[("content-range", Text, "Which part it is.")])
        .answers_nothing(304, "The client has the content.")
        .with_headers(304, &validators)
        .fails(errors::NOT_FOUND)
        .fails(errors::RANGE)
        .fails(errors::FILE_STORE)
}
