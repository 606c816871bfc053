//! Copies of objects as local files.

use std::io;
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::failure::late;
use super::{BucketObject, STALL_LIMIT};
use crate::directory::private;
use crate::{LocalBlob, NAME_BYTES};
use protocol::ids::random_hex;

/// Least rate at which a blob is copied to the disk, in bytes per second. A slower copy is an error.
const MIN_COPY_RATE: u64 = 1024 * 1024;

impl BucketObject {
    /// Copies the object to a local file.
    pub(crate) async fn copy(&self, length: u64) -> io::Result<LocalBlob> {
        let limit = STALL_LIMIT.saturating_add(Duration::from_secs(length / MIN_COPY_RATE));
        let path = self.bucket.0.local.join(random_hex::<NAME_BYTES>());
        let copy = LocalBlob {
            path: path.into(),
            is_copy: true,
        };
        let copying = async {
            self.fill(&copy, length).await?;
            Ok(copy)
        };
        timeout(limit, copying)
            .await
            .unwrap_or_else(|_elapsed| Err(late(limit)))
    }

    /// Writes a copy, which must come out at this length.
    async fn fill(&self, copy: &LocalBlob, length: u64) -> io::Result<()> {
        let mut pieces = self.read(0..length).await?;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        private(&mut options);
        let options = tokio::fs::OpenOptions::from(options);
        let mut file = options.open(copy.path()).await?;
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
}
