//! `/v1/containers/{id}`.

use serde_json::json;

use super::errors;
use super::operation::Operation;
use crate::http::containers::{Container, ContainerFile, ContainerFileList};

const TAG: &str = "Containers";
const ID: &str = "The id of the container, such as `cntr_…`.";
const FILE: &str = "The id of the file.";

pub(in crate::http) fn show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "getContainer", "The interpreter of a session")
        .path("id", ID)
        .answers::<Container>(200, "The container.")
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            TAG,
            "listContainerFiles",
            "The files of a session's interpreter",
        )
        .path("id", ID)
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
        .fails(errors::INVALID)
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_STORE)
        .fails(errors::FILE_STORE)
}

pub(in crate::http) fn file(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "getContainerFile", "A file of a session's interpreter")
        .path("id", ID)
        .path("file_id", FILE)
        .answers::<ContainerFile>(200, "The file.")
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_STORE)
        .fails(errors::FILE_STORE)
}

pub(in crate::http) fn content(operation: Operation<'_>) -> Operation<'_> {
    super::files::content(operation)
        .named(TAG, "getContainerFileContent", "The content of a file")
        .path("file_id", FILE)
        .fails(errors::SESSION_STORE)
}
