//! The frames that the server and the relay ([`PROGRAM`]) exchange, which stands between the server and an interpreter
//! that a command of the operator's isolates.
//!
//! They carry what goes through descriptors otherwise: the bytes of the control socket, output, signals, the end of the
//! interpreter, and the working files. Code shares its isolation with the relay, so that everything that comes is
//! hostile. Does no I/O.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::json;

use super::OutputStream;
use super::frame::{Splitter, Violation};
use super::output::clean;

/// The relay, for Python.
pub(super) const PROGRAM: &str = include_str!("relay.py");
/// The protocol that it must speak.
const PROTOCOL: u32 = 1;
/// Most bytes of a file in one frame.
pub(super) const MAX_CONTENT: usize = 1024 * 1024;
/// Longest name of the working directory, in bytes.
const MAX_DIRECTORY: usize = 256;

/// What a relay says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FromRelay {
    /// It is there, and where the code will run.
    Hello(String),
    /// Bytes of the control socket.
    Control(BytesMut),
    /// The control socket was closed.
    Closed,
    /// Output.
    Output(OutputStream, BytesMut),
    /// The interpreter has ended: exit status or signal.
    Ended {
        /// The exit status.
        code: Option<i32>,
        /// The signal.
        signal: Option<i32>,
    },
    /// What came of an order about files.
    Answer(Answer),
}

/// What came of an order about files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// The order.
    pub(super) id: u32,
    /// Why it could not be done.
    pub(super) problem: Option<Problem>,
    /// The size that the file is said to have.
    pub(super) size: u64,
    /// The bytes that it is said to take up.
    pub(super) stored: u64,
    /// The listing or the content.
    pub(super) body: Bytes,
}

/// Why an order about files could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Problem {
    /// There is no such file.
    Missing,
    /// It is a symbolic link.
    Link,
    /// It may not be touched.
    Access,
    /// It is neither a file nor a directory.
    Special,
    /// It is a directory.
    Directory,
    /// Its name is too long.
    Long,
    /// It is there already.
    Exists,
    /// There is no room.
    Full,
    /// Anything else.
    #[serde(other)]
    Failed,
}

/// An order about files.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order<'a> {
    /// List the working directory.
    List {
        /// Levels.
        depth: usize,
        /// Entries that are looked at.
        entries: usize,
        /// Directories and hidden files too.
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
    /// Create a file, or go on with it.
    Put {
        /// The path relative to the working directory.
        name: &'a str,
        /// Where the content goes; at 0 the file is created.
        offset: u64,
        /// The content.
        content: &'a [u8],
    },
    /// Create a directory.
    Make {
        /// The path relative to the working directory.
        name: &'a str,
    },
}

/// Takes the bytes of one relay apart.
#[derive(Debug, Default)]
pub(super) struct Decoder(Splitter);

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
struct AnswerFields {
    id: u32,
    #[serde(default)]
    problem: Option<Problem>,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    stored: u64,
}

impl Decoder {
    /// Takes bytes in.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The next frame that is whole.
    pub(super) fn next(&mut self) -> Option<Result<FromRelay, Violation>> {
        let split = self.0.next()?;
        Some(split.and_then(|(kind, payload)| read(kind, payload)))
    }
}

fn read(kind: u8, mut payload: BytesMut) -> Result<FromRelay, Violation> {
    match kind {
        b'H' => {
            let HelloFields {
                protocol,
                directory,
            } = fields(&payload)?;
            let good = protocol == PROTOCOL && directory.starts_with('/');
            let directory = clean(&directory, MAX_DIRECTORY);
            good.then_some(FromRelay::Hello(directory))
                .ok_or(Violation::Malformed)
        }
        b'C' if payload.is_empty() => Ok(FromRelay::Closed),
        b'C' => Ok(FromRelay::Control(payload)),
        b'O' => {
            let stream = match payload.first() {
                Some(1) => OutputStream::Stdout,
                Some(2) => OutputStream::Stderr,
                _ => return Err(Violation::Malformed),
            };
            payload.advance(1);
            Ok(FromRelay::Output(stream, payload))
        }
        b'Z' => {
            fields(&payload).map(|EndedFields { code, signal }| FromRelay::Ended { code, signal })
        }
        b'F' => {
            let (length, rest) = payload.split_first_chunk().ok_or(Violation::Malformed)?;
            let (head, body) = rest
                .split_at_checked(u16::from_le_bytes(*length).into())
                .ok_or(Violation::Malformed)?;
            let head: AnswerFields = fields(head)?;
            Ok(FromRelay::Answer(Answer {
                id: head.id,
                problem: head.problem,
                size: head.size,
                stored: head.stored,
                // Copied, because a part of the buffer would keep the whole of it alive.
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

/// Ends the interpreter and what it started, but not the relay.
pub(super) fn kill() -> Vec<u8> {
    let mut frames = Vec::new();
    frame(&mut frames, b'K', &[]);
    frames
}

impl Order<'_> {
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
        // A name is at most a path of the kernel's, so that the length always fits.
        let length = u16::try_from(head.len()).unwrap_or(u16::MAX);
        let mut frames = Vec::new();
        let parts = [&length.to_le_bytes()[..], head.as_bytes(), content];
        frame(&mut frames, b'F', &parts);
        frames
    }
}

fn frame(frames: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    // Far below what a length can say: pieces are at most MAX_CONTENT.
    let length = u32::try_from(length + 1).unwrap_or(u32::MAX);
    frames.extend_from_slice(&length.to_le_bytes());
    frames.push(kind);
    for part in parts {
        frames.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests;
