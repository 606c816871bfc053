//! Responses of an upstream: the form of the body, the headers for the client, the body of an error.

use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::CONTENT_TYPE;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::super::settings::Quirks;
use crate::net::ClientError;

/// Whether the response body is one JSON text. Some servers send one although a stream was requested.
pub(super) fn is_whole_body(headers: &HeaderMap, quirks: &Quirks) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .trim_start()
        .to_ascii_lowercase();
    if kind.starts_with("text/event-stream") {
        false
    } else {
        !quirks.streams || kind.starts_with("application/json")
    }
}

/// The response headers for the client: rate limits and request ids.
pub(super) fn client_headers(headers: &HeaderMap) -> HeaderMap {
    let mut chosen = HeaderMap::new();
    for (name, value) in headers {
        let text = name.as_str();
        if text.starts_with("x-ratelimit-") || matches!(text, "x-request-id" | "request-id") {
            chosen.append(name.clone(), value.clone());
        }
    }
    chosen
}

/// Reads at most `most` bytes of a body, for at most `wait`. Returns the bytes and whether they are the whole body.
pub(super) async fn read_capped(
    stream: impl Stream<Item = Result<Bytes, ClientError>>,
    most: usize,
    wait: Duration,
) -> (Bytes, bool) {
    let mut stream = std::pin::pin!(stream);
    let mut body = BytesMut::new();
    let deadline = Instant::now() + wait;
    let whole = loop {
        match timeout_at(deadline, stream.next()).await {
            Ok(Some(Ok(chunk))) => {
                let left = most - body.len();
                body.extend_from_slice(chunk.get(..left).unwrap_or(&chunk));
                if chunk.len() > left {
                    break false;
                }
            }
            Ok(None) => break true,
            Ok(Some(Err(_))) | Err(_) => break false,
        }
    };
    (body.freeze(), whole)
}
