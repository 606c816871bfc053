//! `/v1/chat/completions/{id}`, and the run of a session.

use serde_json::json;

use super::chat::TAG;
use super::errors;
use super::headers::HeaderKind::Number;
use super::headers::HeaderOf;
use super::operation::Operation;
use crate::dialects::chat::encode::{ChatCompletion, StreamedData};
use crate::http::completions::messages::CompletionMessages;
use crate::http::completions::{CancelRequest, CancellingCompletion};
use crate::http::deleted::DeletedObject;
use crate::http::extract::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::http::running::RunningCompletion;

const ID: &str = "The id of the answer, such as `chatcmpl-…`.";
/// When a client should ask again for an answer that is being made.
pub(super) const RETRY: HeaderOf = (
    "retry-after",
    Number,
    "Seconds after which the answer may be there.",
);

pub(in crate::http) fn show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "getChatCompletion", "The answer of a run")
        .described("The error of a run that failed comes with its own status.")
        .path("id", ID)
        .answers::<ChatCompletion>(200, "The answer.")
        .answers::<RunningCompletion<'_>>(202, "The run has not ended.")
        .with_headers(202, &[RETRY])
        .fails_as_kept_run()
}

pub(in crate::http) fn delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "deleteChatCompletion", "Forgets the answer of a run")
        .described("A run that has not ended is cancelled. The session keeps its messages.")
        .path("id", ID)
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(errors::NOT_FOUND)
        .fails(errors::REPLICA)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn messages(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            TAG,
            "listChatCompletionMessages",
            "The stored messages up to the end of an answer",
        )
        .described(
            "Those of later turns of its session are not in it; while the run lasts, those so far are. It is empty if the \
             turn was not stored in a session, and a 404 if the session was deleted or rewritten before the end of the \
             answer since.",
        )
        .path("id", ID)
        .query(
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}),
            "Most messages of the page.",
        )
        .query(
            "order",
            json!({"type": "string", "enum": ["asc", "desc"], "default": "asc"}),
            "The order of the messages.",
        )
        .query(
            "after",
            json!({"type": "string"}),
            "The id of the last message of the page before.",
        )
        .answers::<CompletionMessages>(200, "A page of messages.")
        .fails(errors::INVALID)
        .fails(errors::NOT_FOUND)
        .fails(errors::READS)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn events(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "streamChatCompletionEvents", "The events of a run, as its stream has them")
        .described("Each `data:` line has an `id:` line with its number. After those that exist, the stream goes on live.")
        .path("id", ID)
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
        .fails(errors::INVALID)
        .fails(errors::NOT_FOUND)
        .fails(errors::EVENTS_EXPIRED)
        .fails(errors::INTERRUPTED)
        .fails(errors::REPLICA)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn cancel(operation: Operation<'_>) -> Operation<'_> {
    cancelled(operation.named(TAG, "cancelChatCompletion", "Ends a run")).path("id", ID)
}

pub(in crate::http) fn cancel_session(operation: Operation<'_>) -> Operation<'_> {
    let id = "The id of the session.";
    let operation = operation.named("Sessions", "cancelSession", "Ends the run of a session");
    cancelled(operation).path("id", id)
}

fn cancelled(operation: Operation<'_>) -> Operation<'_> {
    operation
        .reads::<CancelRequest>(false)
        .answers::<CancellingCompletion>(202, "The run is told to end.")
        .fails(errors::NOT_FOUND)
        .fails(errors::NOT_RUNNING)
        .fails(errors::SESSION_BUSY)
        .fails(errors::DRAINING)
        .fails(errors::REPLICA)
        .fails(errors::SESSION_STORE)
}
