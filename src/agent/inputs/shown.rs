//! The stored files whose contents the model is shown.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::turn_bytes::TurnBytes;
use crate::ids::FileId;
use crate::openai::raw::quoted;
use crate::session::files::StoredFile;

/// Largest file that is sent to a model inline, in bytes.
const MAX_INLINE_BYTES: u64 = 32 * 1024 * 1024;

/// The files that a prompt has so far, from its end.
#[derive(Debug)]
pub(super) struct ShownFiles {
    room: TurnBytes,
    /// The parts that stand for earlier mentions of the files.
    earlier: HashMap<FileId, String>,
}

impl ShownFiles {
    /// A prompt that may have `most` bytes of files.
    pub(super) fn new(most: u64) -> Self {
        Self {
            room: TurnBytes::new(most),
            earlier: HashMap::new(),
        }
    }

    /// The part for a file that is mentioned later too.
    pub(super) fn earlier_part(&self, id: &FileId) -> Option<&str> {
        self.earlier.get(id).map(String::as_str)
    }

    /// Sets the part for earlier mentions of a file.
    pub(super) fn insert(&mut self, id: FileId, part: String) {
        self.earlier.insert(id, part);
    }

    /// Takes room for the content of a file. Says whether there is enough of it.
    pub(super) fn admits(&mut self, stored: &StoredFile) -> bool {
        stored.bytes <= MAX_INLINE_BYTES && self.room.take_content(stored.bytes)
    }
}

/// The content part with the content of a file.
pub(super) fn content_part(stored: &StoredFile, content: &[u8]) -> String {
    let head = quoted(&format!("data:{};base64,", stored.mime_type));
    let head = head.strip_suffix('"').unwrap_or(&head);
    let name = quoted(&stored.name);
    let mut part =
        String::with_capacity(content.len().div_ceil(3) * 4 + head.len() + name.len() + 64);
    part.push_str(r#"{"file":{"file_data":"#);
    part.push_str(head);
    STANDARD.encode_string(content, &mut part);
    part.push_str(r#"","filename":"#);
    part.push_str(&name);
    part.push_str(r#"},"type":"file"}"#);
    part
}
