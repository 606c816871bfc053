//! The frames between the server and the relay ([`PROGRAM`]), which runs beside an interpreter that an operator's
//! command isolates.
//!
//! Frames carry what otherwise goes through descriptors: the bytes of the control socket, output, signals, the exit of
//! the interpreter, and the working files. Code runs in the same isolation as the relay, so everything received is
//! hostile. Does no I/O.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::json;

use super::OutputStream;
use super::output::clean;
use super::worker_protocol::{Splitter, Violation};

/// The relay program, in Python.
pub(super) const PROGRAM: &str = include_str!("relay.py");
/// Number of the protocol version that the relay must report.
const PROTOCOL: u32 = 1;
/// Most bytes of a file in one frame; a longer content comes in several.
/// Tried by `relay_protocol::what_is_told_to_the_interpreter_goes_in_pieces`.
pub(super) const MAX_CONTENT: usize = 1024 * 1024;
/// Longest name of the working directory, in bytes; a longer one is cut.
const MAX_DIRECTORY: usize = 256;

/// A message of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RelayMessage {
    /// The relay has started; holds the working directory.
    Hello(String),
    /// Bytes of the control socket.
    Control(BytesMut),
    /// The control socket was closed.
    Closed,
    Output(OutputStream, BytesMut),
    /// The interpreter has exited.
    Ended {
        /// The exit status.
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// The reply to a file request.
    File(FileReply),
}

/// The reply to a file request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileReply {
    /// Id of the request.
    pub(super) id: u32,
    /// The error, if the request failed.
    pub(super) problem: Option<FileErrorKind>,
    /// The file's size, as reported by the relay.
    pub(super) size: u64,
    /// The bytes the file occupies, as reported by the relay.
    pub(super) stored: u64,
    /// The listing or the content.
    pub(super) body: Bytes,
}

/// Why a file request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileErrorKind {
    /// There is no such file.
    Missing,
    /// It is a symbolic link.
    Link,
    /// Access is denied.
    Access,
    /// It is neither a file nor a directory.
    Special,
    Directory,
    /// Its name is too long.
    Long,
    /// It exists already.
    Exists,
    /// No space is left.
    Full,
    /// Anything else.
    #[serde(other)]
    Failed,
}

/// A request about working files.
#[derive(Debug, Clone, Copy)]
pub(super) enum FileRequest<'a> {
    /// List the working directory.
    List {
        /// Levels.
        depth: usize,
        /// Most entries that are examined.
        entries: usize,
        /// Include directories and hidden files.
        everything: bool,
    },
    /// Read part of a file, at most [`MAX_CONTENT`] bytes.
    Get {
        /// The path relative to the working directory.
        name: &'a str,
        /// The first byte.
        offset: u64,
        /// Most bytes.
        most: usize,
    },
    /// Create a file or append to it.
    Put {
        /// The path relative to the working directory.
        name: &'a str,
        /// The offset of the content; the file is created at 0.
        offset: u64,
        content: &'a [u8],
    },
    /// Create a directory.
    Make {
        /// The path relative to the working directory.
        name: &'a str,
    },
}

/// Decodes the byte stream of one relay.
#[derive(Debug, Default)]
pub(super) struct RelayDecoder(Splitter);

#[derive(Deserialize)]
struct HelloFields {
    protocol: u32,
    directory: String,
}

#[derive(Deserialize)]
struct EndedFields {
    #[serde(default)]
    code: Option<i32>,
    #[serde(default)]
    signal: Option<i32>,
}

#[derive(Deserialize)]
struct ReplyFields {
    id: u32,
    #[serde(default)]
    problem: Option<FileErrorKind>,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    stored: u64,
}

impl RelayDecoder {
    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The next complete frame.
    pub(super) fn next(&mut self) -> Option<Result<RelayMessage, Violation>> {
        let split = self.0.next()?;
        Some(split.and_then(|(kind, payload)| read(kind, payload)))
    }
}

fn read(kind: u8, mut payload: BytesMut) -> Result<RelayMessage, Violation> {
    match kind {
        b'H' => {
            let HelloFields {
                protocol,
                directory,
            } = fields(&payload)?;
            let good = protocol == PROTOCOL && directory.starts_with('/');
            let directory = clean(&directory, MAX_DIRECTORY);
            good.then_some(RelayMessage::Hello(directory))
                .ok_or(Violation::Malformed)
        }
        b'C' if payload.is_empty() => Ok(RelayMessage::Closed),
        b'C' => Ok(RelayMessage::Control(payload)),
        b'O' => {
            let stream = match payload.first() {
                Some(1) => OutputStream::Stdout,
                Some(2) => OutputStream::Stderr,
                _ => return Err(Violation::Malformed),
            };
            payload.advance(1);
            Ok(RelayMessage::Output(stream, payload))
        }
        b'Z' => fields(&payload)
            .map(|EndedFields { code, signal }| RelayMessage::Ended { code, signal }),
        b'F' => {
            let (length, rest) = payload.split_first_chunk().ok_or(Violation::Malformed)?;
            let (head, body) = rest
                .split_at_checked(u16::from_le_bytes(*length).into())
                .ok_or(Violation::Malformed)?;
            let head: ReplyFields = fields(head)?;
            Ok(RelayMessage::File(FileReply {
                id: head.id,
                problem: head.problem,
                size: head.size,
                stored: head.stored,
                // Copied, because a slice would keep the whole buffer alive.
                body: Bytes::copy_from_slice(body),
            }))
        }
        _ => Err(Violation::UnknownKind),
    }
}

fn fields<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, Violation> {
    serde_json::from_slice(payload).map_err(|_| Violation::Malformed)
}

/// Bytes for the control socket.
pub(super) fn control(bytes: &[u8]) -> Vec<u8> {
    let mut frames = Vec::with_capacity(bytes.len() + 16);
    for piece in bytes.chunks(MAX_CONTENT) {
        frame(&mut frames, b'C', &[piece]);
    }
    frames
}

/// Raises `KeyboardInterrupt` in the running code.
pub(super) fn interrupt() -> Vec<u8> {
    let mut frames = Vec::new();
    frame(&mut frames, b'S', &[]);
    frames
}

/// Ends the interpreter and its processes, but not the relay.
pub(super) fn kill() -> Vec<u8> {
    let mut frames = Vec::new();
    frame(&mut frames, b'K', &[]);
    frames
}

impl FileRequest<'_> {
    /// The frame.
    pub(super) fn encode(self, id: u32) -> Vec<u8> {
        let (head, content): (_, &[u8]) = match self {
            Self::List {
                depth,
                entries,
                everything,
            } => (
                json!({"id": id, "what": "list", "depth": depth, "entries": entries, "everything": everything}),
                &[],
            ),
            Self::Get { name, offset, most } => (
                json!({"id": id, "what": "get", "name": name, "offset": offset, "most": most}),
                &[],
            ),
            Self::Put {
                name,
                offset,
                content,
            } => (
                json!({"id": id, "what": "put", "name": name, "offset": offset, "directory": false}),
                content,
            ),
            Self::Make { name } => (
                json!({"id": id, "what": "put", "name": name, "offset": 0, "directory": true}),
                &[],
            ),
        };
        let head = head.to_string();
        // A name is no longer than a path of the kernel, so the length always fits.
        let length = u16::try_from(head.len()).unwrap_or(u16::MAX);
        let mut frames = Vec::new();
        let parts = [&length.to_le_bytes()[..], head.as_bytes(), content];
        frame(&mut frames, b'F', &parts);
        frames
    }
}

fn frame(frames: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    // Pieces are at most MAX_CONTENT, so the length always fits.
    let length = u32::try_from(length + 1).unwrap_or(u32::MAX);
    frames.extend_from_slice(&length.to_le_bytes());
    frames.push(kind);
    for part in parts {
        frames.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests;
