//! The bytes of files on disk: written under a temporary name, moved into place, removed.
//!
//! Several databases may keep their files in one directory, so every name begins with that of the database. A file
//! that is begun and not finished is removed by its [`Leftover`], or else by the next start.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::FileError;
use crate::ids::random_hex;

/// Where unfinished files are.
const UNFINISHED: &str = "tmp";
/// Random bytes of a blob's name.
const NAME_BYTES: usize = 16;
/// Digits of a blob's name that name its folder.
const SHARD_DIGITS: usize = 2;
/// Folders of blobs.
pub(super) const SHARDS: u32 = 256;

/// The directory with the bytes of files.
#[derive(Debug)]
pub(super) struct Blobs {
    root: PathBuf,
    /// The name of the database; the prefix of its files.
    store: String,
    /// Deleted when this is dropped.
    temporary: bool,
    /// Held shared while the files are in use, and exclusively while leftovers are removed.
    lock: File,
    /// Blobs whose row may or may not have been written.
    in_doubt: Mutex<Vec<String>>,
    /// Bytes of files that are being written.
    unfinished_bytes: AtomicU64,
}

/// A file that is being written, or is in place and has no row yet. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Leftover {
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

/// Whether another process may be writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Only this process uses the directory, so every unfinished file is a leftover.
    Alone,
    /// Another process has the files of this database open.
    Shared,
}

impl Blobs {
    /// Opens the directory, made if need be; a temporary one is deleted with the last use of it.
    pub(super) fn open(root: PathBuf, store: &str, temporary: bool) -> io::Result<(Self, Use)> {
        make_private(&root)?;
        make_private(&root.join(UNFINISHED))?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        private(&mut options);
        let lock = options.open(root.join(format!("{store}.lock")))?;
        let used = match lock.try_lock() {
            Ok(()) => Use::Alone,
            Err(TryLockError::WouldBlock) => Use::Shared,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        if used == Use::Shared {
            // Waits only while the other process cleans up.
            lock.lock_shared()?;
        }
        let blobs = Self {
            root,
            store: store.to_owned(),
            temporary,
            lock,
            in_doubt: Mutex::default(),
            unfinished_bytes: AtomicU64::new(0),
        };
        Ok((blobs, used))
    }

    /// Lets other processes in once the leftovers are removed.
    pub(super) fn share(&self) -> io::Result<()> {
        self.lock.lock_shared()
    }

    /// Where a blob is.
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

    /// Begins a file.
    pub(super) fn begin(self: &Arc<Self>) -> io::Result<(File, Leftover)> {
        let leftover = Leftover {
            blobs: Arc::clone(self),
            blob: random_hex::<NAME_BYTES>(),
            state: State::Unfinished,
            bytes: 0,
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        private(&mut options);
        let file = options.open(self.unfinished_path(&leftover.blob))?;
        Ok((file, leftover))
    }

    /// Removes a blob, if it exists.
    pub(super) fn remove(&self, blob: &str) -> io::Result<()> {
        gone(std::fs::remove_file(self.path(blob)))
    }

    /// Bytes of files that are being written.
    #[cfg(test)]
    pub(super) fn unfinished_bytes(&self) -> u64 {
        self.unfinished_bytes.load(Ordering::Relaxed)
    }

    /// The blobs whose row may or may not have been written.
    pub(super) fn in_doubt(&self) -> Vec<String> {
        self.in_doubt.lock().clone()
    }

    /// Forgets blobs that were in doubt: they have a row or are removed.
    pub(super) fn settled(&self, blobs: &[String]) {
        self.in_doubt.lock().retain(|blob| !blobs.contains(blob));
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
            true => gone(std::fs::remove_dir_all(&self.root)),
            false => Ok(()),
        }
    }

    /// Removes unfinished files; returns how many.
    pub(super) fn remove_unfinished(&self) -> io::Result<u64> {
        let mut removed = 0;
        for blob in self.blobs_in(UNFINISHED)? {
            gone(std::fs::remove_file(self.unfinished_path(&blob)))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// The blobs of a folder, by its number.
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

impl Leftover {
    pub(super) fn blob(&self) -> &str {
        &self.blob
    }

    /// Where the file is while it is being written.
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

    /// Moves the whole file into place, so that it is there after a power cut. Blocks.
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

    /// The row is written: the file stays.
    pub(super) fn keep(mut self) {
        self.state = State::Kept;
    }

    /// Leaves the file, as a crash does.
    #[cfg(test)]
    pub(super) fn abandon(mut self) {
        self.state = State::Kept;
    }

    /// No row will be written. Blocks.
    pub(super) fn discard(mut self) -> io::Result<()> {
        self.blobs.remove(&self.blob)?;
        self.state = State::Kept;
        Ok(())
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        self.blobs
            .unfinished_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
        match self.state {
            State::Unfinished => {
                if let Err(error) =
                    gone(std::fs::remove_file(self.blobs.unfinished_path(&self.blob)))
                {
                    tracing::warn!(%error, "an unfinished file could not be removed");
                }
            }
            // The row may have been written although nobody waited for it.
            State::Placed => self
                .blobs
                .in_doubt
                .lock()
                .push(std::mem::take(&mut self.blob)),
            State::Kept => {}
        }
    }
}

/// The folder with that number.
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

/// Files are as private as conversations. The rights of a directory that is there are the operator's choice.
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

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
