//! Requests to servers behind URLs, and their answers.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use url::Url;

use super::failure::{HttpError, RequestFailure};
use super::message::{self, ServerMessage};
use super::read_rate::{MESSAGE_BYTES, ReadRate};
use super::secrets::Secrets;
use crate::error_body::{MOST_BYTES, start_of, text_of};
use protocol::sse::{Resumption, SseDecoder, SseEvent};

const SESSION_ID: &str = "mcp-session-id";
const LAST_EVENT_ID: &str = "last-event-id";
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// What goes with a message.
pub(super) struct Envelope<'a> {
    pub(super) url: &'a Url,
    pub(super) session_id: Option<&'a str>,
    pub(super) token: Option<String>,
    pub(super) headers: &'a HashMap<HeaderName, HeaderValue>,
    pub(super) rate: &'a ReadRate,
}

impl Envelope<'_> {
    /// Adds the headers of every request.
    fn complete(&self, mut request: RequestBuilder) -> RequestBuilder {
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(id) = self.session_id {
            request = request.header(SESSION_ID, id);
        }
        request
    }

    /// What the server must not repeat.
    fn secrets(&self) -> Secrets {
        let headers = self.headers.iter();
        let mut headers: HeaderMap = headers
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let token = self.token.as_ref().map(|token| format!("Bearer {token}"));
        if let Some(token) = token.and_then(|token| token.try_into().ok()) {
            headers.insert(AUTHORIZATION, token);
        }
        Secrets::new(&headers, self.url, None)
    }
}

/// Sends a message and reads the head of the answer, or an answer that is one JSON text.
///
/// # Errors
/// When there is no answer, or another than the protocol has.
pub(super) async fn post(
    client: &Client,
    sent: &ClientJsonRpcMessage,
    envelope: Envelope<'_>,
    limits: StreamableHttpResponseLimits,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let request = client
        .post(envelope.url.clone())
        .header(ACCEPT, format!("{EVENT_STREAM}, {JSON}"));
    let request = envelope.complete(request);
    let response = request.json(sent).send().await.map_err(HttpError::Client)?;
    let awaited = match sent {
        JsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    };
    let status = response.status();
    match status {
        StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(StreamableHttpPostResponse::Accepted),
        StatusCode::NOT_FOUND if envelope.session_id.is_some() => Err(HttpError::SessionExpired),
        _ if status.is_success() => {
            answered(response, awaited, limits, envelope.rate.clone()).await
        }
        _ => {
            let max_bytes = limits.max_json_response_size;
            refused_message(response, awaited, &envelope, max_bytes).await
        }
    }
}

/// Opens the stream of unrequested messages, or continues a stream that broke off after an event.
///
/// # Errors
/// When there is none.
pub(super) async fn get(
    client: &Client,
    last_event_id: Option<&str>,
    envelope: Envelope<'_>,
    max_bytes: usize,
) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
    let request = client
        .get(envelope.url.clone())
        .header(ACCEPT, format!("{EVENT_STREAM}, {JSON}"));
    let mut request = envelope.complete(request);
    if let Some(id) = last_event_id {
        request = request.header(LAST_EVENT_ID, id);
    }
    let response = request.send().await.map_err(HttpError::Client)?;
    let status = response.status();
    let is_stream = media_type(response.headers()) == EVENT_STREAM;
    match status.is_success() {
        true if is_stream => Ok(events(response, max_bytes, envelope.rate.clone())),
        false if status != StatusCode::METHOD_NOT_ALLOWED => {
            Err(failed(refused(response, &envelope.secrets()).await))
        }
        _ => Err(HttpError::ServerDoesNotSupportSse),
    }
}

async fn answered(
    response: Response,
    awaited: Option<RequestId>,
    limits: StreamableHttpResponseLimits,
    rate: ReadRate,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let session = response.headers().get(SESSION_ID);
    let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
    match &*media_type(response.headers()) {
        EVENT_STREAM => {
            let events = events(response, limits.max_sse_event_size, rate);
            Ok(StreamableHttpPostResponse::Sse(events, session))
        }
        // Some servers do not name the media type.
        JSON | "" => {
            let body = whole(response, limits.max_json_response_size).await?;
            match (message::read(&body), awaited) {
                (Ok(message), _) => Ok(StreamableHttpPostResponse::Json(message, session)),
                // No request waits for it.
                (Err(_), None) => Ok(StreamableHttpPostResponse::Accepted),
                (Err(problem), Some(id)) => {
                    let error = message::error(problem, id);
                    Ok(StreamableHttpPostResponse::Json(error, session))
                }
            }
        }
        _ if awaited.is_none() => Ok(StreamableHttpPostResponse::Accepted),
        other => Err(HttpError::UnexpectedContentType(Some(other.to_owned()))),
    }
}

/// An answer with another status than 2xx, whose body may be the error of the protocol.
async fn refused_message(
    response: Response,
    awaited: Option<RequestId>,
    envelope: &Envelope<'_>,
    max_bytes: usize,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let status = response.status();
    let may_hold_error = media_type(response.headers()) == JSON
        && !status.is_redirection()
        && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let (Some(id), true) = (awaited, may_hold_error) else {
        return Err(failed(refused(response, &envelope.secrets()).await));
    };
    let body = whole(response, max_bytes).await?;
    match message::read(&body) {
        // It is the answer to this request, whatever id it names.
        Ok(JsonRpcMessage::Error(mut error)) => {
            error.id = Some(id);
            let error = ServerMessage::Error(error);
            Ok(StreamableHttpPostResponse::Json(error, None))
        }
        _ => {
            let said = body.get(..MOST_BYTES).unwrap_or(&body);
            let said = text_of(said, true).unwrap_or_default();
            Err(failed(status_failure(status, &said, &envelope.secrets())))
        }
    }
}

/// What an answer with another status than the protocol has says.
pub(super) async fn refused(response: Response, secrets: &Secrets) -> RequestFailure {
    let status = response.status();
    if let Some(target) = response.headers().get(LOCATION)
        && status.is_redirection()
    {
        let target = String::from_utf8_lossy(target.as_bytes());
        return status_failure(status, &format!("it redirects to {target}"), secrets);
    }
    let media_type = media_type(response.headers());
    let is_json = media_type == JSON || media_type.ends_with("+json");
    let said = match is_json || media_type == "text/plain" {
        true => start_of(response.bytes_stream()).await,
        false => Vec::new(),
    };
    let said = text_of(&said, is_json).unwrap_or_default();
    status_failure(status, &said, secrets)
}

fn status_failure(status: StatusCode, said: &str, secrets: &Secrets) -> RequestFailure {
    RequestFailure::Status {
        code: status.as_u16(),
        said: secrets.hide_text(said),
    }
}

fn failed(failure: RequestFailure) -> HttpError {
    HttpError::Io(std::io::Error::other(failure))
}

async fn whole(mut response: Response, max_size: usize) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(HttpError::Client)? {
        if chunk.len() > max_size - body.len() {
            return Err(HttpError::ResponseBodyTooLarge { max_size });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The events of an answer. The answer to a request that cannot be read is an error of that request.
fn events(
    response: Response,
    max_bytes: usize,
    rate: ReadRate,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let decoder = SseDecoder::new(max_bytes);
    let state = Some((response, decoder, rate));
    let events = stream::unfold(state, |state| async move {
        let (mut response, mut decoder, rate) = state?;
        loop {
            rate.ready().await;
            let event = match decoder.next_event().transpose() {
                Ok(event) => event,
                Err(error) => return Some((Err(SseError::Body(Box::new(error))), None)),
            };
            let resumption = decoder.take_resumption();
            if event.is_some() || resumption.is_some() {
                rate.take(MESSAGE_BYTES);
                let event = sse(event, resumption.unwrap_or_default());
                return Some((Ok(event), Some((response, decoder, rate))));
            }
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    rate.take(chunk.len());
                    decoder.push(chunk);
                }
                Ok(None) => {
                    let last = decoder.finish()?.ok();
                    return Some((Ok(sse(last, Resumption::default())), None));
                }
                Err(error) => return Some((Err(SseError::Body(Box::new(error))), None)),
            }
        }
    });
    events.boxed()
}

fn sse(event: Option<SseEvent>, resumption: Resumption) -> Sse {
    let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
    let (name, data) = match event {
        Some(event) => (event.event, message::event_text(&event.data)),
        None => (None, None),
    };
    Sse {
        event: name.map(String::from),
        data,
        id: resumption.id.map(text),
        retry: resumption.retry,
    }
}

/// The media type without its parameters, in lower case.
fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    let essence = value.unwrap_or_default().split(';').next();
    essence.unwrap_or_default().trim().to_ascii_lowercase()
}
