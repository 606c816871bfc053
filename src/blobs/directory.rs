//! Blobs in a directory: written under a temporary name, renamed when complete, removed.
//!
//! Several stores and several processes may use the same directory. Every file name begins with the name of the store.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{BlobPage, NAME_BYTES, StorageUse};

/// The subdirectory for unfinished files.
const UNFINISHED: &str = "tmp";
/// Number of digits of a blob's name that are the name of its folder.
const SHARD_DIGITS: usize = 2;
/// Number of folders for blobs.
const SHARDS: u32 = 256;

/// The directory with the bytes of files.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    /// The name of the store; the prefix of all file names.
    store: String,
    /// Whether the directory is deleted on drop.
    temporary: bool,
    /// Held shared while the files are in use, and exclusively while leftovers are removed.
    lock: File,
}

/// One folder of the directory.
#[derive(Debug)]
pub(super) struct BlobFolder {
    path: PathBuf,
    store: String,
    next: Option<String>,
}

/// The paths of a blob before and after it is complete.
#[derive(Debug)]
pub(super) struct PlacingBlob {
    root: PathBuf,
    unfinished: PathBuf,
    path: PathBuf,
}

impl Directory {
    /// Opens the directory and creates it if necessary. Blocks.
    pub(super) fn open(
        root: PathBuf,
        store: &str,
        temporary: bool,
    ) -> io::Result<(Self, StorageUse)> {
        make_private(&root)?;
        make_private(&root.join(UNFINISHED))?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        private(&mut options);
        let lock = options.open(root.join(format!("{store}.lock")))?;
        let storage_use = match lock.try_lock() {
            Ok(()) => StorageUse::Exclusive,
            Err(TryLockError::WouldBlock) => StorageUse::Shared,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        if storage_use == StorageUse::Shared {
            // This blocks only while the other process removes leftovers.
            lock.lock_shared()?;
        }
        let directory = Self {
            root,
            store: store.to_owned(),
            temporary,
            lock,
        };
        Ok((directory, storage_use))
    }

    /// The path of a blob.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        let shard: String = name.chars().take(SHARD_DIGITS).collect();
        self.root.join(shard).join(self.file_name(name))
    }

    pub(super) fn unfinished_path(&self, name: &str) -> PathBuf {
        self.root.join(UNFINISHED).join(self.file_name(name))
    }

    fn file_name(&self, name: &str) -> String {
        format!("{}-{name}", self.store)
    }

    pub(super) fn placing(&self, name: &str) -> PlacingBlob {
        PlacingBlob {
            root: self.root.clone(),
            unfinished: self.unfinished_path(name),
            path: self.path(name),
        }
    }

    /// The folder of unfinished files.
    pub(super) fn unfinished(&self) -> BlobFolder {
        self.folder(UNFINISHED, None)
    }

    /// The folder of blobs with this number, or the first one.
    pub(super) fn shard(&self, number: Option<&str>) -> BlobFolder {
        let number: u32 = number.map_or(0, |text| text.parse().unwrap_or(SHARDS));
        let next = number.saturating_add(1);
        let next = (next < SHARDS).then(|| next.to_string());
        self.folder(&format!("{number:0SHARD_DIGITS$x}"), next)
    }

    fn folder(&self, name: &str, next: Option<String>) -> BlobFolder {
        BlobFolder {
            path: self.root.join(name),
            store: self.store.clone(),
            next,
        }
    }

    /// Another handle of the lock.
    pub(super) fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// Checks that the directory exists.
    pub(super) async fn ping(&self) -> io::Result<()> {
        tokio::fs::metadata(self.root.join(UNFINISHED))
            .await
            .map(drop)
    }

    /// Deletes the directory if it is temporary.
    pub(super) fn delete_temporary(&self) -> io::Result<()> {
        match self.temporary {
            true => ignore_not_found(std::fs::remove_dir_all(&self.root)),
            false => Ok(()),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = self.delete_temporary() {
            tracing::warn!(%error, "temporary files could not be deleted");
        }
    }
}

impl PlacingBlob {
    /// Renames the complete file to its final path and syncs it to disk. Blocks.
    pub(super) fn place(&self, file: &File) -> io::Result<()> {
        file.sync_all()?;
        let folder = self.path.parent().unwrap_or(&self.root);
        if !folder.exists() {
            make_private(folder)?;
            sync(&self.root)?;
        }
        std::fs::rename(&self.unfinished, &self.path)?;
        sync(folder)
    }
}

impl BlobFolder {
    /// Removes the files of the store that were not written for this time; returns how many. Blocks.
    pub(super) fn remove_older_than(&self, unused_for: Duration) -> io::Result<u64> {
        let mut removed = 0;
        for (_, path) in self.files(unused_for)? {
            ignore_not_found(std::fs::remove_file(path))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// The blobs of the store in the folder that are at least this old. Blocks.
    pub(super) fn page(self, min_age: Duration) -> io::Result<BlobPage> {
        let names = self.files(min_age)?.into_iter().map(|(name, _)| name);
        Ok(BlobPage {
            names: names.collect(),
            next: self.next,
        })
    }

    /// The names and paths of the files of the store; other files are ignored.
    fn files(&self, min_age: Duration) -> io::Result<Vec<(String, PathBuf)>> {
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let ours = name
                .to_str()
                .and_then(|name| name.strip_prefix(&self.store));
            let blob = ours.and_then(|rest| rest.strip_prefix('-'));
            let digits = |blob: &&str| {
                blob.len() == 2 * NAME_BYTES && blob.bytes().all(|byte| byte.is_ascii_hexdigit())
            };
            let Some(blob) = blob.filter(digits) else {
                continue;
            };
            if min_age.is_zero() || is_older(&entry, min_age) {
                files.push((blob.to_owned(), entry.path()));
            }
        }
        Ok(files)
    }
}

/// Whether a file was last written longer ago. One that is removed meanwhile, or whose time is not known, is not.
fn is_older(entry: &std::fs::DirEntry, age: Duration) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|elapsed| elapsed > age))
}

/// Removes the files up to the first failure; returns how many were removed. Blocks.
pub(super) fn remove_files(paths: &[PathBuf]) -> (usize, io::Result<()>) {
    for (count, path) in paths.iter().enumerate() {
        if let Err(error) = ignore_not_found(std::fs::remove_file(path)) {
            return (count, Err(error));
        }
    }
    (paths.len(), Ok(()))
}

/// Creates a directory that only its owner can access. The permissions of an existing directory are not changed.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Sets the permissions of a new file: only its owner can access it.
pub(super) fn private(options: &mut OpenOptions) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub(super) fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
