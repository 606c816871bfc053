//! Reading blobs, piece by piece.

use std::io::{self, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, ReadBuf, Take};
use tokio_util::io::StreamReader;

use super::bucket::BucketObject;
use super::directory::{ignore_not_found, private};

/// Reads a range of a blob. A local file can be read to its end even if the blob is removed meanwhile.
pub struct BlobReader(ReaderKind);

enum ReaderKind {
    File(Take<tokio::fs::File>),
    Object(StreamReader<BoxStream<'static, io::Result<Bytes>>, Bytes>),
}

/// A blob as a local file; a copy is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct LocalBlob {
    path: Arc<Path>,
    is_copy: bool,
}

impl BlobReader {
    pub(super) async fn file(path: &Path, range: Range<u64>) -> io::Result<Self> {
        let mut file = tokio::fs::File::open(path).await?;
        if range.start > 0 {
            file.seek(SeekFrom::Start(range.start)).await?;
        }
        let length = range.end.saturating_sub(range.start);
        Ok(Self(ReaderKind::File(file.take(length))))
    }

    pub(super) async fn object(object: &BucketObject, range: Range<u64>) -> io::Result<Self> {
        let pieces = object.read(range).await?;
        Ok(Self(ReaderKind::Object(StreamReader::new(pieces))))
    }
}

impl AsyncRead for BlobReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            ReaderKind::File(file) => Pin::new(file).poll_read(context, buffer),
            ReaderKind::Object(object) => Pin::new(object).poll_read(context, buffer),
        }
    }
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self.0 {
            ReaderKind::File(_) => "BlobReader::File",
            ReaderKind::Object(_) => "BlobReader::Object",
        })
    }
}

impl LocalBlob {
    pub(super) fn itself(path: Arc<Path>) -> Self {
        Self {
            path,
            is_copy: false,
        }
    }

    /// A copy that is not yet written.
    pub(super) fn copy(path: PathBuf) -> Self {
        Self {
            path: path.into(),
            is_copy: true,
        }
    }

    /// Writes the copy, which must come out at this length.
    pub(super) async fn fill(
        &self,
        mut pieces: BoxStream<'static, io::Result<Bytes>>,
        length: u64,
    ) -> io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        private(&mut options);
        let mut file = tokio::fs::OpenOptions::from(options)
            .open(&self.path)
            .await?;
        let mut left = length;
        while let Some(piece) = pieces.try_next().await? {
            let rest = left.checked_sub(piece.len() as u64);
            left = rest.ok_or(io::ErrorKind::InvalidData)?;
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        match left {
            0 => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalBlob {
    fn drop(&mut self) {
        if self.is_copy
            && let Err(error) = ignore_not_found(std::fs::remove_file(&self.path))
        {
            tracing::warn!(%error, "the copy of a file could not be removed");
        }
    }
}
