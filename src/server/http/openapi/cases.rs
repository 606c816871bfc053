//! Errors that several operations have together.

use super::super::error::codes::{self, ErrorCode};

/// Of every endpoint, except the probes.
pub(super) const CALLER: &[ErrorCode] = &[
    codes::INVALID_API_KEY,
    codes::HOST_NOT_ALLOWED,
    codes::ORIGIN_NOT_ALLOWED,
    codes::RATE_LIMIT_EXCEEDED,
];
/// Of every endpoint.
pub(super) const ALWAYS: &[ErrorCode] = &[codes::HEAD_TOO_LARGE, codes::INTERNAL];
/// Of endpoints that hold a body in memory.
pub(in crate::http) const BODY: &[ErrorCode] = &[
    codes::REQUEST_TIMEOUT,
    codes::REQUEST_TOO_LARGE,
    codes::OVERLOADED,
];
/// Of endpoints that read bodies of one media type.
pub(in crate::http) const MEDIA_TYPE: &[ErrorCode] =
    &[codes::UNSUPPORTED_MEDIA_TYPE, codes::UNSUPPORTED_ENCODING];
/// Of endpoints that make a session larger.
pub(in crate::http) const STORAGE: &[ErrorCode] = &[codes::SESSION_TOO_LARGE, codes::STORAGE_FULL];
/// Of endpoints that ask a model server.
pub(in crate::http) const UPSTREAM: &[ErrorCode] =
    &[codes::UPSTREAM_UNREACHABLE, codes::UPSTREAM_TIMEOUT];
/// Of the answer of a run.
pub(in crate::http) const INTERRUPTED: &[ErrorCode] = &[codes::KEY_REMOVED, codes::RUN_INTERRUPTED];
/// Of what may be sent again under a key.
pub(in crate::http) const KEYED: &[ErrorCode] =
    &[codes::ANSWER_EXPIRED, codes::IDEMPOTENCY_KEY_REUSED];
/// Of a turn that has begun, and of the answer of one.
pub(super) const OF_TURN: &[ErrorCode] = &[
    codes::AGENT_LIMIT_EXCEEDED,
    codes::SESSION_BUSY,
    codes::SESSION_STORE_UNAVAILABLE,
    codes::FILE_STORE_UNAVAILABLE,
    codes::SHUTTING_DOWN,
];
/// Of what a request of the Responses API refers to.
pub(in crate::http) const REFERENCES: &[ErrorCode] = &[
    codes::UNSUPPORTED_TOOL,
    codes::PREVIOUS_RESPONSE_NOT_FOUND,
    codes::CONVERSATION_NOT_FOUND,
    codes::CONTAINER_NOT_FOUND,
    codes::NO_TOOL_CALL_FOUND,
    codes::ITEM_NOT_FOUND,
];
