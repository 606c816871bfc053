//! `POST /v1/chat/completions`.

use serde_json::json;

use super::headers::HeaderKind::{OptionalNumber, OptionalText, Text};
use super::headers::HeaderOf;
use super::operation::Operation;
use super::runs;
use crate::dialects::chat::decode::ChatRequest;
use crate::dialects::chat::encode::{ChatCompletion, StreamedData};
use crate::dialects::fields::head::PROGRESS_HEADER;
use crate::http::running::RunningCompletion;

pub(super) const TAG: &str = "Chat";

const SESSION: HeaderOf = (
    "x-session-id",
    OptionalText,
    "The session that the request names.",
);
const REPLAYED: HeaderOf = (
    "idempotency-replayed",
    OptionalText,
    "`true` if an earlier request with the same `idempotency-key` led to the answer.",
);
/// What `idempotency-key` does.
pub(super) const REPLAYED_HEADER_NOTE: &str =
    "A request that is sent again under the same key leads to the run of the first one.";
const PROCESSING: HeaderOf = (
    "openai-processing-ms",
    OptionalNumber,
    "How long the request took, unless the answer is streamed.",
);
const OVERHEAD: HeaderOf = (
    "x-loopwright-overhead-ms",
    OptionalNumber,
    "The part of that in which neither a model nor a tool was waited for.",
);
/// Of answers of the loop, errors included.
pub(super) const OF_LOOP: [HeaderOf; 5] = [
    (
        "x-completion-id",
        OptionalText,
        "The id of a streamed answer.",
    ),
    SESSION,
    PROCESSING,
    OVERHEAD,
    REPLAYED,
];
/// Of answers to calls outside of a turn, errors included.
pub(super) const OF_CALL: [HeaderOf; 3] = [PROCESSING, OVERHEAD, REPLAYED];

/// Operations on an answer.
const OF_ID: [&str; 5] = [
    "getChatCompletion",
    "deleteChatCompletion",
    "listChatCompletionMessages",
    "streamChatCompletionEvents",
    "cancelChatCompletion",
];

pub(in crate::http) fn complete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "createChatCompletion", "Answers a conversation, running tools")
        .described(
            "A request for which no server-side tool is offered, without a session id and without another extension, is \
             passed through: the model server gets its bytes and the client the bytes of the answer. Else the loop calls \
             the model and runs server-side tools until there is an answer. The headers that are described here come from \
             the loop; the model server's `x-ratelimit-…` come as `x-upstream-ratelimit-…`.",
        )
        .header(
            "idempotency-key",
            json!({"type": "string", "pattern": "^[!-~]{1,255}$"}),
            REPLAYED_HEADER_NOTE,
        )
        .header(
            "x-session-id",
            json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}),
            "The same as `session_id` of the body, which counts more. A header of `session_headers` names a chat instead, \
             whose session loopwright finds by its first message.",
        )
        .header(
            PROGRESS_HEADER,
            json!({"type": "string", "enum": ["auto", "named", "chunk", "none"], "default": "auto"}),
            "The same as `agent.progress` of the body, which counts more.",
        )
        .reads::<ChatRequest>(true)
        .answers_or_passes_on::<ChatCompletion>(200, "agent", "The answer; with `stream`, its events.")
        .streams::<StreamedData>(200)
        .with_headers(200, &OF_LOOP)
        .leads_to(200, &OF_ID)
        .answers::<RunningCompletion<'_>>(202, "The turn runs in the background (`agent.background`).")
        .with_headers(
            202,
            &[
                runs::RETRY,
                ("x-completion-id", Text, "The id under which the answer can be fetched."),
                SESSION,
                REPLAYED,
            ],
        )
        .leads_to(202, &OF_ID)
        .fails_as_turn()
}
