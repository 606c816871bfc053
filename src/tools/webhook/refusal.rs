//! The words of a refusal: the text for the model in the body of an answer with a 4xx status.

use ::http::header::CONTENT_ENCODING;
use ::http::{Response, StatusCode};

use super::response::media_type;
use crate::error_body::{start_of, text_of};
use net::ReceivedBody;

/// What a response with a 4xx status says, if its body is JSON or plain text.
pub(super) async fn words(response: Response<ReceivedBody>) -> Option<String> {
    let status = response.status();
    if !status.is_client_error() || response.headers().contains_key(CONTENT_ENCODING) {
        return None;
    }
    let media_type = media_type(response.headers());
    let is_json = media_type == "application/json" || media_type.ends_with("+json");
    if !is_json && media_type != "text/plain" {
        return None;
    }
    let words = text_of(&start_of(response.into_body()).await, is_json)?;
    log(status, &words);
    Some(words)
}

fn log(status: StatusCode, words: &str) {
    tracing::debug!(
        status = status.as_u16(),
        words,
        "a tool endpoint refused a call"
    );
}
