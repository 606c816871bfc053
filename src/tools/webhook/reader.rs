//! Reads an answer, a whole body or a stream of events, up to a limit.

use ::http::HeaderMap;
use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::value::RawValue;

use super::answer;
use super::retry::{Failure, Problem};
use crate::net::CappedBody;
use crate::openai::raw::RawObject;
use crate::sse::{SseDecoder, SseEvent};
use crate::tools::{ProgressSender, ToolOutput, ToolProgress};

/// Reads a successful answer.
pub(super) async fn read(
    response: reqwest::Response,
    most: usize,
    progress: &ProgressSender,
) -> Result<ToolOutput, Failure> {
    let coded = |value: &::http::HeaderValue| !value.is_empty() && value != "identity";
    if response.headers().get(CONTENT_ENCODING).is_some_and(coded) {
        return Err(Problem::Compressed.into());
    }
    let media_type = media_type(response.headers());
    let body = CappedBody::new(response, most)?;
    if media_type == "text/event-stream" {
        events(body, most, progress).await
    } else {
        Ok(answer::read(&body.whole().await?, &media_type)?)
    }
}

/// Reads events up to the result, which ends the stream. Live output is forwarded at once.
async fn events(
    mut body: CappedBody,
    most: usize,
    progress: &ProgressSender,
) -> Result<ToolOutput, Failure> {
    let mut decoder = SseDecoder::new(most);
    let mut ended = false;
    loop {
        let next = if ended {
            decoder.finish()
        } else {
            decoder.next_event()
        };
        match next {
            Some(Err(_)) => return Err(Problem::TooLarge(most).into()),
            Some(Ok(event)) => match meaning(&event)? {
                Meaning::Nothing => {}
                Meaning::Progress(text) => {
                    let stream = "progress";
                    progress.send(ToolProgress { text, stream }).await;
                }
                Meaning::Result(output) => return Ok(output),
            },
            None if ended => return Err(Problem::NoResult.into()),
            None => match body.chunk().await? {
                Some(chunk) => decoder.push(chunk),
                None => ended = true,
            },
        }
    }
}

/// The meaning of an event.
enum Meaning {
    Nothing,
    Progress(String),
    Result(ToolOutput),
}

fn meaning(event: &SseEvent) -> Result<Meaning, Problem> {
    let data = event.data.trim_ascii();
    if data.is_empty() || data == b"[DONE]" {
        return Ok(Meaning::Nothing);
    }
    let progress = std::str::from_utf8(data)
        .ok()
        .and_then(|text| RawObject::parse(text).ok())
        .filter(|object| object.get(answer::CONTENT).is_none())
        .and_then(|object| object.get("progress").map(RawValue::get));
    match progress {
        None => Ok(Meaning::Result(answer::read(data, "application/json")?)),
        Some("null") => Ok(Meaning::Nothing),
        Some(json) => match serde_json::from_str::<String>(json) {
            Ok(text) if text.is_empty() => Ok(Meaning::Nothing),
            Ok(text) => Ok(Meaning::Progress(text)),
            Err(_) => Err(Problem::Field {
                field: "progress".to_owned(),
                expected: "a string",
            }),
        },
    }
}

/// The media type of an answer in lower case, without parameters; empty when there is none.
fn media_type(headers: &HeaderMap) -> String {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}
