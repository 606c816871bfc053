//! JSON strings with lone surrogate escapes, which some tokenisers produce.

use std::borrow::Cow;

use serde_json::value::RawValue;

use protocol::openai::raw::RawObject;
use protocol::openai::surrogates::{replace_lone_surrogates, unit};

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

/// A text that comes in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TextOf {
    /// The visible text.
    Content,
    /// Reasoning, in this field.
    Reasoning(&'static str),
    /// The arguments of the call with this index.
    Arguments(Option<u32>),
    /// Another field of the message.
    Field(Box<str>),
}

/// First halves of characters whose second half comes with the next piece of the same text: servers that cut texts into
/// UTF-16 units cut between surrogates.
#[derive(Debug, Default)]
pub(super) struct Halves(Vec<(TextOf, String)>);

impl Halves {
    /// Whether no half waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of a JSON string with the half that waits for it, without a half at its end; `None` for any other value.
    pub(super) fn read(&mut self, of: TextOf, value: &RawValue) -> Option<String> {
        let json = value.get();
        if self.0.is_empty() && !ends_with_half(json) {
            return lossy_string(value);
        }
        let inside = json.strip_prefix('"')?.strip_suffix('"')?;
        let known = self.0.iter().position(|(other, _)| *other == of);
        let mut text = known.map_or_else(String::new, |known| self.0.swap_remove(known).1);
        text.push_str(inside);
        let whole = match ends_with_half(&text) {
            true => text.len().saturating_sub(HALF_BYTES),
            false => text.len(),
        };
        let half = text.split_off(whole);
        if !half.is_empty() {
            self.0.push((of, half));
        }
        let json = format!("\"{text}\"");
        serde_json::from_str(&json)
            .or_else(|_| serde_json::from_str(&replace_lone_surrogates(&json)))
            .ok()
    }

    /// As [`Self::read`] for another field, but only if a half character is held or the text ends with one.
    pub(super) fn read_cut(&mut self, key: &str, value: &RawValue) -> Option<String> {
        let is_cut = !self.0.is_empty() || ends_with_half(value.get());
        is_cut
            .then(|| self.read(TextOf::Field(key.into()), value))
            .flatten()
    }

    /// Takes the texts whose half is alone at their end.
    pub(super) fn take(&mut self) -> impl Iterator<Item = TextOf> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(of, _)| of)
    }
}

/// Size of an escape such as `\ud83d`, in bytes.
const HALF_BYTES: usize = 6;

/// Whether the content of a JSON string, with or without quotes, ends with the escape of a high surrogate.
fn ends_with_half(json: &str) -> bool {
    let inside = json.strip_suffix('"').unwrap_or(json);
    let Some((before, escape)) = inside
        .len()
        .checked_sub(HALF_BYTES)
        .and_then(|place| inside.split_at_checked(place))
    else {
        return false;
    };
    // A backslash before it may be an escaped one.
    let backslashes = before
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'\\')
        .count();
    matches!(unit(escape), Some(0xd800..=0xdbff)) && backslashes % 2 == 0
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
pub(crate) fn one_line(json: &str) -> Cow<'_, str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_waits_for_the_next_piece_of_its_text() {
        let mut halves = Halves::default();
        let mut read = |of: &TextOf, json: &str| {
            let value = serde_json::from_str::<&RawValue>(json).unwrap();
            halves.read(of.clone(), value).unwrap()
        };
        let (content, arguments) = (TextOf::Content, TextOf::Arguments(Some(0)));
        assert_eq!(read(&content, r#""a\ud83d""#), "a");
        assert_eq!(read(&arguments, r#""{\ud83d""#), "{");
        assert_eq!(read(&content, r#""""#), "");
        assert_eq!(read(&content, r#""\ude00 b""#), "\u{1f600} b");
        assert_eq!(read(&arguments, r#""}""#), "\u{fffd}}");
        assert_eq!(read(&content, r#""\\ud83d""#), "\\ud83d");
        assert_eq!(read(&content, r#""\\\ud83d""#), "\\");
        assert_eq!(halves.take().collect::<Vec<_>>(), [content]);
        assert!(halves.is_empty());
    }

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
