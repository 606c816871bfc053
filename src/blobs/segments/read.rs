//! Reading a text in parts.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{BinaryContent, EmbeddedContent, SegmentedText, TextPart};
use crate::{Blob, BlobReader};

/// Size of a piece of a content that is encoded at a time, in bytes; a multiple of three, so that their texts can be
/// joined. The allocator keeps megabytes for each thread that allocates more than 64 KiB at once, and pieces are read
/// on many threads.
const PIECE: usize = 36 * 1024;

/// Most objects that are looked for at a time; others follow.
const LOOK_UPS: usize = 16;

/// A text while it is read, as a body of known length.
#[derive(Debug)]
pub struct SegmentedBody {
    parts: std::vec::IntoIter<BodyPart>,
    reading: Option<Reading>,
    /// Bytes of the text that are still to come.
    left: u64,
}

/// A part of a body.
#[derive(Debug)]
enum BodyPart {
    Text(Bytes),
    Base64(BinaryContent),
}

/// A content while it is read.
enum Reading {
    Memory(Bytes),
    /// The next piece of a file is read on a blocking thread.
    File(JoinHandle<io::Result<FilePiece>>),
    /// The next piece of an object. The lock is never taken; it makes the body one that threads can share.
    Object(Mutex<BoxFuture<'static, io::Result<ObjectPiece>>>),
}

/// An object while it is read.
struct OpenObject {
    reader: BlobReader,
    left: u64,
}

/// A piece of an object as base64, and the rest of the object.
struct ObjectPiece {
    text: Bytes,
    rest: Option<OpenObject>,
}

/// A file while it is read.
#[derive(Debug)]
struct OpenFile {
    file: File,
    left: u64,
}

/// A piece of a file as base64, and the rest of the file.
#[derive(Debug)]
struct FilePiece {
    text: Bytes,
    rest: Option<OpenFile>,
}

impl SegmentedText {
    /// The text without the contents of files that were deleted.
    #[must_use]
    pub async fn without_lost(mut self) -> Self {
        let (mut files, mut objects) = (Vec::new(), Vec::new());
        for (index, part) in self.parts.iter().enumerate() {
            let TextPart::Content(embedded) = part else {
                continue;
            };
            if let BinaryContent::Stored(blob) = &embedded.content {
                match blob.as_file() {
                    Some(path) => files.push((index, path.clone(), blob.length())),
                    None => objects.push((index, blob.clone())),
                }
            }
        }
        if files.is_empty() && objects.is_empty() {
            return self;
        }
        // All in one task: there may be thousands.
        let lost_files = spawn_blocking(move || {
            let lost = files
                .iter()
                .filter(|(_, path, length)| !is_there(path, *length));
            lost.map(|(index, ..)| *index).collect::<Vec<_>>()
        });
        let look = |(index, object): (usize, Blob)| async move {
            let exists = object.exists().await;
            (!exists).then_some(index)
        };
        let looked_for = stream::iter(objects).map(look);
        let mut lost: Vec<usize> = looked_for
            .buffer_unordered(LOOK_UPS)
            .filter_map(std::future::ready)
            .collect()
            .await;
        lost.extend(lost_files.await.unwrap_or_default());
        for index in lost {
            if let Some(part) = self.parts.get_mut(index)
                && let TextPart::Content(embedded) = part
            {
                *part = TextPart::Text(std::mem::take(&mut embedded.lost));
            }
        }
        self
    }

    /// Reads the text.
    pub fn into_body(self) -> SegmentedBody {
        let left = self.length();
        let parts = self.parts.into_iter().map(|part| match part {
            TextPart::Text(text) => [Some(BodyPart::Text(text)), None, None],
            TextPart::Content(embedded) => {
                let EmbeddedContent {
                    before,
                    content,
                    after,
                    ..
                } = *embedded;
                let texts = [before, after].map(|text| (!text.is_empty()).then_some(text));
                let [before, after] = texts.map(|text| text.map(BodyPart::Text));
                [before, Some(BodyPart::Base64(content)), after]
            }
        });
        let parts: Vec<BodyPart> = parts.flatten().flatten().collect();
        SegmentedBody {
            left,
            parts: parts.into_iter(),
            reading: None,
        }
    }

    /// Reads the whole text into memory.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub async fn whole(&self) -> io::Result<Bytes> {
        if let Some(text) = self.in_one_piece() {
            return Ok(text);
        }
        let mut body = self.clone().into_body();
        let mut whole = BytesMut::with_capacity(usize::try_from(body.left).unwrap_or_default());
        while let Some(piece) = body.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

impl SegmentedBody {
    /// The next piece of the text; none at its end.
    ///
    /// # Errors
    /// When a file cannot be read, or is shorter than it was.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        poll_fn(|context| self.poll_piece(context)).await
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let piece = loop {
            match &mut self.reading {
                Some(Reading::Memory(bytes)) => {
                    let piece = bytes.split_to(bytes.len().min(PIECE));
                    if bytes.is_empty() {
                        self.reading = None;
                    }
                    break STANDARD.encode(piece).into();
                }
                Some(Reading::File(reading)) => {
                    let read = ready!(Pin::new(reading).poll(context));
                    self.reading = None;
                    let FilePiece { text, rest } = read.map_err(io::Error::other)??;
                    self.reading = rest.map(|rest| Reading::File(rest.read()));
                    break text;
                }
                Some(Reading::Object(reading)) => {
                    let read = ready!(reading.get_mut().as_mut().poll(context));
                    self.reading = None;
                    let ObjectPiece { text, rest } = read?;
                    self.reading = rest.map(|rest| Reading::object(rest.piece()));
                    break text;
                }
                None => {}
            }
            self.reading = match self.parts.next() {
                None => return Poll::Ready(Ok(None)),
                Some(BodyPart::Text(text)) => break text,
                Some(BodyPart::Base64(BinaryContent::Memory(bytes))) => {
                    Some(Reading::Memory(bytes))
                }
                Some(BodyPart::Base64(BinaryContent::Stored(blob))) => Some(Reading::open(blob)),
            };
        };
        self.left = self.left.saturating_sub(piece.len() as u64);
        Poll::Ready(Ok(Some(piece)))
    }
}

impl Body for SegmentedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = ready!(self.poll_piece(context));
        Poll::Ready(piece.transpose().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.reading.is_none() && self.parts.as_slice().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl BinaryContent {
    /// Whether the bytes can still be read: a file may have been deleted.
    pub async fn exists(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Stored(blob) => blob.exists().await,
        }
    }
}

impl Reading {
    fn open(blob: Blob) -> Self {
        match blob.as_file() {
            Some(path) => Self::File(open(path.clone(), blob.length())),
            None => Self::object(async move {
                let left = blob.length();
                let reader = blob.read(0..left).await?;
                OpenObject { reader, left }.piece().await
            }),
        }
    }

    fn object(piece: impl Future<Output = io::Result<ObjectPiece>> + Send + 'static) -> Self {
        Self::Object(Mutex::new(Box::pin(piece)))
    }
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::File(_) => "File",
            Self::Object(_) => "Object",
        })
    }
}

impl OpenObject {
    async fn piece(mut self) -> io::Result<ObjectPiece> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE);
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes).await?;
        self.left -= length as u64;
        Ok(ObjectPiece {
            text: STANDARD.encode(bytes).into(),
            rest: (self.left > 0).then_some(self),
        })
    }
}

/// Whether a file is complete. Blocks.
fn is_there(path: &Path, length: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == length)
}

fn open(path: Arc<Path>, length: u64) -> JoinHandle<io::Result<FilePiece>> {
    spawn_blocking(move || {
        let file = File::open(path)?;
        OpenFile { file, left: length }.piece()
    })
}

impl OpenFile {
    fn read(self) -> JoinHandle<io::Result<FilePiece>> {
        spawn_blocking(move || self.piece())
    }

    fn piece(mut self) -> io::Result<FilePiece> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE);
        let mut bytes = vec![0; length];
        self.file.read_exact(&mut bytes)?;
        self.left -= length as u64;
        Ok(FilePiece {
            text: STANDARD.encode(bytes).into(),
            rest: (self.left > 0).then_some(self),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn contents_are_read_as_base64_from_memory_and_from_files() {
        let directory = tempfile::tempdir().unwrap();
        for length in [0, 1, 2, 3, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 2] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let path = directory.path().join("content");
            std::fs::write(&path, &bytes).unwrap();
            let file = BinaryContent::Stored(Blob::file(path.as_path(), length as u64));
            let mut text = SegmentedText::from("\"".to_owned());
            text.push_base64(BinaryContent::Memory(bytes.clone().into()));
            text.push_text("\",\"");
            text.push_base64(file);
            text.push_text("\"");
            let base64 = STANDARD.encode(&bytes);
            let expected = format!("\"{base64}\",\"{base64}\"");
            assert_eq!(text.length(), expected.len() as u64);
            assert_eq!(text.without_lost().await.whole().await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_deleted_file_is_left_out_beforehand_and_an_error_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("content");
        std::fs::write(&path, "abc").unwrap();
        let mut text = SegmentedText::from("[\"");
        text.push_base64(BinaryContent::Stored(Blob::file(path.as_path(), 3)));
        text.push_text("\"]");
        assert_eq!(text.whole().await.unwrap(), "[\"YWJj\"]");
        std::fs::remove_file(&path).unwrap();
        assert!(text.whole().await.is_err());
        text.push_embedded(EmbeddedContent {
            before: "(".into(),
            content: BinaryContent::Memory("abc".into()),
            after: ")".into(),
            lost: "lost".into(),
        });
        text.push_embedded(EmbeddedContent {
            before: "(".into(),
            content: BinaryContent::Stored(Blob::file(path.as_path(), 3)),
            after: ")".into(),
            lost: "lost".into(),
        });
        let rest = text.without_lost().await;
        let expected = "[\"\"](YWJj)lost";
        assert_eq!(
            (rest.length(), rest.whole().await.unwrap()),
            (expected.len() as u64, expected.into())
        );
    }
}
