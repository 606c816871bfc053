//! The errors of an upstream over HTTP.

use std::time::Duration;

use ::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use bytes::Bytes;

use super::super::headers::strip_hop_by_hop;
use super::super::{MAX_ERROR_BODY_BYTES, SHORT_WAIT, UpstreamError};
use super::HttpUpstream;
use super::response::{decoded, read_capped};
use net::{ClientError, ReceivedBody, cause_of};

/// The body of the response to a path outside of the base URL.
const NOT_FOUND_BODY: &str = r#"{"error":{"message":"unknown path","type":"invalid_request_error","param":null,"code":"not_found"}}"#;

impl HttpUpstream {
    pub(super) fn timeout_error(&self, phase: &'static str, limit: Duration) -> UpstreamError {
        UpstreamError::Timeout {
            upstream: self.name.clone(),
            phase,
            limit,
        }
    }

    /// Classifies the error of a request that got no response head.
    pub(super) fn request_error(&self, error: ClientError) -> UpstreamError {
        let upstream = self.name.clone();
        match error {
            ClientError::ConnectTimeout(limit) => self.timeout_error("connect", limit),
            ClientError::Connect(_) | ClientError::Certificate(..) => UpstreamError::Connect {
                upstream,
                source: Box::new(error),
            },
            ClientError::Uri | ClientError::Broken(_) => UpstreamError::Broken {
                upstream,
                reason: cause_of(&error),
            },
        }
    }

    /// The error for an error status, with the response's headers and the start of its body.
    pub(super) async fn error_status(&self, mut response: Response<ReceivedBody>) -> UpstreamError {
        let status = response.status();
        let mut headers = std::mem::take(response.headers_mut());
        strip_hop_by_hop(&mut headers);
        let wait = SHORT_WAIT.min(self.settings.idle_timeout);
        let body = decoded(&mut headers, response.into_body());
        let (body, whole) = read_capped(body, MAX_ERROR_BODY_BYTES, wait).await;
        if !whole {
            headers.remove(CONTENT_LENGTH);
        }
        UpstreamError::Status {
            upstream: self.name.clone(),
            status,
            headers: Box::new(headers),
            body,
        }
    }

    /// The response to a path outside of the base URL.
    pub(super) fn not_found(&self) -> UpstreamError {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        UpstreamError::Status {
            upstream: self.name.clone(),
            status: StatusCode::NOT_FOUND,
            headers: Box::new(headers),
            body: Bytes::from_static(NOT_FOUND_BODY.as_bytes()),
        }
    }
}
