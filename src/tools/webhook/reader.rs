//! An answer while it arrives: the whole of a body, or the events of a stream; never more than was allowed.

use ::http::HeaderMap;
use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;

use super::answer;
use super::retry::{Failure, Problem};
use crate::openai::raw::RawObject;
use crate::sse::{SseDecoder, SseEvent};
use crate::tools::{ProgressSender, ToolOutput, ToolProgress};

/// Room that is made for a body at once, in bytes; more as it comes.
const FIRST_ROOM: usize = 64 * 1024;

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
    let promised = response.content_length();
    if promised.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > most)) {
        return Err(Problem::TooLarge(most).into());
    }
    let body = CappedBody {
        response,
        read: 0,
        most,
    };
    if media_type == "text/event-stream" {
        events(body, progress).await
    } else {
        whole(body, &media_type).await
    }
}

/// A body that ends in a failure where it grows too large.
struct CappedBody {
    response: reqwest::Response,
    read: usize,
    most: usize,
}

impl CappedBody {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(chunk) = self.response.chunk().await.map_err(Failure::broken)? else {
            return Ok(None);
        };
        self.read = self.read.saturating_add(chunk.len());
        if self.read > self.most {
            return Err(Problem::TooLarge(self.most).into());
        }
        Ok(Some(chunk))
    }
}

async fn whole(mut body: CappedBody, media_type: &str) -> Result<ToolOutput, Failure> {
    let expected = body.response.content_length().unwrap_or_default();
    let room = usize::try_from(expected)
        .unwrap_or(FIRST_ROOM)
        .min(FIRST_ROOM);
    let mut bytes = BytesMut::with_capacity(room);
    while let Some(chunk) = body.next().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(answer::read(&bytes, media_type)?)
}

/// Reads events up to the result, which ends the stream; live output is handed on at once.
async fn events(mut body: CappedBody, progress: &ProgressSender) -> Result<ToolOutput, Failure> {
    let mut decoder = SseDecoder::new(body.most);
    let mut ended = false;
    loop {
        let next = if ended {
            decoder.finish()
        } else {
            decoder.next_event()
        };
        match next {
            Some(Err(_)) => return Err(Problem::TooLarge(body.most).into()),
            Some(Ok(event)) => match meaning(&event)? {
                Meaning::Nothing => {}
                Meaning::Progress(text) => {
                    let stream = "progress";
                    progress.send(ToolProgress { text, stream }).await;
                }
                Meaning::Result(output) => return Ok(output),
            },
            None if ended => return Err(Problem::NoResult.into()),
            None => match body.next().await? {
                Some(chunk) => decoder.push(chunk),
                None => ended = true,
            },
        }
    }
}

/// What an event of a stream says.
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
