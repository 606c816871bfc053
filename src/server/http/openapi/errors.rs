//! The cases in which requests fail.

use super::chat::OF_LOOP;
use super::operation::Operation;

/// A case in which a request fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorCase {
    pub(super) status: u16,
    pub(super) code: Option<&'static str>,
    pub(super) when: &'static str,
}

impl ErrorCase {
    /// The case as a sentence.
    pub(super) fn text(&self) -> String {
        match self.code {
            Some(code) => format!("`{code}`: {}.", self.when),
            None => format!("No code: {}.", self.when),
        }
    }
}

impl Operation<'_> {
    /// The cases in which a turn fails.
    pub(super) fn fails_as_turn(self) -> Self {
        self.fails(MODEL)
            .fails(TURN)
            .fails(FAILED)
            .fails(SESSION_BUSY)
            .fails(STORAGE)
            .fails(SESSION_STORE)
            .fails(FILE_STORE)
            .fails(FILE_STORE_FULL)
            .fails(DRAINING)
            .fails(UPSTREAM)
            .with_error_headers(&OF_LOOP)
            .passes_on_answers()
    }

    /// The cases in which there is no answer of a run, and those in which the run itself failed.
    pub(super) fn fails_as_kept_run(self) -> Self {
        self.fails(NOT_FOUND)
            .fails(INTERRUPTED)
            .fails(SESSION_STORE)
            .fails(FAILED)
            .fails(INVALID)
            .fails(SESSION_BUSY)
            .fails(STORAGE)
            .fails(FILE_STORE)
            .fails(DRAINING)
            .fails(UPSTREAM)
            .passes_on_answers()
    }
}

const fn error(status: u16, code: &'static str, when: &'static str) -> ErrorCase {
    ErrorCase {
        status,
        code: Some(code),
        when,
    }
}

/// Of every endpoint, except the probes.
pub(super) const CALLER: &[ErrorCase] = &[
    error(401, "invalid_api_key", "the API key is missing or wrong"),
    error(
        403,
        "host_not_allowed",
        "the server has no API keys, and the host of the request is not allowed",
    ),
    error(
        403,
        "origin_not_allowed",
        "a web page of another origin, which `cors_origins` does not have, sends a request that needs no preflight",
    ),
    error(
        429,
        "rate_limit_exceeded",
        "the API key has as many requests in progress as it may have",
    ),
];
/// Of every endpoint.
pub(super) const ALWAYS: &[ErrorCase] = &[
    error(
        431,
        "request_header_fields_too_large",
        "the path and the headers are too large, or there are more than 100 headers",
    ),
    error(500, "internal_error", "an internal error"),
];
/// Of endpoints that have parameters or a body.
pub(super) const INVALID: &[ErrorCase] = &[ErrorCase {
    status: 400,
    code: None,
    when: "a parameter or the body is not valid; `param` names the field",
}];
/// Of endpoints with an id in their path.
pub(super) const NOT_FOUND: &[ErrorCase] = &[error(
    404,
    "not_found",
    "it does not exist, or belongs to another API key",
)];
/// Of endpoints that hold a body in memory.
pub(super) const BODY: &[ErrorCase] = &[
    error(
        408,
        "request_timeout",
        "the body does not arrive, or too slowly",
    ),
    error(413, "request_too_large", "the body is too large"),
    error(503, "overloaded", "too many large requests are being read"),
];
/// Of endpoints that read bodies of one media type.
pub(super) const MEDIA_TYPE: &[ErrorCase] = &[
    error(
        415,
        "unsupported_media_type",
        "the content type is not the documented one",
    ),
    error(
        415,
        "unsupported_encoding",
        "the body has a content encoding other than gzip or zstd, or several",
    ),
];
/// Of requests that are forwarded to a model server.
pub(super) const FORWARDED: &[ErrorCase] = &[
    ErrorCase {
        status: 400,
        code: None,
        when: "the body is incomplete",
    },
    error(
        404,
        "not_found",
        "`forward` does not have the path, it is below one of loopwright's own endpoints, or it can be read in more than \
         one way",
    ),
];
/// Of the metrics.
pub(super) const OPERATOR: &[ErrorCase] = &[error(
    403,
    "operator_required",
    "there are API keys with `operator = true`, and this is none of them",
)];
/// Of requests that name a model.
pub(super) const MODEL: &[ErrorCase] = &[error(
    404,
    "model_not_found",
    "no model server has the model",
)];
/// Of endpoints that read or write sessions or runs.
pub(super) const SESSION_STORE: &[ErrorCase] = &[error(
    503,
    "session_store_unavailable",
    "the session store is not available",
)];
/// Of endpoints that read a whole session.
pub(super) const READS: &[ErrorCase] = &[error(
    503,
    "overloaded",
    "too many large answers are being sent",
)];
/// Of endpoints that read or write files.
pub(super) const FILE_STORE: &[ErrorCase] = &[error(
    503,
    "file_store_unavailable",
    "the file store is not available",
)];
/// Of endpoints that write files.
pub(super) const FILE_STORE_FULL: &[ErrorCase] = &[error(
    503,
    "file_store_full",
    "the uploads that are running take all the storage for files",
)];
/// Of endpoints that change a session.
pub(super) const SESSION_BUSY: &[ErrorCase] = &[error(
    409,
    "session_busy",
    "another turn of the session is still running",
)];
/// Of endpoints that make a session larger.
pub(super) const STORAGE: &[ErrorCase] = &[
    error(413, "session_too_large", "the session would be too large"),
    error(
        507,
        "storage_full",
        "all sessions together are too large, or the disk is full",
    ),
];
/// Of endpoints that start work.
pub(super) const DRAINING: &[ErrorCase] =
    &[error(503, "shutting_down", "the server is shutting down")];
/// Of endpoints that ask a model server.
pub(super) const UPSTREAM: &[ErrorCase] = &[
    error(
        502,
        "upstream_unreachable",
        "the model server cannot be reached, or its answer breaks off",
    ),
    error(
        504,
        "upstream_timeout",
        "the model server is silent for too long",
    ),
];
/// Of a turn.
pub(super) const TURN: &[ErrorCase] = &[
    error(
        502,
        "hook_failed",
        "a hook of the server has to agree to the model call, and it could not be asked",
    ),
    error(
        410,
        "answer_expired",
        "the answer to the `idempotency-key` is no longer kept",
    ),
    error(
        422,
        "idempotency_key_reused",
        "the `idempotency-key` came with another body or path before",
    ),
];
/// Of a turn that has begun, besides the failures of what it needs.
pub(super) const FAILED: &[ErrorCase] = &[error(
    422,
    "agent_limit_exceeded",
    "a limit is reached, and `agent.on_limit` is `error`",
)];
/// Of endpoints that end a run.
pub(super) const NOT_RUNNING: &[ErrorCase] =
    &[error(409, "not_running", "there is no run to cancel")];
/// Of a decision about a call.
pub(super) const DECIDED: &[ErrorCase] = &[error(
    409,
    "approval_decided",
    "the approval was decided before, has expired, or its conversation went on",
)];
/// Of the answer of a run.
pub(super) const INTERRUPTED: &[ErrorCase] = &[
    error(
        403,
        "key_removed",
        "the API key was removed while the run waited for a decision; the run has ended",
    ),
    error(
        410,
        "run_interrupted",
        "the server stopped before the run had an answer; its session holds what was done",
    ),
];
/// Of what only the replica of a run can do.
pub(super) const REPLICA: &[ErrorCase] = &[error(
    503,
    "replica_unreachable",
    "another replica runs the turn, and cannot be reached",
)];
/// Of the events of a run.
pub(super) const EVENTS_EXPIRED: &[ErrorCase] = &[error(
    410,
    "events_expired",
    "the events of the run are no longer kept",
)];
/// Of a fork.
pub(super) const SESSION_EXISTS: &[ErrorCase] = &[error(
    409,
    "session_exists",
    "a session with the new id exists already",
)];
/// Of the content of a file.
pub(super) const RANGE: &[ErrorCase] = &[error(
    416,
    "range_not_satisfiable",
    "the range is outside the file",
)];
/// Of the MCP server.
pub(super) const NOT_ACCEPTED: &[ErrorCase] = &[ErrorCase {
    status: 406,
    code: None,
    when: "the header `accept` does not have `application/json` and `text/event-stream`",
}];
/// Of requests that no page of another origin may send.
pub(super) const PAGE: &[ErrorCase] = &[error(
    403,
    "origin_not_allowed",
    "a web page of another origin, which `cors_origins` does not have, sends the request",
)];
/// Of a call outside of a turn.
pub(super) const CALL: &[ErrorCase] = &[
    error(
        403,
        "approval_required",
        "a person would have to decide about the call; nothing was done",
    ),
    error(
        409,
        "call_cancelled",
        "the call was cancelled before it started; nothing was done",
    ),
    error(
        410,
        "run_interrupted",
        "the server stopped while the call of this `idempotency-key` ran; it may have taken effect",
    ),
    error(
        410,
        "answer_expired",
        "the answer to the `idempotency-key` is no longer kept",
    ),
    error(
        422,
        "idempotency_key_reused",
        "the `idempotency-key` came with another body or path before",
    ),
];
/// Of requests of the Responses API.
pub(super) const RESPONSES: &[ErrorCase] = &[
    error(
        400,
        "unsupported_tool",
        "the server does not offer a type of `tools`; `param` names the entry",
    ),
    error(
        400,
        "previous_response_not_found",
        "`previous_response_id` names no stored response",
    ),
    error(404, "conversation_not_found", "`conversation` names none"),
    error(
        404,
        "container_not_found",
        "`container` of a tool names none; `param` names the field",
    ),
    error(
        400,
        "no_tool_call_found",
        "the input answers a call that is not known",
    ),
    error(
        404,
        "item_not_found",
        "the input refers to an item that does not exist",
    ),
];
