//! The errors that the server answers with, each with its status, its code, its condition and its text for the client.

use http::StatusCode;

/// An error of this server. Its class follows from its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct ErrorCode {
    pub(in crate::http) status: StatusCode,
    /// `None` where the field that `param` names says all.
    pub(in crate::http) code: Option<&'static str>,
    /// When it comes, for the description of the API.
    pub(in crate::http) when: &'static str,
    /// The text for the client, if it does not depend on the request.
    pub(super) message: &'static str,
}

const fn error(
    status: StatusCode,
    code: &'static str,
    when: &'static str,
    message: &'static str,
) -> ErrorCode {
    ErrorCode {
        status,
        code: Some(code),
        when,
        message,
    }
}

const fn invalid(status: StatusCode, when: &'static str) -> ErrorCode {
    ErrorCode {
        status,
        code: None,
        when,
        message: "",
    }
}

/// An error whose message is made where it arises.
const fn told(status: StatusCode, code: &'static str, when: &'static str) -> ErrorCode {
    error(status, code, when, "")
}

// Requests that may not be sent.

pub(in crate::http) const INVALID_API_KEY: ErrorCode = error(
    StatusCode::UNAUTHORIZED,
    "invalid_api_key",
    "the API key is missing or wrong",
    "the API key is missing or wrong; send it as authorization: Bearer KEY",
);
pub(in crate::http) const INVALID_CLUSTER_KEY: ErrorCode = error(
    StatusCode::UNAUTHORIZED,
    "invalid_cluster_key",
    "the request is not signed with the cluster key",
    "this address is for requests that replicas have signed with the same cluster key",
);
pub(in crate::http) const HOST_NOT_ALLOWED: ErrorCode = error(
    StatusCode::FORBIDDEN,
    "host_not_allowed",
    "the server has no API keys, and the host of the request is not allowed",
    "the host of this request is not allowed; use a loopback name, add the host to allowed_hosts or configure API keys",
);
pub(in crate::http) const ORIGIN_NOT_ALLOWED: ErrorCode = error(
    StatusCode::FORBIDDEN,
    "origin_not_allowed",
    "a web page of another origin, which `cors_origins` does not have, sends a request that needs no preflight",
    "web pages of this origin may not send this request; add the origin to cors_origins",
);
pub(in crate::http) const PAGE_NOT_ALLOWED: ErrorCode = error(
    StatusCode::FORBIDDEN,
    "origin_not_allowed",
    "a web page of another origin, which `cors_origins` does not have, sends the request",
    "web pages of this origin may not call tools here; add the origin to cors_origins",
);
pub(in crate::http) const OPERATOR_REQUIRED: ErrorCode = error(
    StatusCode::FORBIDDEN,
    "operator_required",
    "there are API keys with `operator = true`, and this is none of them",
    "the metrics have the figures of all API keys and this key may not read them; use a key with `operator = true`, or set metrics_listen",
);
pub(in crate::http) const RATE_LIMIT_EXCEEDED: ErrorCode = error(
    StatusCode::TOO_MANY_REQUESTS,
    "rate_limit_exceeded",
    "the API key has as many requests in progress as it may have",
    "too many requests of this API key are in progress; wait until some of them have ended",
);

// All requests.

pub(in crate::http) const METHOD_NOT_ALLOWED: ErrorCode = error(
    StatusCode::METHOD_NOT_ALLOWED,
    "method_not_allowed",
    "the path does not have the method",
    "this path does not support this method",
);
pub(in crate::http) const HEAD_TOO_LARGE: ErrorCode = error(
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    "request_header_fields_too_large",
    "the path and the headers are too large, or there are more than 100 headers",
    "the request's path and headers are too large, or it has more than 100 headers; send fewer or shorter headers",
);
pub(in crate::http) const INTERNAL: ErrorCode = error(
    StatusCode::INTERNAL_SERVER_ERROR,
    "internal_error",
    "an internal error",
    "an internal error occurred in the server",
);
pub(in crate::http) const SHUTTING_DOWN: ErrorCode = error(
    StatusCode::SERVICE_UNAVAILABLE,
    "shutting_down",
    "the server is shutting down",
    "the server is shutting down; try again later",
);

// Parameters and bodies.

pub(in crate::http) const INVALID: ErrorCode = invalid(
    StatusCode::BAD_REQUEST,
    "a parameter or the body is not valid; `param` names the field",
);
pub(in crate::http) const BODY_BROKEN: ErrorCode = ErrorCode {
    message: "the request body is incomplete, because the connection failed; send it again",
    ..invalid(StatusCode::BAD_REQUEST, "the body is incomplete")
};
pub(in crate::http) const NOT_FOUND: ErrorCode = told(
    StatusCode::NOT_FOUND,
    "not_found",
    "it does not exist, or belongs to another API key",
);
pub(in crate::http) const REQUEST_TIMEOUT: ErrorCode = error(
    StatusCode::REQUEST_TIMEOUT,
    "request_timeout",
    "the body does not arrive, or too slowly",
    "the request body did not arrive in time; send it again",
);
pub(in crate::http) const REQUEST_TOO_LARGE: ErrorCode = told(
    StatusCode::PAYLOAD_TOO_LARGE,
    "request_too_large",
    "the body is too large",
);
pub(in crate::http) const OVERLOADED: ErrorCode = error(
    StatusCode::SERVICE_UNAVAILABLE,
    "overloaded",
    "too many large requests are being read",
    "too many large requests are being read; send this one again later",
);
pub(in crate::http) const ANSWERS_OVERLOADED: ErrorCode = error(
    StatusCode::SERVICE_UNAVAILABLE,
    "overloaded",
    "too many large answers are being sent",
    "too many large answers are being sent; ask for this one again later",
);
pub(in crate::http) const UNSUPPORTED_MEDIA_TYPE: ErrorCode = error(
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    "unsupported_media_type",
    "the content type is not the documented one",
    "the content type must be application/json; set the header content-type: application/json",
);
pub(in crate::http) const UNSUPPORTED_ENCODING: ErrorCode = error(
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    "unsupported_encoding",
    "the body has a content encoding other than gzip or zstd, or several",
    "the body has a content-encoding that is not known, or more than one; send it as it is, or with gzip or zstd",
);
pub(in crate::http) const NOT_ACCEPTED: ErrorCode = invalid(
    StatusCode::NOT_ACCEPTABLE,
    "the header `accept` does not have `application/json` and `text/event-stream`",
);

// Models and model servers.

pub(in crate::http) const MODEL_NOT_FOUND: ErrorCode = told(
    StatusCode::NOT_FOUND,
    "model_not_found",
    "no model server has the model",
);
pub(in crate::http) const NOT_FORWARDED: ErrorCode = told(
    StatusCode::NOT_FOUND,
    "not_found",
    "`forward` does not have the path, it is below one of loopwright's own endpoints, or it can be read in more than one way",
);
pub(in crate::http) const UPSTREAM_UNREACHABLE: ErrorCode = told(
    StatusCode::BAD_GATEWAY,
    "upstream_unreachable",
    "the model server cannot be reached, or its answer breaks off",
);
pub(in crate::http) const UPSTREAM_TIMEOUT: ErrorCode = error(
    StatusCode::GATEWAY_TIMEOUT,
    "upstream_timeout",
    "the model server is silent for too long",
    "the model server did not respond in time",
);

// Sessions and files.

pub(in crate::http) const SESSION_BUSY: ErrorCode = error(
    StatusCode::CONFLICT,
    "session_busy",
    "another turn of the session is still running",
    "another turn of this session is still running; send the request again when it has ended, or use another session",
);
pub(in crate::http) const SESSION_EXISTS: ErrorCode = error(
    StatusCode::CONFLICT,
    "session_exists",
    "a session with the new id exists already",
    "a session with this id exists already; choose another id",
);
pub(in crate::http) const SESSION_TOO_LARGE: ErrorCode = told(
    StatusCode::PAYLOAD_TOO_LARGE,
    "session_too_large",
    "the session would be too large",
);
pub(in crate::http) const STORAGE_FULL: ErrorCode = told(
    StatusCode::INSUFFICIENT_STORAGE,
    "storage_full",
    "all sessions together are too large, or the disk is full",
);
pub(in crate::http) const SESSION_STORE_UNAVAILABLE: ErrorCode = error(
    StatusCode::SERVICE_UNAVAILABLE,
    "session_store_unavailable",
    "the session store is not available",
    "the session store is not available; try again later",
);
pub(in crate::http) const FILE_STORE_UNAVAILABLE: ErrorCode = error(
    StatusCode::SERVICE_UNAVAILABLE,
    "file_store_unavailable",
    "the file store is not available",
    "the file store is not available; try again later",
);
pub(in crate::http) const FILE_STORE_FULL: ErrorCode = error(
    StatusCode::SERVICE_UNAVAILABLE,
    "file_store_full",
    "the uploads that are running take all the storage for files",
    "the uploads that are running would exceed the storage for files; try again later",
);
pub(in crate::http) const RANGE_NOT_SATISFIABLE: ErrorCode = told(
    StatusCode::RANGE_NOT_SATISFIABLE,
    "range_not_satisfiable",
    "the range is outside the file",
);

// Runs.

pub(in crate::http) const HOOK_FAILED: ErrorCode = error(
    StatusCode::BAD_GATEWAY,
    "hook_failed",
    "a hook of the server has to agree to the model call, and it could not be asked",
    "a hook of the server has to agree to the model call, and it could not be asked; try again later",
);
pub(in crate::http) const AGENT_LIMIT_EXCEEDED: ErrorCode = told(
    StatusCode::UNPROCESSABLE_ENTITY,
    "agent_limit_exceeded",
    "a limit is reached, and `agent.on_limit` is `error`",
);
pub(in crate::http) const NOT_RUNNING: ErrorCode = error(
    StatusCode::CONFLICT,
    "not_running",
    "there is no run to cancel",
    "this run has ended; there is nothing to cancel",
);
pub(in crate::http) const APPROVAL_DECIDED: ErrorCode = error(
    StatusCode::CONFLICT,
    "approval_decided",
    "the approval was decided before, has expired, or its conversation went on",
    "the approval was decided before, has expired, or its conversation went on; see GET /v1/agent/approvals",
);
pub(in crate::http) const KEY_REMOVED: ErrorCode = error(
    StatusCode::FORBIDDEN,
    "key_removed",
    "the API key was removed while the run waited for a decision; the run has ended",
    "the API key of this run was removed while it waited for a decision; it does not go on",
);
pub(in crate::http) const RUN_INTERRUPTED: ErrorCode = error(
    StatusCode::GONE,
    "run_interrupted",
    "the server stopped before the run had an answer; its session holds what was done",
    "the server stopped before this run had an answer; its session holds what was done",
);
pub(in crate::http) const EVENTS_EXPIRED: ErrorCode = error(
    StatusCode::GONE,
    "events_expired",
    "the events of the run are no longer kept",
    "the events of this run are no longer kept; get its answer by its id",
);
pub(in crate::http) const ANSWER_EXPIRED: ErrorCode = error(
    StatusCode::GONE,
    "answer_expired",
    "the answer to the `idempotency-key` is no longer kept",
    "the answer to this idempotency-key is no longer kept; send a new key to run the request again",
);
pub(in crate::http) const IDEMPOTENCY_KEY_REUSED: ErrorCode = error(
    StatusCode::UNPROCESSABLE_ENTITY,
    "idempotency_key_reused",
    "the `idempotency-key` came with another body or path before",
    "this idempotency-key was used with another request body or path; send a new key",
);
pub(in crate::http) const REPLICA_UNREACHABLE: ErrorCode = error(
    StatusCode::SERVICE_UNAVAILABLE,
    "replica_unreachable",
    "another replica runs the turn, and cannot be reached",
    "another replica runs this turn and cannot be reached from here; send the request again later, \
     or get the answer by its id once the run has ended",
);

// Calls outside of a turn.

pub(in crate::http) const APPROVAL_REQUIRED: ErrorCode = told(
    StatusCode::FORBIDDEN,
    "approval_required",
    "a person would have to decide about the call; nothing was done",
);
pub(in crate::http) const CALL_CANCELLED: ErrorCode = error(
    StatusCode::CONFLICT,
    "call_cancelled",
    "the call was cancelled before it started; nothing was done",
    "the call was cancelled before it started; nothing was done",
);
pub(in crate::http) const CALL_INTERRUPTED: ErrorCode = error(
    StatusCode::GONE,
    "run_interrupted",
    "the server stopped while the call of this `idempotency-key` ran; it may have taken effect",
    "the server stopped while the call of this idempotency-key ran; it may have taken effect or not. Find out, \
     and send a new key to make the call again",
);

// What requests of the Responses API name.

pub(in crate::http) const UNSUPPORTED_TOOL: ErrorCode = told(
    StatusCode::BAD_REQUEST,
    "unsupported_tool",
    "the server does not offer a type of `tools`; `param` names the entry",
);
pub(in crate::http) const PREVIOUS_RESPONSE_NOT_FOUND: ErrorCode = error(
    StatusCode::BAD_REQUEST,
    "previous_response_not_found",
    "`previous_response_id` names no stored response",
    "'previous_response_id' names no stored response; send the conversation in 'input'",
);
pub(in crate::http) const CONVERSATION_NOT_FOUND: ErrorCode = told(
    StatusCode::NOT_FOUND,
    "conversation_not_found",
    "`conversation` names none",
);
pub(in crate::http) const CONTAINER_NOT_FOUND: ErrorCode = told(
    StatusCode::NOT_FOUND,
    "container_not_found",
    "`container` of a tool names none; `param` names the field",
);
pub(in crate::http) const NO_TOOL_CALL_FOUND: ErrorCode = told(
    StatusCode::BAD_REQUEST,
    "no_tool_call_found",
    "the input answers a call that is not known",
);
pub(in crate::http) const ITEM_NOT_FOUND: ErrorCode = told(
    StatusCode::NOT_FOUND,
    "item_not_found",
    "the input refers to an item that does not exist",
);
