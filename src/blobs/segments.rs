//! Texts in parts. Some parts are bytes that are written as base64 when the text is read.
//!
//! An answer or a model call with large images is held as such a text: the base64 is never in memory as a whole, and an
//! image that is stored as a file is not in memory at all.

mod read;

use std::sync::Arc;

use bytes::Bytes;

pub use self::read::SegmentedBody;
use crate::Blob;

/// A text in parts; clones share the bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentedText {
    parts: Vec<TextPart>,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    /// Text as it stands.
    Text(Bytes),
    /// Bytes whose base64 is the text, between two other texts.
    Content(Box<EmbeddedContent>),
}

/// Bytes whose base64 stands between two texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedContent {
    /// The text before the base64.
    pub before: Bytes,
    /// The bytes.
    pub content: BinaryContent,
    /// The text after the base64.
    pub after: Bytes,
    /// The text that replaces all of it once the file of the content was deleted.
    pub lost: Bytes,
}

/// A text that is being written: short pieces are joined, long ones are shared.
#[derive(Debug, Default)]
pub struct SegmentedWriter {
    done: SegmentedText,
    /// The part that is being written.
    current: Vec<u8>,
}

/// Threshold of bytes from which on texts are shared instead of copied.
const SHARE_FROM_BYTES: usize = 2048;

/// Bytes in memory or in a storage of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BinaryContent {
    /// In memory.
    Memory(Bytes),
    /// In a file.
    Stored(Blob),
}

impl SegmentedText {
    /// Appends text.
    pub fn push_text(&mut self, text: impl Into<Bytes>) {
        let text = text.into();
        if !text.is_empty() {
            self.parts.push(TextPart::Text(text));
        }
    }

    /// Appends the base64 of a content; nothing if its file was deleted.
    pub fn push_base64(&mut self, content: BinaryContent) {
        self.push_embedded(EmbeddedContent {
            before: Bytes::new(),
            content,
            after: Bytes::new(),
            lost: Bytes::new(),
        });
    }

    /// Appends the base64 of a content between two texts.
    pub fn push_embedded(&mut self, embedded: EmbeddedContent) {
        self.parts.push(TextPart::Content(Box::new(embedded)));
    }

    /// Appends another text.
    pub fn append(&mut self, other: Self) {
        self.parts.extend(other.parts);
    }

    /// Its parts, in order.
    pub fn parts(&self) -> &[TextPart] {
        &self.parts
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The length of the text in bytes.
    pub fn length(&self) -> u64 {
        self.parts.iter().map(TextPart::length).sum()
    }

    /// The text without the parts that are written as base64.
    pub fn texts(&self) -> impl Iterator<Item = &Bytes> {
        let texts = self.parts.iter().map(|part| match part {
            TextPart::Text(text) => [Some(text), None],
            TextPart::Content(embedded) => [Some(&embedded.before), Some(&embedded.after)],
        });
        texts.flatten().flatten()
    }

    /// The text, if it is in memory in one piece.
    pub fn in_one_piece(&self) -> Option<Bytes> {
        match &*self.parts {
            [] => Some(Bytes::new()),
            [TextPart::Text(text)] => Some(text.clone()),
            _ => None,
        }
    }
}

impl SegmentedWriter {
    /// Continues a text.
    pub fn resume(done: SegmentedText) -> Self {
        Self {
            done,
            current: Vec::new(),
        }
    }

    /// Appends a short text.
    pub fn text(&mut self, text: &str) {
        self.current.extend_from_slice(text.as_bytes());
    }

    /// Appends a text that others hold, too.
    pub fn shared(&mut self, text: &Arc<str>) {
        if text.len() < SHARE_FROM_BYTES {
            self.text(text);
        } else {
            self.part(TextPart::Text(Bytes::from_owner(SharedText(text.clone()))));
        }
    }

    /// Appends another text.
    pub fn push_segmented(&mut self, text: SegmentedText) {
        text.parts.into_iter().for_each(|part| self.part(part));
    }

    /// The text.
    pub fn finish(mut self) -> SegmentedText {
        self.close();
        self.done
    }

    fn part(&mut self, part: TextPart) {
        match part {
            TextPart::Text(text) if text.len() < SHARE_FROM_BYTES => {
                self.current.extend_from_slice(&text);
            }
            part => {
                self.close();
                self.done.parts.push(part);
            }
        }
    }

    fn close(&mut self) {
        self.done.push_text(std::mem::take(&mut self.current));
    }
}

struct SharedText(Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl TextPart {
    /// The length of the text in bytes.
    fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Content(embedded) => embedded.length(),
        }
    }
}

impl EmbeddedContent {
    /// The length of the text in bytes.
    fn length(&self) -> u64 {
        let around = self.before.len() + self.after.len();
        let base64 = self.content.length().div_ceil(3).saturating_mul(4);
        base64.saturating_add(around as u64)
    }
}

impl BinaryContent {
    /// The number of bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Stored(blob) => blob.length(),
        }
    }
}

impl<T: Into<Bytes>> From<T> for SegmentedText {
    fn from(text: T) -> Self {
        let mut segmented = Self::default();
        segmented.push_text(text);
        segmented
    }
}
