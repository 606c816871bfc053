//! What the body of an error says, for a model or an operator.

use serde_json::Value;

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
