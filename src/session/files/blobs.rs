//! The contents of files on disk (blobs): written under a temporary name, renamed when complete, removed.
//!
//! Several databases may use the same directory, so every file name begins with the name of the database. An unfinished
//! file is removed when its [`PendingBlob`] is dropped, or else at the next start.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::FileError;
use crate::ids::random_hex;

/// The subdirectory for unfinished files.
const UNFINISHED: &str = "tmp";
/// Random bytes in a blob's name, which is their hexadecimal form.
const NAME_BYTES: usize = 16;
/// Leading digits of a blob's name that are the name of its folder.
const SHARD_DIGITS: usize = 2;
/// Number of folders for blobs.
pub(super) const SHARDS: u32 = 256;

/// The directory with the bytes of files.
#[derive(Debug)]
pub(super) struct Blobs {
    root: PathBuf,
    /// The name of the database; the prefix of all file names.
    store: String,
    /// Whether the directory is deleted on drop.
    temporary: bool,
    /// Held shared while the files are in use, and exclusively while leftovers are removed.
    lock: File,
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
    Placed,
    Kept,
}

/// Whether another process uses the files of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryUse {
    /// Only this process uses the directory, so every unfinished file is a leftover.
    Exclusive,
    /// Another process has the files of this database open.
    Shared,
}

impl Blobs {
    /// Opens the directory and creates it if necessary. A temporary directory is deleted on drop.
    pub(super) fn open(
        root: PathBuf,
        store: &str,
        temporary: bool,
    ) -> io::Result<(Self, DirectoryUse)> {
        make_private(&root)?;
        make_private(&root.join(UNFINISHED))?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        private(&mut options);
        let lock = options.open(root.join(format!("{store}.lock")))?;
        let directory_use = match lock.try_lock() {
            Ok(()) => DirectoryUse::Exclusive,
            Err(TryLockError::WouldBlock) => DirectoryUse::Shared,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        if directory_use == DirectoryUse::Shared {
            // This blocks only while the other process removes leftovers.
            lock.lock_shared()?;
        }
        let blobs = Self {
            root,
            store: store.to_owned(),
            temporary,
            lock,
            unconfirmed: Mutex::default(),
            unfinished_bytes: AtomicU64::new(0),
        };
        Ok((blobs, directory_use))
    }

    /// Allows other processes to use the directory, after the leftovers are removed.
    pub(super) fn share(&self) -> io::Result<()> {
        self.lock.lock_shared()
    }

    /// The path of a blob.
    pub(super) fn path(&self, blob: &str) -> PathBuf {
        let shard: String = blob.chars().take(SHARD_DIGITS).collect();
        self.root.join(shard).join(self.file_name(blob))
    }

    fn unfinished_path(&self, blob: &str) -> PathBuf {
        self.root.join(UNFINISHED).join(self.file_name(blob))
    }

    fn file_name(&self, blob: &str) -> String {
        format!("{}-{blob}", self.store)
    }

    /// Creates a blob.
    pub(super) fn create(self: &Arc<Self>) -> io::Result<(File, PendingBlob)> {
        let pending = PendingBlob {
            blobs: Arc::clone(self),
            blob: random_hex::<NAME_BYTES>(),
            state: State::Unfinished,
            bytes: 0,
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        private(&mut options);
        let file = options.open(self.unfinished_path(&pending.blob))?;
        Ok((file, pending))
    }

    /// Removes a blob, if it exists.
    pub(super) fn remove(&self, blob: &str) -> io::Result<()> {
        ignore_not_found(std::fs::remove_file(self.path(blob)))
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

    /// Removes the blobs up to the first failure; returns those that are removed.
    pub(super) fn remove_all(&self, blobs: Vec<String>) -> (Vec<String>, io::Result<()>) {
        let mut removed = Vec::with_capacity(blobs.len());
        for blob in blobs {
            match self.remove(&blob) {
                Ok(()) => removed.push(blob),
                Err(error) => return (removed, Err(error)),
            }
        }
        (removed, Ok(()))
    }

    /// Deletes the directory if it is temporary.
    pub(super) fn delete_temporary(&self) -> io::Result<()> {
        match self.temporary {
            true => ignore_not_found(std::fs::remove_dir_all(&self.root)),
            false => Ok(()),
        }
    }

    /// Removes unfinished files; returns how many.
    pub(super) fn remove_unfinished(&self) -> io::Result<u64> {
        let mut removed = 0;
        for blob in self.blobs_in(UNFINISHED)? {
            ignore_not_found(std::fs::remove_file(self.unfinished_path(&blob)))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// The blobs in the folder with this number.
    pub(super) fn blobs_of(&self, shard: u32) -> io::Result<Vec<String>> {
        self.blobs_in(&shard_name(shard))
    }

    /// The blobs of this database in a folder; other files are ignored.
    fn blobs_in(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.root.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut blobs = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let ours = name
                .to_str()
                .and_then(|name| name.strip_prefix(&self.store));
            let blob = ours.and_then(|rest| rest.strip_prefix('-'));
            let digits = |blob: &&str| {
                blob.len() == 2 * NAME_BYTES && blob.bytes().all(|byte| byte.is_ascii_hexdigit())
            };
            blobs.extend(blob.filter(digits).map(ToOwned::to_owned));
        }
        Ok(blobs)
    }
}

impl Drop for Blobs {
    fn drop(&mut self) {
        if let Err(error) = self.delete_temporary() {
            tracing::warn!(%error, "temporary files could not be deleted");
        }
    }
}

impl PendingBlob {
    pub(super) fn blob(&self) -> &str {
        &self.blob
    }

    /// The path of the unfinished file.
    pub(super) fn path(&self) -> PathBuf {
        self.blobs.unfinished_path(&self.blob)
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

    /// Renames the complete file to its final path and syncs it to disk. Blocks.
    pub(super) fn place(&mut self, file: &File) -> io::Result<()> {
        file.sync_all()?;
        let path = self.blobs.path(&self.blob);
        let folder = path.parent().unwrap_or(&self.blobs.root);
        if !folder.exists() {
            make_private(folder)?;
            sync(&self.blobs.root)?;
        }
        std::fs::rename(self.blobs.unfinished_path(&self.blob), &path)?;
        self.state = State::Placed;
        sync(folder)
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

    /// Removes the complete blob, for which no row was written. Blocks.
    pub(super) fn discard(mut self) -> io::Result<()> {
        self.blobs.remove(&self.blob)?;
        self.state = State::Kept;
        Ok(())
    }
}

impl Drop for PendingBlob {
    fn drop(&mut self) {
        self.blobs
            .unfinished_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
        match self.state {
            State::Unfinished => {
                if let Err(error) =
                    ignore_not_found(std::fs::remove_file(self.blobs.unfinished_path(&self.blob)))
                {
                    tracing::warn!(%error, "an unfinished file could not be removed");
                }
            }
            // The row may have been written although the future was dropped.
            State::Placed => self
                .blobs
                .unconfirmed
                .lock()
                .push(std::mem::take(&mut self.blob)),
            State::Kept => {}
        }
    }
}

/// The name of the folder with this number.
pub(super) fn shard_name(shard: u32) -> String {
    format!("{shard:0SHARD_DIGITS$x}")
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

/// Creates a directory that only its owner can access. The permissions of an existing directory are not changed.
fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
