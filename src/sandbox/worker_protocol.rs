//! The frames between the server and the worker program.
//!
//! A frame is a length (u32, little-endian, of what follows), a kind (one byte) and a payload. User code runs in the
//! same process as the sender, so everything received is hostile: lengths are capped before data is held, types are
//! strict, texts are truncated and cleaned, and images are checked without decoding them ([`picture`]). The caller
//! checks whether a frame belongs to the running call. Does no I/O.

mod picture;
mod split;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

pub(super) use self::split::Splitter;
use super::output::clean;
use super::settings::InterpreterLimits;
use super::{CellError, Image, Value};

/// Longest kind and payload, in bytes: the largest allowed image and its header. After a longer frame the interpreter
/// is ended.
/// Tried by `worker_protocol::a_forged_length_ends_the_connection`.
pub(super) const MAX_FRAME_BYTES: usize = 8 * 1024 * 1024 + 64 * 1024;

/// Number of the protocol version that the worker must report.
const PROTOCOL: u32 = 1;
/// Longest notice, or name of a class, version or module, in bytes; a longer one is cut.
/// Tried by `worker_protocol::texts_and_images_are_bounded_by_the_limits`.
const MAX_NOTICE: usize = 1024;
/// Most modules that are reported as not preloaded; others are left out.
/// Tried by `worker_protocol::texts_and_images_are_bounded_by_the_limits`.
const MAX_MODULES: usize = 64;

/// A message of an interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WorkerMessage {
    /// The interpreter is ready.
    Ready {
        /// The version of Python.
        python: String,
        /// Modules that could not be preloaded.
        preload_failed: Vec<String>,
    },
    /// A figure or displayed image.
    Image {
        /// The call.
        id: u32,
        /// Part of an animation.
        frame: bool,
        image: Image,
    },
    /// An image that is rejected.
    BadImage {
        /// The call.
        id: u32,
        /// What is wrong with it; completes a sentence that begins with "it".
        why: &'static str,
    },
    /// A displayed object as text.
    Text {
        /// The call.
        id: u32,
        text: String,
    },
    /// The value of the last expression.
    Value {
        /// The call.
        id: u32,
        value: Value,
    },
    /// An exception.
    Error {
        /// The call.
        id: u32,
        /// The exception.
        error: CellError,
    },
    /// A notice for the model.
    Notice {
        /// The call.
        id: u32,
        /// The sentence.
        text: String,
    },
    /// The call has ended.
    Done {
        /// The call.
        id: u32,
    },
}

/// A frame that the worker program never sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    /// Longer than any frame; the stream cannot be read further.
    #[error("a frame is too long")]
    TooLong,
    /// A kind that does not exist.
    #[error("a frame has an unknown kind")]
    UnknownKind,
    /// A payload that does not match its kind.
    #[error("a frame is malformed")]
    Malformed,
}

/// Decodes the byte stream of one connection. After each [`WorkerDecoder::push`], call [`WorkerDecoder::next`] until it
/// returns `None`. Holds one frame and the piece pushed last.
#[derive(Debug)]
pub(super) struct WorkerDecoder {
    frames: Splitter,
    max_text: usize,
    max_value: usize,
    max_image: usize,
}

#[derive(Deserialize)]
struct ReadyFields {
    protocol: u32,
    python: String,
    #[serde(default)]
    preload_failed: Vec<String>,
}

#[derive(Deserialize)]
struct ImageFields {
    id: u32,
    mime: String,
    kind: ImageKind,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum ImageKind {
    Image,
    Frame,
}

#[derive(Deserialize)]
struct TextFields {
    id: u32,
    text: String,
}

#[derive(Deserialize)]
struct ValueFields {
    id: u32,
    text: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct ErrorFields {
    id: u32,
    name: String,
    message: String,
    traceback: String,
}

#[derive(Deserialize)]
struct DoneFields {
    id: u32,
}

impl WorkerDecoder {
    /// Truncates texts and rejects images by these limits.
    pub(super) fn new(limits: &InterpreterLimits) -> Self {
        Self {
            frames: Splitter::default(),
            max_text: limits.output_kept,
            max_value: limits.value,
            max_image: limits.image_bytes,
        }
    }

    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.frames.push(bytes);
    }

    /// The next complete frame.
    pub(super) fn next(&mut self) -> Option<Result<WorkerMessage, Violation>> {
        let split = self.frames.next()?;
        Some(split.and_then(|(kind, payload)| self.read(kind, &payload)))
    }

    fn read(&self, kind: u8, payload: &[u8]) -> Result<WorkerMessage, Violation> {
        match kind {
            b'R' => ready(payload),
            b'I' => self.image(payload),
            b'T' => fields(payload).map(|TextFields { id, text }| WorkerMessage::Text {
                id,
                text: clean(&text, self.max_text),
            }),
            b'V' => fields(payload).map(|ValueFields { id, text, kind }| WorkerMessage::Value {
                id,
                value: Value {
                    text: clean(&text, self.max_value),
                    kind: clean(&kind, MAX_NOTICE),
                },
            }),
            b'X' => fields(payload).map(|fields: ErrorFields| WorkerMessage::Error {
                id: fields.id,
                error: CellError {
                    name: clean(&fields.name, MAX_NOTICE),
                    message: clean(&fields.message, self.max_value),
                    traceback: clean(&fields.traceback, self.max_value),
                },
            }),
            b'N' => fields(payload).map(|TextFields { id, text }| WorkerMessage::Notice {
                id,
                text: clean(&text, MAX_NOTICE),
            }),
            b'D' => fields(payload).map(|DoneFields { id }| WorkerMessage::Done { id }),
            _ => Err(Violation::UnknownKind),
        }
    }

    fn image(&self, payload: &[u8]) -> Result<WorkerMessage, Violation> {
        let (length, rest) = payload.split_first_chunk().ok_or(Violation::Malformed)?;
        let (head, bytes) = rest
            .split_at_checked(u16::from_le_bytes(*length).into())
            .ok_or(Violation::Malformed)?;
        let ImageFields { id, mime, kind } = fields(head)?;
        let checked = if bytes.len() > self.max_image {
            Err("is too large")
        } else {
            picture::check(bytes, &mime)
        };
        Ok(match checked {
            Ok(mime_type) => WorkerMessage::Image {
                id,
                frame: kind == ImageKind::Frame,
                image: Image {
                    mime_type,
                    // Copied, because a slice would keep the whole buffer alive.
                    bytes: Bytes::copy_from_slice(bytes),
                },
            },
            Err(why) => WorkerMessage::BadImage { id, why },
        })
    }
}

/// The frame that runs a cell.
pub(super) fn exec(id: u32, code: &str, limits: &InterpreterLimits) -> Vec<u8> {
    let payload = json!({
        "id": id,
        "code": code,
        "max_value": limits.value,
        "max_images": limits.images,
        "max_image_bytes": limits.image_bytes,
    });
    frame(b'E', &payload)
}

/// The frame that deletes all variables.
pub(super) fn reset(id: u32) -> Vec<u8> {
    frame(b'R', &json!({ "id": id }))
}

/// Encodes a frame for the interpreter. Requests are far smaller than the largest length.
fn frame(kind: u8, payload: &serde_json::Value) -> Vec<u8> {
    let payload = payload.to_string();
    let length = u32::try_from(payload.len() + 1).unwrap_or(u32::MAX);
    let mut frame = length.to_le_bytes().to_vec();
    frame.push(kind);
    frame.extend_from_slice(payload.as_bytes());
    frame
}

fn ready(payload: &[u8]) -> Result<WorkerMessage, Violation> {
    let fields: ReadyFields = fields(payload)?;
    if fields.protocol != PROTOCOL {
        return Err(Violation::Malformed);
    }
    let failed = fields.preload_failed.iter().take(MAX_MODULES);
    Ok(WorkerMessage::Ready {
        python: clean(&fields.python, MAX_NOTICE),
        preload_failed: failed.map(|name| clean(name, MAX_NOTICE)).collect(),
    })
}

fn fields<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Violation> {
    serde_json::from_slice(payload).map_err(|_| Violation::Malformed)
}

#[cfg(test)]
mod tests;
