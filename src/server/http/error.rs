//! Error responses. Statuses of errors are chosen here and nowhere else.
//!
//! A message for the client never contains the text of the underlying cause; that is logged once, with the request.

mod access;
mod calls;
mod files;
mod inputs;
mod runs;
mod sessions;
mod upstream;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

pub(super) use self::inputs::unknown_call;
use super::headers::mark_upstream_error;
use crate::dialects::answer::Failure;
use agent::AgentError;
use agent::admit::AdmissionError;
use agent::inputs::FilePosition;
use protocol::openai::error::{ErrorBody, ErrorDetail, ReportedError};
use protocol::openai::request::RequestError;

/// Tells the OpenAI SDKs not to send a request again on their own.
pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// Default of `retry-after`, in seconds, for temporary failures.
const RETRY_AFTER_SECONDS: u64 = 1;

/// The code of an error that an upstream has answered with, where its own words are not used.
const UPSTREAM_ERROR: &str = "upstream_error";
/// Statuses of responses after which the request body is unread, so that the connection must be closed.
const BODY_UNREAD: [StatusCode; 2] = [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::REQUEST_TIMEOUT];

/// An error response; boxed, so that the `Result` of every handler stays small.
#[derive(Debug)]
pub(crate) struct ApiError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
    retry_after: Option<u64>,
    /// The `content-range` of a 416: the size of the file.
    content_range: Option<HeaderValue>,
    do_not_retry: bool,
    /// The request body may be unread, also if the status does not say so.
    body_unread: bool,
    /// The response of the upstream, which is forwarded unchanged.
    upstream: Option<Box<UpstreamAnswer>>,
    /// For the log.
    cause: Option<String>,
}

/// The text of an error's cause. The response carries it in its extensions for the request log.
#[derive(Debug, Clone)]
pub(super) struct Cause(pub(super) String);

/// An error answer in parts.
#[derive(Debug)]
pub(super) struct ErrorParts {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// For the log.
    pub(super) cause: Option<String>,
}

#[derive(Debug)]
struct UpstreamAnswer {
    headers: HeaderMap,
    body: Bytes,
}

impl ApiError {
    fn new(
        status: StatusCode,
        kind: &'static str,
        code: Option<&'static str>,
        message: impl Into<String>,
    ) -> Self {
        Self(Box::new(Inner {
            status,
            kind,
            code,
            param: None,
            message: message.into(),
            retry_after: None,
            content_range: None,
            do_not_retry: false,
            body_unread: false,
            upstream: None,
            cause: None,
        }))
    }

    fn invalid(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", code, message)
    }

    /// 404 for a path or an object that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::invalid(StatusCode::NOT_FOUND, Some("not_found"), message)
    }

    /// There is nothing at the path.
    pub(crate) fn no_such_path() -> Self {
        Self::not_found("this path does not exist; the paths of the API begin with /v1")
    }

    /// 405 for a method that the path does not support.
    pub(crate) fn method_not_allowed() -> Self {
        Self::invalid(
            StatusCode::METHOD_NOT_ALLOWED,
            Some("method_not_allowed"),
            "this path does not support this method",
        )
    }

    /// 415 for a body that is not JSON.
    pub(crate) fn not_json() -> Self {
        let message = "the content type must be application/json; set the header content-type: application/json";
        Self::invalid(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Some("unsupported_media_type"),
            message,
        )
    }

    /// 415 for a body with an encoding that is not decoded.
    pub(crate) fn unknown_encoding() -> Self {
        let message = "the body has a content-encoding that is not known, or more than one; send it as it is, or with gzip or zstd";
        Self::invalid(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Some("unsupported_encoding"),
            message,
        )
    }

    /// 413 for a request body of more than `most_bytes` bytes.
    pub(crate) fn too_large(most_bytes: usize) -> Self {
        let message =
            format!("the request body is larger than {most_bytes} bytes; send a smaller one");
        Self::invalid(
            StatusCode::PAYLOAD_TOO_LARGE,
            Some("request_too_large"),
            message,
        )
    }

    /// 413 for a request that refers to items of more than `most_bytes` bytes.
    pub(crate) fn referred_items_too_large(most_bytes: usize) -> Self {
        let message = format!(
            "the items that 'input' refers to are larger than the {most_bytes} bytes that the body leaves for them; refer \
             to fewer, or go on from their response with 'previous_response_id'"
        );
        let mut error = Self::too_large(most_bytes);
        error.0.message = message;
        error.0.param = Some("input".to_owned());
        error
    }

    /// 431 for a path and headers of more than `most_bytes` bytes.
    pub(crate) fn head_too_large(most_bytes: usize) -> Self {
        let message = format!(
            "the request's path and headers are larger than {most_bytes} bytes; send fewer or shorter headers"
        );
        Self::invalid(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Some("request_header_fields_too_large"),
            message,
        )
    }

    /// The error for a head that the HTTP library refused with a status; `None` if that status is no refusal.
    pub(crate) fn unparsed_head(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::BAD_REQUEST => {
                let message =
                    "the request is not valid HTTP/1.1; correct its first line and headers";
                Some(Self::invalid(status, None, message))
            }
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => {
                let message = "the request's path and headers are too large, or it has more than 100 headers; send fewer or shorter headers";
                Some(Self::invalid(
                    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                    Some("request_header_fields_too_large"),
                    message,
                ))
            }
            _ => None,
        }
    }

    /// 408 for a request body that did not arrive in time.
    pub(crate) fn body_timeout() -> Self {
        Self::invalid(
            StatusCode::REQUEST_TIMEOUT,
            Some("request_timeout"),
            "the request body did not arrive in time; send it again",
        )
    }

    /// 503 for a request body for which there is no memory at present.
    pub(crate) fn overloaded() -> Self {
        let message = "too many large requests are being read; send this one again later";
        let mut error = Self::no_memory(message);
        error.0.body_unread = true;
        error
    }

    /// 503 for a request that refers to what there is no memory for at present.
    pub(crate) fn referred_overloaded() -> Self {
        Self::no_memory("too many large requests are in use; send this one again later")
    }

    /// 503 for an answer for which there is no memory, because others are not read.
    pub(crate) fn answers_overloaded() -> Self {
        Self::no_memory("too many large answers are being sent; ask for this one again later")
    }

    fn no_memory(message: &str) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let mut error = Self::new(status, "server_error", Some("overloaded"), message);
        error.0.retry_after = Some(RETRY_AFTER_SECONDS);
        error
    }

    /// 400 for a request body that ended early.
    pub(crate) fn body_broken() -> Self {
        Self::invalid(
            StatusCode::BAD_REQUEST,
            None,
            "the request body is incomplete, because the connection failed; send it again",
        )
    }

    /// 503 while the server is shutting down.
    pub(crate) fn shutting_down() -> Self {
        let message = "the server is shutting down; try again later";
        let mut error = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            Some("shutting_down"),
            message,
        );
        error.0.retry_after = Some(RETRY_AFTER_SECONDS);
        error
    }

    /// 500 for a panic or a broken invariant.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "server_error",
            Some("internal_error"),
            "an internal error occurred in the server",
        )
    }

    /// The same error with `x-should-retry: false`, for a request after which a tool has had side effects.
    #[must_use]
    pub(crate) fn after_side_effects(mut self) -> Self {
        self.0.do_not_retry = true;
        self
    }

    /// The error as the dialects write it.
    pub(super) fn failure(&self) -> Failure {
        Failure {
            status: self.0.status,
            envelope: self.envelope(),
        }
    }

    /// `{"error":{…}}` as JSON text in one line, for a response body or an event of a stream.
    pub(crate) fn envelope(&self) -> String {
        if let Some(error) = self.0.upstream.as_ref().and_then(|answer| {
            ReportedError::read(std::str::from_utf8(&answer.body).ok()?).to_object()
        }) {
            return format!(r#"{{"error":{error}}}"#);
        }
        let error = ErrorDetail {
            message: &self.0.message,
            kind: self.0.kind,
            param: self.0.param.as_deref(),
            code: self.0.code,
        };
        serde_json::to_string(&ErrorBody { error }).unwrap_or_default()
    }

    /// The text for the client.
    #[cfg(feature = "mcp")]
    pub(super) fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The answer's status, headers and body, and the cause for the log.
    pub(super) fn into_parts(mut self) -> ErrorParts {
        let is_upstreams = self.0.upstream.is_some() || self.0.code == Some(UPSTREAM_ERROR);
        let (mut headers, body) = match self.0.upstream.take() {
            Some(answer) => (answer.headers, answer.body),
            None => {
                let json = HeaderValue::from_static("application/json");
                let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
                if self.0.body_unread || BODY_UNREAD.contains(&self.0.status) {
                    headers.insert(CONNECTION, HeaderValue::from_static("close"));
                }
                (headers, self.envelope().into())
            }
        };
        if is_upstreams {
            mark_upstream_error(&mut headers);
        }
        if let Some(seconds) = self.0.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(range) = self.0.content_range.take() {
            headers.insert(CONTENT_RANGE, range);
        }
        if self.0.do_not_retry {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        ErrorParts {
            status: self.0.status,
            headers,
            body,
            cause: self.0.cause.take(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let refused = self.refused();
        let ErrorParts {
            status,
            headers,
            body,
            cause,
        } = self.into_parts();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        if let Some(cause) = cause {
            response.extensions_mut().insert(Cause(cause));
        }
        if let Some(refused) = refused {
            response.extensions_mut().insert(refused);
        }
        response
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let (status, code) = match error.missing {
            true => (
                StatusCode::NOT_FOUND,
                error.code.or(Some("model_not_found")),
            ),
            false => (StatusCode::BAD_REQUEST, error.code),
        };
        let mut answer = Self::invalid(status, code, error.message);
        answer.0.param = error.param;
        answer
    }
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::Request(error) => error.into(),
            AdmissionError::UnknownCall(call) => unknown_call(&call).into(),
        }
    }
}

impl ApiError {
    /// The answer to a failed turn. The dialect of its request names the place of an input file.
    pub(super) fn of_turn(
        error: AgentError,
        file_path: impl FnOnce(&FilePosition) -> String,
    ) -> Self {
        match error {
            AgentError::Upstream(error) => error.into(),
            AgentError::Session(error) => error.into(),
            AgentError::InputFile(error) => {
                inputs::refused(error.problem, &file_path(&error.position))
            }
            AgentError::Files(error) => error.into(),
            AgentError::UnknownCall { call } => unknown_call(&call).into(),
            AgentError::Approval { param, is_known } => Self::refused_decision(param, is_known),
            AgentError::NothingWaits => Self::nothing_waits("messages"),
            AgentError::NoPosition => Self::no_previous_response(),
            AgentError::Stopping => Self::shutting_down(),
            AgentError::Hook => Self::hook_failed(),
            AgentError::NoSession => Self::no_session(),
            AgentError::NeedsApproval { tool, reason, rule } => {
                Self::approval_required(&tool, reason.as_deref(), rule.as_ref())
            }
            AgentError::Limit(reason) => {
                let message = format!(
                    "the turn reached the limit {}; raise the limit or set agent.on_limit to \"final_answer\" or \"stop\"",
                    reason.as_str()
                );
                Self::invalid(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    Some("agent_limit_exceeded"),
                    message,
                )
            }
        }
    }
}
