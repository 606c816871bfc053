//! Copies a store that may be in use into a new SQLite file.
//!
//! The file has a temporary name until it is complete, checked and on the disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::copy::copy_snapshot;
use super::engine::Engine;
use super::sqlite::{Sqlite, backup_counts, contents_of, copy_database};
use super::{Store, StoreError, StoreUrl};

/// What the temporary name adds.
const PARTIAL: &str = ".partial";

/// What a backup has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupCounts {
    /// Sessions.
    pub sessions: u64,
    /// Rows of all tables.
    pub rows: u64,
}

/// A checked copy of a store under its temporary name; it is removed if it is not finished.
#[derive(Debug)]
pub struct StoreBackup {
    path: PathBuf,
    partial: PartialFile,
    counts: BackupCounts,
}

#[derive(Debug)]
struct PartialFile(PathBuf);

/// Why a backup could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no source.
    #[error("there is no SQLite store {}; name it with --session-store", .0.display())]
    NoStore(PathBuf),
    /// The source is in the memory of another process.
    #[error("a store in memory cannot be read by another process; set --session-store")]
    InMemory,
    /// Something has the name of the backup.
    #[error("{} already exists; name a path that does not exist", .0.display())]
    TargetExists(PathBuf),
    /// Another backup has the temporary name.
    #[error("another backup to this path is running or was killed; if none is running, remove {}", .0.display())]
    Partial(PathBuf),
    /// The source cannot be read, or the copy of it is not as it should be.
    #[error("cannot copy the session store")]
    Store(#[from] StoreError),
    /// The disk fails.
    #[error("cannot write {}", path.display())]
    Disk {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl StoreBackup {
    /// Copies the state of a store at one moment; `path` must not exist. Processes can serve from the store during the
    /// copy.
    ///
    /// # Errors
    /// See [`BackupError`]. No file is left behind.
    pub async fn make(source: &StoreUrl, path: &Path) -> Result<Self, BackupError> {
        refuse_existing(path)?;
        match source {
            StoreUrl::Memory => return Err(BackupError::InMemory),
            StoreUrl::Sqlite(file) if !file.is_file() => {
                return Err(BackupError::NoStore(file.clone()));
            }
            StoreUrl::Sqlite(_) | StoreUrl::Postgres(_) => {}
        }
        let partial = PartialFile::create(path)?;
        let copy = partial.0.clone();
        match source {
            StoreUrl::Sqlite(file) => {
                let (file, copy) = (file.clone(), copy.clone());
                blocking(move || copy_database(&file, &copy)).await?;
            }
            StoreUrl::Postgres(url) => {
                let target = Store::of(Engine::Sqlite(Sqlite::create(&copy).await?));
                Box::pin(copy_snapshot(url, &target)).await?;
                target.close().await;
            }
            StoreUrl::Memory => {}
        }
        let counts = blocking(move || backup_counts(&copy)).await?;
        Ok(Self {
            path: path.to_owned(),
            partial,
            counts,
        })
    }

    /// The name of the store, and the names and lengths of the contents of its files.
    ///
    /// # Errors
    /// When the copy cannot be read.
    pub async fn contents(&self) -> Result<(String, Vec<(String, u64)>), BackupError> {
        let copy = self.partial.0.clone();
        blocking(move || contents_of(&copy)).await
    }

    /// Gives the copy its name; returns what it has and its bytes.
    ///
    /// # Errors
    /// When the disk fails, or the name was taken meanwhile.
    pub fn finish(self) -> Result<(BackupCounts, u64), BackupError> {
        refuse_existing(&self.path)?;
        let finish = || {
            let file = File::open(&self.partial.0)?;
            file.sync_all()?;
            let bytes = file.metadata()?.len();
            std::fs::rename(&self.partial.0, &self.path)?;
            let folder = std::path::absolute(&self.path)?;
            if let Some(folder) = folder.parent() {
                File::open(folder)?.sync_all()?;
            }
            Ok(bytes)
        };
        let bytes = finish().map_err(|source| BackupError::Disk {
            path: self.path.clone(),
            source,
        })?;
        Ok((self.counts, bytes))
    }
}

impl PartialFile {
    /// Creates it, for its owner only.
    fn create(path: &Path) -> Result<Self, BackupError> {
        let mut name = path.as_os_str().to_owned();
        name.push(PARTIAL);
        let partial = PathBuf::from(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        match options.open(&partial) {
            Ok(_) => {
                // SQLite would take other forms for a URI.
                let path = std::path::absolute(&partial).unwrap_or(partial);
                Ok(Self(path))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(BackupError::Partial(partial))
            }
            Err(source) => Err(BackupError::Disk {
                path: partial,
                source,
            }),
        }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // The first does not exist once it has its final name; the others exist only after a failure.
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut name = self.0.clone().into_os_string();
            name.push(suffix);
            let _may_not_exist = std::fs::remove_file(name);
        }
    }
}

fn refuse_existing(path: &Path) -> Result<(), BackupError> {
    // A link to nothing exists as well.
    match path.symlink_metadata() {
        Ok(_) => Err(BackupError::TargetExists(path.to_owned())),
        Err(_) => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, BackupError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(StoreError::failed)??)
}
