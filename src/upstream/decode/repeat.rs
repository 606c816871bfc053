//! A fast path for chunks that differ from the previous one only in their text, as most chunks of a stream do. Their bytes
//! are compared instead of parsed.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// Largest chunk that is remembered, in bytes without its text. A larger one is parsed each time.
const MAX_PATTERN_BYTES: usize = 8 * 1024;
/// The start of the random padding at the end of some servers' chunks.
const PADDING: &str = ",\"obfuscation\":\"";

/// The kind of a chunk's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    /// Visible text.
    Text,
    /// Reasoning, in this field.
    Reasoning(&'static str),
}

/// The previous chunk without its only text.
#[derive(Debug, Default)]
pub(super) struct PreviousChunk {
    kind: Option<TextKind>,
    /// The chunk up to the text, with the opening quote.
    before: String,
    /// The chunk from the closing quote, without padding.
    after: String,
    padded: bool,
}

impl PreviousChunk {
    /// Remembers a chunk. `text` must be a slice of `data`.
    pub(super) fn learn(&mut self, data: &str, kind: TextKind, text: &RawValue) {
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
            self.kind = Some(kind);
            self.padded = padded;
            before.clone_into(&mut self.before);
            after.clone_into(&mut self.after);
        }
    }

    pub(super) fn forget(&mut self) {
        self.kind = None;
    }

    /// The text of a chunk that differs from the remembered one only in its text; otherwise `None`.
    ///
    /// The chunk is the remembered one if it starts with `before`, ends with `after`, and has between them only the content
    /// of one JSON string.
    pub(super) fn text_of<'a>(&self, data: &'a str) -> Option<(TextKind, Cow<'a, str>)> {
        let kind = self.kind?;
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
            return Some((kind, Cow::Borrowed(inside)));
        }
        let start = self.before.len();
        let quoted = body.get(start - 1..=start + inside.len())?;
        let text: String = serde_json::from_str(quoted).ok()?;
        Some((kind, Cow::Owned(text)))
    }
}

/// The chunk without padding, and whether it had any.
fn split_padding(data: &str) -> (&str, bool) {
    data.strip_suffix("\"}")
        .and_then(|body| {
            body.trim_end_matches(|padding: char| padding.is_ascii_alphanumeric())
                .strip_suffix(PADDING)
        })
        .map_or((data, false), |body| (body, true))
}

/// The offset of `part` in `whole`, if it is a slice of it.
fn offset(whole: &str, part: &str) -> Option<usize> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    (whole.get(start..)?.get(..part.len())? == part).then_some(start)
}
