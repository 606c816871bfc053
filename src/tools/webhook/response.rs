//! Reads a successful response, a whole body or an event stream, up to a size limit.

use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use ::http::{HeaderMap, Response};
use bytes::BytesMut;
use serde_json::value::RawValue;

use super::result;
use super::retry::{AttemptError, WebhookError};
use crate::incoming::{MOST_BYTES, SMALL_RESULT};
use crate::{IncomingResults, ProgressSender, ToolInvocation, ToolOutput, ToolProgress};
use net::{CappedBody, ReceivedBody};
use protocol::openai::raw::RawObject;
use protocol::sse::{SseDecoder, SseEvent};

/// Reads the result from a response with a success status. Progress of an event stream is forwarded at once.
///
/// # Errors
/// When the body is compressed, larger than `max_bytes`, cut off or not a valid result.
pub(super) async fn read(
    response: Response<ReceivedBody>,
    max_bytes: usize,
    invocation: &ToolInvocation,
) -> Result<ToolOutput, AttemptError> {
    let is_encoded = |value: &::http::HeaderValue| !value.is_empty() && value != "identity";
    if response
        .headers()
        .get(CONTENT_ENCODING)
        .is_some_and(is_encoded)
    {
        return Err(WebhookError::Compressed.into());
    }
    let media_type = media_type(response.headers());
    let body = CappedBody::new(response.into_body(), max_bytes)?;
    if media_type == "text/event-stream" {
        read_events(body, max_bytes, &invocation.progress).await
    } else {
        read_whole(body, &media_type, &invocation.context.incoming).await
    }
}

/// Reads a body that is one result. Few large ones are held at the same time.
async fn read_whole(
    mut body: CappedBody,
    media_type: &str,
    incoming: &IncomingResults,
) -> Result<ToolOutput, AttemptError> {
    let mut bytes = BytesMut::new();
    let mut reserved = match body.announced() {
        // Reserved before anything is received, so that an answer that waits is in no buffer.
        Some(length) if length > SMALL_RESULT => {
            let reserved = incoming.reserve(length).await;
            bytes.reserve(length.min(MOST_BYTES));
            reserved
        }
        Some(_) | None => None,
    };
    while let Some(chunk) = body.chunk().await? {
        if reserved.is_none() && bytes.len() + chunk.len() > SMALL_RESULT {
            let coming = chunk.len() + body.most_remaining();
            reserved = incoming.reserve(bytes.len() + coming).await;
            bytes.reserve(coming.min(MOST_BYTES));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(result::parse(&bytes.freeze(), media_type)?)
}

/// Reads events up to the result, which ends the stream.
async fn read_events(
    mut body: CappedBody,
    max_bytes: usize,
    progress: &ProgressSender,
) -> Result<ToolOutput, AttemptError> {
    let mut decoder = SseDecoder::new(max_bytes);
    let mut ended = false;
    loop {
        let next = if ended {
            decoder.finish()
        } else {
            decoder.next_event()
        };
        match next {
            Some(Err(_)) => return Err(WebhookError::TooLarge(max_bytes).into()),
            Some(Ok(event)) => match parse_event(&event)? {
                StreamEvent::Ignored => {}
                StreamEvent::Progress(text) => {
                    let stream = "progress";
                    progress.send(ToolProgress { text, stream }).await;
                }
                StreamEvent::Result(output) => return Ok(output),
            },
            None if ended => return Err(WebhookError::NoResult.into()),
            None => match body.chunk().await? {
                Some(chunk) => decoder.push(chunk),
                None => ended = true,
            },
        }
    }
}

/// A parsed event of the stream.
enum StreamEvent {
    Ignored,
    Progress(String),
    Result(ToolOutput),
}

fn parse_event(event: &SseEvent) -> Result<StreamEvent, WebhookError> {
    let data = event.data.trim_ascii();
    if data.is_empty() || data == b"[DONE]" {
        return Ok(StreamEvent::Ignored);
    }
    let progress = std::str::from_utf8(data)
        .ok()
        .and_then(|text| RawObject::parse(text).ok())
        .filter(|object| object.get(result::CONTENT).is_none())
        .and_then(|object| object.get("progress").map(RawValue::get));
    match progress {
        None => {
            let data = event.data.slice_ref(data);
            let output = result::parse(&data, "application/json")?;
            Ok(StreamEvent::Result(output))
        }
        Some("null") => Ok(StreamEvent::Ignored),
        Some(json) => match serde_json::from_str::<String>(json) {
            Ok(text) if text.is_empty() => Ok(StreamEvent::Ignored),
            Ok(text) => Ok(StreamEvent::Progress(text)),
            Err(_) => Err(WebhookError::InvalidField {
                field: "progress".to_owned(),
                expected: "a string",
            }),
        },
    }
}

/// The media type of a response in lower case, without parameters; empty when there is none.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}
