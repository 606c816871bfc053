//! `/v1/responses`.

use serde_json::json;

use super::chat::{OF_LOOP, REPLAYED_HEADER_NOTE};
use super::errors;
use super::headers::HeaderKind::OptionalText;
use super::operation::Operation;
use crate::dialects::fields::head::PROGRESS_HEADER;
use crate::dialects::responses::decode::ResponseRequest;
use crate::dialects::responses::encode::{ResponseEvent, ResponseObject};
use crate::dialects::responses::objects::{InputTokenCount, ItemPage};
use crate::http::deleted::DeletedObject;

const TAG: &str = "Responses";

/// Operations on a response.
const OF_ID: [&str; 4] = [
    "getResponse",
    "deleteResponse",
    "cancelResponse",
    "listResponseInputItems",
];
const ID: &str = "The id of the response, such as `resp_…`.";

pub(in crate::http) fn create(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "createResponse", "Answers with items, running tools")
        .described(
            "OpenAI's Responses API over the same loop. Calls of server-side tools are items of hosted tools; a \
             `function_call` is always the client's to run. A request that concerns nothing here goes as it came to a model \
             server that speaks this API itself, and so does its answer.",
        )
        .header(
            "idempotency-key",
            json!({"type": "string", "pattern": "^[!-~]{1,255}$"}),
            REPLAYED_HEADER_NOTE,
        )
        .header(
            "x-session-id",
            json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}),
            "The same as `session_id` of the body, which counts more.",
        )
        .header(
            PROGRESS_HEADER,
            json!({"type": "string", "enum": ["auto", "declared", "named", "none"]}),
            "The same as `agent.progress` of the body, which counts more.",
        )
        .reads::<ResponseRequest>(true)
        .answers_or_passes_on::<ResponseObject>(200, "agent", "The response; with `stream`, its events.")
        .streams::<ResponseEvent>(200)
        .with_headers(200, &OF_LOOP)
        .fails(errors::RESPONSES)
        .fails(errors::DECIDED)
        .fails_as_turn()
        .leads_to(200, &OF_ID)
}

pub(in crate::http) fn show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "getResponse", "A response as it is now")
        .described(
            "With `stream=true`, its events after the number `starting_after`, and those to come, while the run lasts and, for a \
             response in the background, ten minutes longer.",
        )
        .path("id", ID)
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
        .fails(errors::EVENTS_EXPIRED)
        .fails(errors::REPLICA)
        .fails(errors::DECIDED)
        .fails_as_kept_run()
}

pub(in crate::http) fn delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "deleteResponse", "Forgets a response")
        .described(
            "A run that has not ended is cancelled. The session keeps its messages, unless this was its only response.",
        )
        .path("id", ID)
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(errors::NOT_FOUND)
        .fails(errors::REPLICA)
        .fails(errors::SESSION_BUSY)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn cancel(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "cancelResponse", "Ends the run of a response")
        .path("id", ID)
        .answers::<ResponseObject>(
            200,
            "The response, which has ended; unchanged if it had before.",
        )
        .fails(errors::REPLICA)
        .fails(errors::DECIDED)
        .fails_as_kept_run()
}

pub(in crate::http) fn input_items(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            TAG,
            "listResponseInputItems",
            "What a response was an answer to",
        )
        .path("id", ID)
        .answers::<ItemPage>(200, "The items.")
        .fails(errors::INVALID)
        .fails(errors::NOT_FOUND)
        .fails(errors::READS)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn compact(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "compactResponse", "Is not available")
        .fails(errors::NOT_FOUND)
}

pub(in crate::http) fn input_tokens(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "countResponseInputTokens", "The tokens of an input")
        .reads::<ResponseRequest>(true)
        .answers::<InputTokenCount>(200, "The number of tokens.")
        .with_headers(
            200,
            &[(
                "x-loopwright-estimated",
                OptionalText,
                "`true` if the number is an estimate.",
            )],
        )
        .fails(errors::RESPONSES)
        .fails(errors::MODEL)
        .fails(errors::SESSION_STORE)
}
