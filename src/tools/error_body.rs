//! What the body of an error says, for a model or an operator.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use serde_json::Value;
use tokio::time::timeout;

/// Most bytes of the body of an error, of the error text of an MCP server and of its report of progress that are passed
/// on; the rest is left out.
/// Tried by `dispatch::the_model_is_told_why_a_webhook_refused_a_call`.
pub(super) const MOST_BYTES: usize = 1024;
/// Longest wait for the body of an error. The status is known, and is told in any case.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The start of a body, as much of it as comes in time.
pub(super) async fn start_of<E>(chunks: impl Stream<Item = Result<Bytes, E>>) -> Vec<u8> {
    let mut chunks = std::pin::pin!(chunks);
    let mut start = Vec::new();
    let read = async {
        while start.len() < MOST_BYTES
            && let Some(Ok(chunk)) = chunks.next().await
        {
            let room = MOST_BYTES - start.len();
            start.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        }
    };
    // What has come until then is good enough.
    let _late = timeout(LONGEST_WAIT, read).await;
    start
}

/// The text of a body that may have been cut; `None` if it is no text, or is empty.
pub(super) fn text_of(bytes: &[u8], is_json: bool) -> Option<String> {
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
    let says_nothing = matches!(&*text, "" | "{}" | "[]" | "null" | "\"\"");
    (!says_nothing).then_some(text)
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
        assert_eq!(text_of(b"{}", true), None);
        for bytes in [&b"\xff\xfe"[..], b"", b"  \n"] {
            assert_eq!(text_of(bytes, false), None);
        }
    }
}
