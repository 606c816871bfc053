//! Uploads of complete files, in tasks that outlive their callers, so that a failed upload can be aborted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStoreExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::blocking;
use super::failure::{late, within};
use super::{Bucket, REQUEST_LIMIT};

/// Size of a part at least, in bytes; a file that is not larger is uploaded in one request.
const PART_BYTES: u64 = 8 * 1024 * 1024;
/// Most parts that S3 accepts; parts are larger where there would be more.
const MAX_PARTS: u64 = 10_000;
/// Longest time for one part, its retries included. After it the upload is an error.
const PART_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait until a part may be in memory. After it the upload is an error.
const PERMIT_LIMIT: Duration = Duration::from_secs(120);

/// Uploads a file. If the future is dropped, the upload is aborted.
pub(super) async fn upload(bucket: &Bucket, key: ObjectPath, file: File) -> io::Result<()> {
    let unwanted = bucket.0.closing.child_token();
    let upload = FileUpload {
        bucket: bucket.clone(),
        file: Arc::new(file),
        unwanted: unwanted.clone(),
    };
    let _aborts = unwanted.drop_guard();
    let uploading = bucket.0.uploads.spawn(upload.run(key));
    uploading.await.map_err(io::Error::other).flatten()
}

struct FileUpload {
    bucket: Bucket,
    file: Arc<File>,
    unwanted: CancellationToken,
}

impl FileUpload {
    async fn run(self, key: ObjectPath) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        match length <= PART_BYTES {
            true => self.until_unwanted(self.send_whole(&key, length)).await,
            false => self.run_in_parts(&key, length).await,
        }
    }

    async fn send_whole(&self, key: &ObjectPath, length: u64) -> io::Result<()> {
        let _permit = self.permit().await?;
        let content = self.part(0, length).await?;
        let sending = self.bucket.0.client.put(key, content.into());
        within(PART_LIMIT, sending).await.map(drop)
    }

    async fn run_in_parts(&self, key: &ObjectPath, length: u64) -> io::Result<()> {
        let beginning = self.bucket.0.client.put_multipart(key);
        let mut upload = within(REQUEST_LIMIT, beginning).await?;
        let sent = self
            .until_unwanted(self.send_parts(&mut *upload, length))
            .await;
        if sent.is_err()
            && let Err(error) = within(REQUEST_LIMIT, upload.abort()).await
        {
            tracing::warn!(%error, "an unfinished upload could not be aborted; a rule of the bucket has to remove its parts");
        }
        sent
    }

    async fn send_parts(&self, upload: &mut dyn MultipartUpload, length: u64) -> io::Result<()> {
        let size = PART_BYTES.max(length.div_ceil(MAX_PARTS));
        let mut start = 0;
        while start < length {
            let end = length.min(start.saturating_add(size));
            let _permit = self.permit().await?;
            let part = self.part(start, end).await?;
            within(PART_LIMIT, upload.put_part(part.into())).await?;
            start = end;
        }
        within(PART_LIMIT, upload.complete()).await.map(drop)
    }

    /// Waits until a part may be in memory.
    async fn permit(&self) -> io::Result<tokio::sync::SemaphorePermit<'_>> {
        match timeout(PERMIT_LIMIT, self.bucket.0.parts.acquire()).await {
            Ok(permit) => permit.map_err(io::Error::other),
            Err(_elapsed) => Err(late(PERMIT_LIMIT)),
        }
    }

    async fn part(&self, start: u64, end: u64) -> io::Result<Bytes> {
        let file = self.file.clone();
        blocking(move || {
            let length = usize::try_from(end.saturating_sub(start)).map_err(io::Error::other)?;
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, start)?;
            Ok(bytes.into())
        })
        .await
    }

    async fn until_unwanted(&self, work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        tokio::select! {
            biased;
            () = self.unwanted.cancelled() => Err(io::ErrorKind::Interrupted.into()),
            done = work => done,
        }
    }
}
