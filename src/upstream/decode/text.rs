//! JSON strings with lone surrogate escapes, which some tokenisers produce.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::openai::raw::RawObject;

/// The text of a JSON string; `None` for any other value.
///
/// A lone surrogate escape becomes U+FFFD instead of an error.
pub(super) fn lossy_string(value: &RawValue) -> Option<String> {
    let json = value.get();
    let inside = json.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(inside.to_owned());
    }
    match serde_json::from_str(json) {
        Ok(text) => Some(text),
        Err(_) => serde_json::from_str(&replace_lone_surrogates(json)).ok(),
    }
}

/// The text of a string, or of a list of strings and text parts.
pub(super) fn flat_text(value: &RawValue) -> String {
    if let Some(text) = lossy_string(value) {
        return text;
    }
    serde_json::from_str::<Vec<&RawValue>>(value.get())
        .unwrap_or_default()
        .into_iter()
        .filter_map(|part| {
            lossy_string(part).or_else(|| {
                RawObject::parse(part.get())
                    .ok()?
                    .get_some("text")
                    .and_then(lossy_string)
            })
        })
        .collect()
}

/// The JSON text without line ends. In JSON they occur only between tokens.
///
/// Raw values of a chunk are written into `data:` lines unchanged, so that this is called before a chunk is parsed.
pub(in crate::upstream) fn one_line(json: &str) -> Cow<'_, str> {
    let json = json.trim_ascii();
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_some() {
        Cow::Owned(json.replace(['\n', '\r'], " "))
    } else {
        Cow::Borrowed(json)
    }
}

/// Whether an `error` value means that there is no error, as some servers send it.
pub(super) fn is_falsy(value: &RawValue) -> bool {
    matches!(value.get(), "null" | "false" | "\"\"" | "0" | "{}" | "[]")
}

/// The JSON text with every lone surrogate escape replaced by `\\ufffd`.
pub(super) fn replace_lone_surrogates(json: &str) -> String {
    let mut replaced = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((before, escape)) =
        memchr::memchr(b'\\', rest.as_bytes()).and_then(|place| rest.split_at_checked(place))
    {
        replaced.push_str(before);
        let (taken, replacement) = match unit(escape) {
            Some(0xd800..=0xdbff) => match escape.get(6..).and_then(unit) {
                Some(0xdc00..=0xdfff) => (12, None),
                _ => (6, Some("\\ufffd")),
            },
            Some(0xdc00..=0xdfff) => (6, Some("\\ufffd")),
            Some(_) => (6, None),
            None => (second_char_end(escape), None),
        };
        let (escape, after) = escape.split_at_checked(taken).unwrap_or((escape, ""));
        replaced.push_str(replacement.unwrap_or(escape));
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

/// The value of a `\uXXXX` escape at the start of the text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

/// The end of the character after a backslash.
fn second_char_end(escape: &str) -> usize {
    1 + escape.chars().nth(1).map_or(0, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        for (json, text) in [
            (r#""a\ud83db""#, "a\u{fffd}b"),
            (r#""\ude00""#, "\u{fffd}"),
            (r#""\ud83d\ude00""#, "\u{1f600}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\\ud83d\n""#, "\\ud83d\n"),
            (r#""\ud83d\\ude00""#, "\u{fffd}\\ude00"),
            (r#""ä\ud83d\u00e4""#, "ä\u{fffd}ä"),
        ] {
            let value = serde_json::from_str::<&RawValue>(json).unwrap();
            assert_eq!(lossy_string(value).as_deref(), Some(text), "{json}");
        }
        assert_eq!(lossy_string(serde_json::from_str("12").unwrap()), None);
        assert_eq!(replace_lone_surrogates("\\"), "\\");
        assert_eq!(replace_lone_surrogates("\\ä\\u12"), "\\ä\\u12");
    }
}
