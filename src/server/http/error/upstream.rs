//! Responses to failures of an upstream.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use super::codes::{self, ErrorCode};
use super::{ApiError, UPSTREAM_ERROR, UpstreamAnswer};
use crate::http::headers::{error_headers, forwarded_headers};
use protocol::openai::error::ReportedError;
use upstream::UpstreamError;

/// For a failed model call of the loop: the response keeps few of the upstream's headers.
impl From<UpstreamError> for ApiError {
    fn from(error: UpstreamError) -> Self {
        Self::from_upstream(error, |headers, body| {
            // The request did not accept content codings, so a body that has one is not used.
            let coding = headers.get(CONTENT_ENCODING);
            let plain = coding.is_none_or(|coding| coding == "identity");
            plain.then(|| UpstreamAnswer {
                headers: error_headers(&headers),
                body,
            })
        })
    }
}

impl ApiError {
    /// For a forwarded request: the response keeps the upstream's headers.
    pub(in crate::http) fn from_forwarded(error: UpstreamError) -> Self {
        Self::from_upstream(error, |headers, body| {
            Some(UpstreamAnswer {
                headers: forwarded_headers(headers),
                body,
            })
        })
    }

    fn from_upstream(
        error: UpstreamError,
        answer_of: impl FnOnce(HeaderMap, Bytes) -> Option<UpstreamAnswer>,
    ) -> Self {
        let cause = describe(&error);
        let unreachable = |message: &str| codes::UPSTREAM_UNREACHABLE.with(message);
        let mut answer = match error {
            UpstreamError::Connect { .. } => unreachable("the model server cannot be reached"),
            UpstreamError::Broken { .. } => unreachable(
                "the connection to the model server failed before its answer was complete",
            ),
            UpstreamError::Malformed { .. } => {
                unreachable("the model server sent an answer that is not valid")
            }
            UpstreamError::Incomplete { reason, .. } => unreachable(&reason.to_string()),
            UpstreamError::Timeout { .. } => codes::UPSTREAM_TIMEOUT.error(),
            UpstreamError::Status {
                status,
                headers,
                body,
                ..
            } => {
                let message = format!("the model server answered with status {}", status.as_u16());
                let code = ErrorCode {
                    status,
                    code: Some(UPSTREAM_ERROR),
                    ..codes::INVALID
                };
                let mut answer = code.with(message);
                answer.0.upstream = answer_of(*headers, body).map(Box::new);
                answer
            }
            UpstreamError::InStream { error, .. } => {
                let mut answer = unreachable("the model server reported an error");
                answer.0.upstream = in_stream_answer(&error);
                answer
            }
            UpstreamError::RequestBody => codes::BODY_BROKEN.error(),
        };
        answer.0.cause = Some(cause);
        answer
    }
}

fn describe(error: &UpstreamError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The response for an error that an upstream reported inside a stream.
fn in_stream_answer(error: &str) -> Option<Box<UpstreamAnswer>> {
    let error = ReportedError::read(error).to_object()?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(Box::new(UpstreamAnswer {
        headers,
        body: format!(r#"{{"error":{error}}}"#).into(),
    }))
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http::StatusCode;

    use super::*;

    fn answered(pairs: &[(&'static str, &'static str)]) -> UpstreamError {
        let pairs = pairs.iter().map(|&(name, value)| {
            (
                http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        UpstreamError::Status {
            upstream: "u".into(),
            status: StatusCode::TOO_MANY_REQUESTS,
            headers: Box::new(pairs.collect()),
            body: Bytes::from_static(b"{}"),
        }
    }

    const SENT: [(&str, &str); 9] = [
        ("content-type", "application/json"),
        ("retry-after", "7"),
        ("x-ratelimit-remaining", "0"),
        ("x-request-id", "theirs"),
        ("set-cookie", "a=b"),
        ("server", "uvicorn"),
        ("openai-organization", "org"),
        ("access-control-allow-origin", "*"),
        ("content-length", "9999"),
    ];

    #[test]
    fn an_error_of_a_model_call_keeps_few_headers_of_the_upstream() {
        let answer = ApiError::from(answered(&SENT)).into_response();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        let mut names: Vec<&str> = answer
            .headers()
            .keys()
            .map(http::HeaderName::as_str)
            .collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "content-type",
                "retry-after",
                "x-loopwright-error-source",
                "x-upstream-ratelimit-remaining"
            ]
        );
    }

    #[test]
    fn a_forwarded_error_keeps_all_headers_except_cors() {
        let answer = ApiError::from_forwarded(answered(&SENT)).into_response();
        let missing: Vec<_> = SENT
            .iter()
            .filter(|(name, _)| !answer.headers().contains_key(*name))
            .collect();
        assert_eq!(missing, [&("access-control-allow-origin", "*")]);
    }

    #[test]
    fn a_body_with_a_content_coding_is_not_used() {
        let coded = answered(&[("content-type", "text/html"), ("content-encoding", "gzip")]);
        let answer = ApiError::from(coded);
        assert!(answer.envelope().contains("upstream_error"));
        assert_eq!(
            answer.into_response().headers()[CONTENT_TYPE],
            "application/json"
        );
    }
}
