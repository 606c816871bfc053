//! Reading blobs, piece by piece.

use std::io::{self, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, ReadBuf, Take};
use tokio_util::io::StreamReader;

use super::bucket::BucketObject;
use super::directory::ignore_not_found;

/// Reads a range of a blob. A local file can be read to its end even if the blob is removed meanwhile.
pub struct BlobReader(ReaderKind);

enum ReaderKind {
    File(Take<tokio::fs::File>),
    Object(StreamReader<BoxStream<'static, io::Result<Bytes>>, Bytes>),
}

/// A blob as a local file; a copy is removed when this is dropped.
#[derive(Debug)]
pub struct LocalBlob {
    pub(super) path: Arc<Path>,
    pub(super) is_copy: bool,
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

    /// The path of the file.
    pub fn path(&self) -> &Path {
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
