//! `/v1/sessions`.

use serde_json::json;

use super::errors;
use super::operation::Operation;
use crate::http::deleted::DeletedObject;
use crate::http::extract::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::http::sessions::{ForkRequest, ForkedSession, SessionList};
use agent::session::export::{SessionExport, SessionImport};

const TAG: &str = "Sessions";
const ID: &str = "The id of the session.";

/// Operations on a session.
const OF_ID: [&str; 4] = [
    "exportSession",
    "deleteSession",
    "forkSession",
    "cancelSession",
];

pub(in crate::http) fn list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "listSessions", "Sessions, the one written last first")
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
        .fails(errors::INVALID)
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn export(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "exportSession", "A session with its messages")
        .path("id", ID)
        .answers::<SessionExport>(200, "The session.")
        .fails(errors::NOT_FOUND)
        .fails(errors::READS)
        .fails(errors::SESSION_STORE)
        .fails(errors::FILE_STORE)
}

pub(in crate::http) fn import(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            TAG,
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
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_BUSY)
        .fails(errors::STORAGE)
        .fails(errors::SESSION_STORE)
        .fails(errors::FILE_STORE)
}

pub(in crate::http) fn delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "deleteSession", "Deletes a session")
        .path("id", ID)
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_BUSY)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn fork(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            TAG,
            "forkSession",
            "A new session with the beginning of this one",
        )
        .path("id", ID)
        .reads::<ForkRequest>(true)
        .answers::<ForkedSession<'_>>(201, "The new session, without its messages.")
        .leads_to(201, &OF_ID)
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_BUSY)
        .fails(errors::SESSION_EXISTS)
        .fails(errors::STORAGE)
        .fails(errors::SESSION_STORE)
        .fails(errors::FILE_STORE)
}
