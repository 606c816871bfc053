//! Error responses. Statuses of errors are chosen here and nowhere else.
//!
//! A message for the client never contains the text of the underlying cause; that is logged once, with the request.

mod calls;
pub(super) mod codes;
mod stores;
mod turns;
mod upstream;

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use self::codes::ErrorCode;
use super::headers::mark_upstream_error;
use crate::dialects::end::{ErrorForm, Failure};
use agent::metrics::RefusedLabel;
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
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
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

impl ErrorCode {
    /// The error with the message of its code.
    pub(super) fn error(self) -> ApiError {
        self.with(self.message)
    }

    /// The error with a message that is made for the request.
    pub(super) fn with(self, message: impl Into<String>) -> ApiError {
        ApiError(Box::new(Inner {
            status: self.status,
            code: self.code,
            param: None,
            message: message.into(),
            content_range: None,
            // A retry helps only after sessions were deleted or the disk has more space.
            do_not_retry: self.code == codes::STORAGE_FULL.code,
            body_unread: false,
            upstream: None,
            cause: None,
        }))
    }

    /// The error about a field with this problem.
    pub(super) fn of_field(self, param: &str, problem: &str) -> ApiError {
        let error = RequestError::invalid(param, problem);
        self.with(error.message).about(param)
    }
}

impl From<ErrorCode> for ApiError {
    fn from(code: ErrorCode) -> Self {
        code.error()
    }
}

impl ApiError {
    /// There is nothing at the path.
    pub(super) fn no_such_path() -> Self {
        codes::NOT_FOUND.with("this path does not exist; the paths of the API begin with /v1")
    }

    /// For a request body of more than `most_bytes` bytes.
    pub(super) fn too_large(most_bytes: usize) -> Self {
        codes::REQUEST_TOO_LARGE.with(format!(
            "the request body is larger than {most_bytes} bytes; send a smaller one"
        ))
    }

    /// For a head that the HTTP library refused with a status; `None` if that status is no refusal.
    pub(super) fn unparsed_head(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::BAD_REQUEST => {
                let message =
                    "the request is not valid HTTP/1.1; correct its first line and headers";
                Some(codes::INVALID.with(message))
            }
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => {
                Some(codes::HEAD_TOO_LARGE.error())
            }
            _ => None,
        }
    }

    /// The same error about a field of the request.
    #[must_use]
    pub(super) fn about(mut self, param: impl Into<String>) -> Self {
        self.0.param = Some(param.into());
        self
    }

    /// The same error, whose cause is logged.
    #[must_use]
    fn caused_by(mut self, cause: String) -> Self {
        self.0.cause = Some(cause);
        self
    }

    /// The same error for a request whose body is not read.
    #[must_use]
    pub(super) fn before_body(mut self) -> Self {
        self.0.body_unread = true;
        self
    }

    /// The same error with `x-should-retry: false`, for a request after which a tool has had side effects.
    #[must_use]
    pub(super) fn after_side_effects(mut self) -> Self {
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
    pub(super) fn envelope(&self) -> String {
        if let Some(error) = self.0.upstream.as_ref().and_then(|answer| {
            ReportedError::read(std::str::from_utf8(&answer.body).ok()?).to_object()
        }) {
            return format!(r#"{{"error":{error}}}"#);
        }
        let error = ErrorDetail {
            message: &self.0.message,
            kind: self.kind(),
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

    pub(super) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Why a request was refused, if it was one that may not be sent.
    fn refused(&self) -> Option<RefusedLabel> {
        let code = self.0.code?;
        RefusedLabel::ALL
            .into_iter()
            .find(|label| label.as_str() == code)
    }

    /// OpenAI's class of the error.
    fn kind(&self) -> &'static str {
        match self.0.status {
            _ if self.is_upstreams() => "server_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::GATEWAY_TIMEOUT => "timeout",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// Whether a model server has answered with it.
    fn is_upstreams(&self) -> bool {
        self.0.upstream.is_some() || self.0.code == Some(UPSTREAM_ERROR)
    }

    /// Whether the same request may succeed in a moment.
    fn is_temporary(&self) -> bool {
        let temporary = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        temporary.contains(&self.0.status) && !self.is_upstreams()
    }

    /// The parts of the answer in a dialect's own form, if it has one.
    pub(super) fn into_parts_in(self, form: Option<ErrorForm>) -> ErrorParts {
        let own = form.map(|form| form(&self.failure()));
        let mut parts = self.into_parts();
        if let Some(own) = own {
            describe_own(&mut parts.headers);
            parts.body = own.into();
        }
        parts
    }

    /// The answer's status, headers and body, and the cause for the log.
    pub(super) fn into_parts(mut self) -> ErrorParts {
        self.take_parts()
    }

    /// Takes the parts. What [`Self::failure`] needs stays.
    fn take_parts(&mut self) -> ErrorParts {
        let (is_upstreams, is_temporary) = (self.is_upstreams(), self.is_temporary());
        let (mut headers, body) = match &mut self.0.upstream {
            Some(answer) => (std::mem::take(&mut answer.headers), answer.body.clone()),
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
        if is_temporary {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
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

/// An error response in the own form of its route's dialect, if it has one.
pub(super) fn in_form(mut response: Response, form: Option<ErrorForm>) -> Response {
    let error = response.extensions_mut().remove::<Arc<ApiError>>();
    if let (Some(error), Some(form)) = (error, form) {
        describe_own(response.headers_mut());
        *response.body_mut() = form(&error.failure()).into();
    }
    response
}

/// Describes a body in a dialect's own form, which may take the place of a model server's.
fn describe_own(headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.remove(CONTENT_LENGTH);
    headers.remove(CONTENT_ENCODING);
}

impl IntoResponse for ApiError {
    fn into_response(mut self) -> Response {
        let refused = self.refused();
        let ErrorParts {
            status,
            headers,
            body,
            cause,
        } = self.take_parts();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let extensions = response.extensions_mut();
        // The dialect of the route may have a form of its own.
        extensions.insert(Arc::new(self));
        if let Some(cause) = cause {
            extensions.insert(Cause(cause));
        }
        if let Some(refused) = refused {
            extensions.insert(refused);
        }
        response
    }
}

impl IntoResponse for ErrorCode {
    fn into_response(self) -> Response {
        self.error().into_response()
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let code = match error.missing {
            true => codes::MODEL_NOT_FOUND,
            false => codes::INVALID,
        };
        let code = ErrorCode {
            code: error.code.or(code.code),
            ..code
        };
        let mut answer = code.with(error.message);
        answer.0.param = error.param;
        answer
    }
}

#[cfg(test)]
mod tests {
    use ::upstream::UpstreamError;
    use http_body_util::BodyExt;

    use super::*;

    fn toy(failure: &Failure) -> String {
        let error = ReportedError::read(&failure.envelope);
        format!(
            "{{\"toy\":{:?},\"status\":{}}}",
            error.message.unwrap_or_default(),
            failure.status.as_u16()
        )
    }

    fn errors() -> [(ApiError, &'static str); 2] {
        let headers = [(CONTENT_TYPE, "text/html"), (CONTENT_ENCODING, "identity")];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let of_upstream = UpstreamError::Status {
            upstream: "u".into(),
            status: StatusCode::IM_A_TEAPOT,
            headers: Box::new(HeaderMap::from_iter(headers)),
            body: Bytes::from_static(b"{\"error\":{\"message\":\"short and stout\"}}"),
        };
        let own = codes::NOT_RUNNING.with("it has ended");
        [
            (own, r#"{"toy":"it has ended","status":409}"#),
            (
                ApiError::from_forwarded(of_upstream),
                r#"{"toy":"short and stout","status":418}"#,
            ),
        ]
    }

    #[tokio::test]
    async fn an_error_has_the_form_of_a_dialect_that_has_one() {
        for (error, expected) in errors() {
            let response = in_form(error.into_response(), Some(toy));
            assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
            assert!(!response.headers().contains_key(CONTENT_ENCODING));
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, expected);
        }
        for (error, expected) in errors() {
            let parts = error.into_parts_in(Some(toy));
            assert_eq!(parts.headers[CONTENT_TYPE], "application/json");
            assert!(!parts.headers.contains_key(CONTENT_ENCODING));
            assert_eq!(parts.body, expected);
        }
    }

    #[tokio::test]
    async fn without_a_form_an_error_stays_as_it_is() {
        let [_, (error, _)] = errors();
        let response = in_form(error.into_response(), None);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/html");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "{\"error\":{\"message\":\"short and stout\"}}");
    }
}
