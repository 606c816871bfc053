//! The words of a refusal: what the body of an answer with a 4xx status says, for the model.

use std::time::Duration;

use ::http::header::CONTENT_ENCODING;
use ::http::{Response, StatusCode};
use futures_util::StreamExt;

use super::response::media_type;
use crate::net::ReceivedBody;
use crate::tools::error_body::text_of;

/// Most bytes of a body that the model is given; the rest is left out.
/// Tried by `dispatch::the_model_is_told_why_a_webhook_refused_a_call`.
const MOST_BYTES: usize = 1024;
/// Longest wait for the body. The status is known, and the model is told it in any case.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

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
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    let read = async {
        while bytes.len() < MOST_BYTES
            && let Some(Ok(chunk)) = body.next().await
        {
            let room = MOST_BYTES - bytes.len();
            bytes.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        }
    };
    // What has come until then is good enough.
    let _late = tokio::time::timeout(LONGEST_WAIT, read).await;
    let words = text_of(&bytes, is_json)?;
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
