//! The words of a refusal: what the body of an answer with a 4xx status says, for the model.

use std::time::Duration;

use ::http::header::CONTENT_ENCODING;
use ::http::{Response, StatusCode};
use futures_util::StreamExt;
use serde_json::Value;

use super::response::media_type;
use crate::net::ReceivedBody;

/// Most bytes of a body that the model is given.
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

/// The text of a body that may have been cut.
fn text_of(bytes: &[u8], is_json: bool) -> Option<String> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // The last character was cut.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let sentence = is_json.then(|| sentence(text)).flatten();
    let text = sentence.unwrap_or_else(|| text.trim().to_owned());
    (!text.is_empty()).then_some(text)
}

/// The sentence of an error in one of the forms that frameworks send.
fn sentence(json: &str) -> Option<String> {
    let body: Value = serde_json::from_str(json).ok()?;
    let forms = ["/detail", "/error/message", "/message", "/error"];
    let mut found = forms
        .iter()
        .filter_map(|form| body.pointer(form)?.as_str())
        .map(str::trim);
    let found = found.find(|text| !text.is_empty());
    found.or_else(|| body.as_str()).map(str::to_owned)
}

fn log(status: StatusCode, words: &str) {
    tracing::debug!(
        status = status.as_u16(),
        words,
        "a tool endpoint refused a call"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_of_an_error_is_found_and_other_json_stays_as_it_is() {
        for (body, expected) in [
            (r#"{"detail":"no such customer"}"#, "no such customer"),
            (r#"{"error":{"message":"closed","code":4}}"#, "closed"),
            (r#"{"message":" late "}"#, "late"),
            (r#"{"error":"gone"}"#, "gone"),
            (r#""plain""#, "plain"),
            (
                r#"{"detail":[{"loc":["city"],"msg":"field required"}]}"#,
                r#"{"detail":[{"loc":["city"],"msg":"field required"}]}"#,
            ),
            (r#"{"detail":"cut of"#, r#"{"detail":"cut of"#),
        ] {
            assert_eq!(text_of(body.as_bytes(), true).unwrap(), expected);
        }
        let plain = r#"{"detail":"a"}"#;
        assert_eq!(text_of(plain.as_bytes(), false).unwrap(), plain);
    }

    #[test]
    fn a_cut_character_is_left_out_and_what_is_no_text_says_nothing() {
        let cut = "é".as_bytes();
        assert_eq!(text_of(&[b"a", &cut[..1]].concat(), false).unwrap(), "a");
        for bytes in [&b"\xff\xfe"[..], b"", b"  \n"] {
            assert_eq!(text_of(bytes, false), None);
        }
    }
}
