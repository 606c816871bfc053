//! Blobs that are being written, and blobs for which it is not known whether their row was written.
//!
//! An unfinished file is removed when its [`PendingBlob`] is dropped, or else at a later start.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::FileError;
use blobs::{BlobStorage, NAME_BYTES};
use protocol::ids::random_hex;

/// Most blobs that are remembered as unconfirmed; those beyond are found by a sweep.
const MAX_UNCONFIRMED: usize = 10_000;

/// The storage of contents, and what is not yet certain about it.
#[derive(Debug)]
pub(super) struct Blobs {
    pub(super) storage: BlobStorage,
    /// Blobs for which it is not known whether their row was written.
    unconfirmed: Mutex<Vec<String>>,
    /// Bytes of files that are being written.
    unfinished_bytes: AtomicU64,
}

/// A blob that is being written, or is complete but has no row yet. An unfinished blob is removed on drop.
#[derive(Debug)]
pub(super) struct PendingBlob {
    blobs: Arc<Blobs>,
    blob: String,
    state: State,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unfinished,
    /// The storage may have it, or will have it later.
    Placed,
    Kept,
}

impl Blobs {
    pub(super) fn new(storage: BlobStorage) -> Self {
        Self {
            storage,
            unconfirmed: Mutex::default(),
            unfinished_bytes: AtomicU64::new(0),
        }
    }

    /// Creates a blob. Blocks.
    pub(super) fn create(self: &Arc<Self>) -> io::Result<(File, PendingBlob)> {
        let pending = PendingBlob {
            blobs: Arc::clone(self),
            blob: random_hex::<NAME_BYTES>(),
            state: State::Unfinished,
            bytes: 0,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        let file = options.open(pending.path())?;
        Ok((file, pending))
    }

    /// Bytes of files that are being written.
    #[cfg(test)]
    pub(super) fn unfinished_bytes(&self) -> u64 {
        self.unfinished_bytes.load(Ordering::Relaxed)
    }

    /// The blobs for which it is not known whether their row was written.
    pub(super) fn unconfirmed(&self) -> Vec<String> {
        self.unconfirmed.lock().clone()
    }

    /// Removes blobs from the unconfirmed ones: they have a row or are deleted.
    pub(super) fn confirm(&self, blobs: &[String]) {
        self.unconfirmed.lock().retain(|blob| !blobs.contains(blob));
    }
}

impl PendingBlob {
    pub(super) fn blob(&self) -> &str {
        &self.blob
    }

    /// The path of the unfinished file.
    pub(super) fn path(&self) -> PathBuf {
        self.blobs.storage.unfinished_path(&self.blob)
    }

    /// Counts bytes that are about to be written; returns the sum over all files that are being written.
    pub(super) fn grow(&mut self, bytes: u64) -> u64 {
        self.bytes += bytes;
        let others = self
            .blobs
            .unfinished_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        others.saturating_add(bytes)
    }

    /// Gives the complete file to the storage.
    pub(super) async fn place(&mut self, file: File) -> Result<(), FileError> {
        // From here in a task: the storage may complete a write whose caller has been dropped.
        let (blobs, blob) = (Arc::clone(&self.blobs), self.blob.clone());
        self.state = State::Placed;
        let placed = blobs.storage.place(&blob, file).await;
        placed.map_err(|source| FileError::Io {
            doing: "write a file",
            source,
        })
    }

    /// Keeps the blob after its row was written.
    pub(super) fn keep(mut self) {
        self.state = State::Kept;
    }

    /// Keeps the file in its state, as after a crash.
    #[cfg(test)]
    pub(super) fn abandon(mut self) {
        self.state = State::Kept;
    }
}

impl Drop for PendingBlob {
    fn drop(&mut self) {
        self.blobs
            .unfinished_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
        // A blob that was moved into a directory is not here any more, unless the move failed.
        if (self.state != State::Kept || self.blobs.storage.copies())
            && let Err(error) = std::fs::remove_file(self.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "an unfinished file could not be removed");
        }
        // The row may have been written although the future was dropped.
        if self.state == State::Placed {
            let mut unconfirmed = self.blobs.unconfirmed.lock();
            if unconfirmed.len() < MAX_UNCONFIRMED {
                unconfirmed.push(std::mem::take(&mut self.blob));
            }
        }
    }
}

/// Runs blocking work on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, FileError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)
        .flatten()
        .map_err(|source| FileError::Io { doing, source })
}
