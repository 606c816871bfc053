//! Chunks that are the one before with another text: most of a stream, told by comparing bytes instead of parsing.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// Larger chunks are not remembered, in bytes.
const MAX_PATTERN_BYTES: usize = 8 * 1024;
/// What stands before the random padding that some servers end a chunk with.
const PADDING: &str = ",\"obfuscation\":\"";

/// What kind of text a chunk says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// Visible text.
    Text,
    /// Reasoning, in this field.
    Reasoning(&'static str),
}

/// A chunk that said one text and nothing else, cut in two at that text.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    said: Option<Said>,
    /// The chunk up to the text, its opening quote included.
    before: String,
    /// The chunk from the closing quote on, padding left out.
    after: String,
    padded: bool,
}

impl Pattern {
    /// Remembers a chunk; `text` is its text as it stands in `data`.
    pub(super) fn learn(&mut self, data: &str, said: Said, text: &RawValue) {
        let (body, padded) = split_padding(data);
        let text = text.get();
        let Some((before, after)) = offset(body, text).and_then(|start| {
            let before = body.get(..=start)?;
            let after = body.get(start + text.len() - 1..)?;
            Some((before, after))
        }) else {
            return;
        };
        if before.len() + after.len() <= MAX_PATTERN_BYTES {
            self.said = Some(said);
            self.padded = padded;
            before.clone_into(&mut self.before);
            after.clone_into(&mut self.after);
        }
    }

    /// Forgets the chunk.
    pub(super) fn forget(&mut self) {
        self.said = None;
    }

    /// The text of a chunk that differs from the remembered one in nothing else; none if it does, or has no text.
    ///
    /// Both sides end and begin within a JSON string, so what lies between is a string's inside as soon as it holds no
    /// bare quote, and everything around it means what it meant before.
    pub(super) fn text_of<'a>(&self, data: &'a str) -> Option<(Said, Cow<'a, str>)> {
        let said = self.said?;
        let (body, padded) = split_padding(data);
        if padded != self.padded {
            return None;
        }
        let inside = body
            .strip_prefix(&*self.before)?
            .strip_suffix(&*self.after)
            .filter(|inside| !inside.is_empty())?;
        if inside
            .bytes()
            .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
        {
            return Some((said, Cow::Borrowed(inside)));
        }
        let start = self.before.len();
        let quoted = body.get(start - 1..=start + inside.len())?;
        let text: String = serde_json::from_str(quoted).ok()?;
        Some((said, Cow::Owned(text)))
    }
}

/// The chunk without the padding at its end, and whether there was any.
fn split_padding(data: &str) -> (&str, bool) {
    data.strip_suffix("\"}")
        .and_then(|body| {
            body.trim_end_matches(|padding: char| padding.is_ascii_alphanumeric())
                .strip_suffix(PADDING)
        })
        .map_or((data, false), |body| (body, true))
}

/// Where `part` lies in `whole`, if it is a part of it.
fn offset(whole: &str, part: &str) -> Option<usize> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    (whole.get(start..)?.get(..part.len())? == part).then_some(start)
}
