//! Messages of servers, read as loosely as they can be: bytes that are no UTF-8, and halves of characters, are replaced.

use std::borrow::Cow;

use rmcp::RoleClient;
use rmcp::model::{ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::RxJsonRpcMessage;
use serde::de::IgnoredAny;

use super::line::id_in;
use protocol::openai::surrogates::replace_lone_surrogates;

/// A message of a server.
pub(super) type ServerMessage = RxJsonRpcMessage<RoleClient>;

/// Reads a message; else says why it is none.
pub(super) fn read(bytes: &[u8]) -> Result<ServerMessage, &'static str> {
    if let Ok(message) = serde_json::from_slice(bytes) {
        return Ok(message);
    }
    let text = mended(bytes);
    serde_json::from_str(&text).map_err(|_| match is_json(&text) {
        true => "the answer is no message of the protocol",
        false => "the answer is no JSON",
    })
}

/// Reads the data of an event as JSON text that the SDK can read; `None` if it is none, and belongs to no request.
pub(super) fn event_text(data: &[u8]) -> Option<String> {
    let text = mended(data);
    if text.trim().is_empty() || is_json(&text) {
        return Some(text.into_owned());
    }
    let error = unreadable(data, "the answer is no JSON")?;
    serde_json::to_string(&error).ok()
}

/// The error that ends the request whose answer cannot be read, if the answer shows which one that is.
pub(super) fn unreadable(bytes: &[u8], problem: &str) -> Option<ServerMessage> {
    let id = serde_json::from_str(&id_in(bytes)?).ok()?;
    Some(error(problem, id))
}

/// The error that ends a request.
pub(super) fn error(text: &str, id: RequestId) -> ServerMessage {
    JsonRpcMessage::error(ErrorData::internal_error(text.to_owned(), None), Some(id))
}

fn mended(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    let has_surrogates = memchr::memmem::find_iter(text.as_bytes(), "\\u")
        .any(|at| matches!(text.as_bytes().get(at + 2), Some(b'd' | b'D')));
    match has_surrogates {
        true => Cow::Owned(replace_lone_surrogates(&text)),
        false => text,
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}
