//! What a model server's failure looks like to the client.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::{ApiError, UpstreamAnswer};
use crate::openai::raw::RawObject;
use crate::upstream::UpstreamError;

impl From<UpstreamError> for ApiError {
    fn from(error: UpstreamError) -> Self {
        let cause = describe(&error);
        let unreachable = |message: &str| {
            Self::new(
                StatusCode::BAD_GATEWAY,
                "server_error",
                Some("upstream_unreachable"),
                message,
            )
        };
        let mut answer = match error {
            UpstreamError::Connect { .. } => unreachable("the model server cannot be reached"),
            UpstreamError::Broken { .. } => unreachable("the model server broke off its answer"),
            UpstreamError::Malformed { .. } => {
                unreachable("the model server's answer cannot be understood")
            }
            UpstreamError::Timeout { .. } => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "timeout",
                Some("upstream_timeout"),
                "the model server was silent for too long",
            ),
            UpstreamError::Status {
                status,
                headers,
                body,
                ..
            } => {
                let message = format!("the model server answered with status {}", status.as_u16());
                let mut answer = Self::new(status, "server_error", Some("upstream_error"), message);
                answer.0.upstream = Some(Box::new(UpstreamAnswer {
                    headers: *headers,
                    body,
                }));
                answer
            }
            UpstreamError::InStream { error, .. } => {
                let mut answer = unreachable("the model server reported an error");
                answer.0.upstream = in_stream_answer(&error);
                answer
            }
            UpstreamError::RequestBody => Self::body_broken(),
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

/// An error that an upstream reported inside a stream, as an answer of its own.
fn in_stream_answer(error: &str) -> Option<Box<UpstreamAnswer>> {
    RawObject::parse(error).ok()?.get_some("message")?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(Box::new(UpstreamAnswer {
        headers,
        body: format!(r#"{{"error":{error}}}"#).into(),
    }))
}
