//! The bytes of files (blobs): in a directory, which several processes may share, or in S3-compatible object storage.
//!
//! A blob has a name, is made of a complete local file, and never changes. Unfinished files are always local. Does not
//! depend on owners, rows and limits.
//!
//! [`segments`] has texts in parts; some parts are read from blobs as base64.

#[cfg_attr(not(feature = "s3"), path = "no_bucket.rs")]
mod bucket;
mod directory;
mod read;
pub mod segments;
pub mod settings;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::bucket::check as check_bucket;
use self::bucket::{Bucket, BucketObject};
use self::directory::Directory;
pub use self::read::BlobReader;
pub(crate) use self::read::LocalBlob;
use self::settings::BlobLocation;

/// Number of random bytes in a blob's name, which is their hexadecimal form.
pub const NAME_BYTES: usize = 16;

/// The bytes of a file, for reading; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    place: BlobPlace,
    length: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BlobPlace {
    File(Arc<Path>),
    Object(BucketObject),
}

/// The storage of blobs.
#[derive(Debug)]
pub enum BlobStorage {
    /// In a directory.
    Directory(Directory),
    /// In object storage.
    Bucket(Bucket),
}

/// Some of the blobs of a storage.
#[derive(Debug, Default)]
pub struct BlobPage {
    /// Their names.
    pub names: Vec<String>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<String>,
}

/// Whether another process uses the files of the same store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageUse {
    /// Only this process does, so every unfinished file is a leftover.
    Exclusive,
    /// Others may.
    Shared,
}

impl Blob {
    /// The bytes of a local file of this length.
    pub fn file(path: impl Into<Arc<Path>>, length: u64) -> Self {
        Self {
            place: BlobPlace::File(path.into()),
            length,
        }
    }

    /// The number of bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The path, if it is a local file.
    pub fn as_file(&self) -> Option<&Arc<Path>> {
        match &self.place {
            BlobPlace::File(path) => Some(path),
            BlobPlace::Object(_) => None,
        }
    }

    /// Whether all of it exists. If that cannot be found out, it is assumed: reading it then fails.
    pub async fn exists(&self) -> bool {
        match &self.place {
            BlobPlace::File(path) => {
                let metadata = tokio::fs::metadata(path).await;
                metadata.is_ok_and(|metadata| metadata.len() == self.length)
            }
            BlobPlace::Object(object) => match object.length().await {
                Ok(length) => length == self.length,
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            },
        }
    }

    /// Opens a range of the bytes.
    ///
    /// # Errors
    /// `NotFound` if the blob was removed; else when the storage fails.
    pub async fn read(&self, range: Range<u64>) -> io::Result<BlobReader> {
        match &self.place {
            BlobPlace::File(path) => BlobReader::file(path, range).await,
            BlobPlace::Object(object) => BlobReader::object(object, range).await,
        }
    }

    /// The blob as a local file: itself, or a copy that is removed when it is dropped.
    ///
    /// # Errors
    /// As [`Blob::read`], or when the disk fails.
    pub async fn local(&self) -> io::Result<LocalBlob> {
        match &self.place {
            BlobPlace::File(path) => Ok(LocalBlob::itself(path.clone())),
            BlobPlace::Object(object) => object.copy(self.length).await,
        }
    }
}

impl BlobStorage {
    /// Opens the storage for the files of one store; creates the directory if necessary. A temporary directory is deleted
    /// when the storage is closed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn open(
        location: BlobLocation,
        store: &str,
        temporary: bool,
    ) -> io::Result<(Self, StorageUse)> {
        match location {
            BlobLocation::Directory(root) => {
                let store = store.to_owned();
                let opened = blocking(move || Directory::open(root, &store, temporary));
                let (directory, storage_use) = opened.await?;
                Ok((Self::Directory(directory), storage_use))
            }
            BlobLocation::Bucket(settings) => {
                let bucket = Bucket::open(&settings, store).await?;
                Ok((Self::Bucket(bucket), StorageUse::Shared))
            }
        }
    }

    /// The path of an unfinished file.
    pub fn unfinished_path(&self, name: &str) -> PathBuf {
        match self {
            Self::Directory(directory) => directory.unfinished_path(name),
            Self::Bucket(bucket) => bucket.unfinished_path(name),
        }
    }

    /// Whether the unfinished file stays when its blob is placed.
    pub fn copies(&self) -> bool {
        matches!(self, Self::Bucket(_))
    }

    /// A blob of this length.
    pub fn blob(&self, name: &str, length: u64) -> Blob {
        let place = match self {
            Self::Directory(directory) => BlobPlace::File(directory.path(name).into()),
            Self::Bucket(bucket) => BlobPlace::Object(bucket.object(name)),
        };
        Blob { place, length }
    }

    /// Makes a blob of the unfinished file with this name, so that it outlives a crash. `file` is the handle of that
    /// file.
    ///
    /// # Errors
    /// When the storage fails. There may be a blob then.
    ///
    /// # Cancel safety
    /// If the future is dropped, there may be a blob later; the parts of an unfinished one are removed.
    pub async fn place(&self, name: &str, file: File) -> io::Result<()> {
        match self {
            Self::Directory(directory) => {
                let renaming = directory.placing(name);
                blocking(move || renaming.place(&file)).await
            }
            Self::Bucket(bucket) => bucket.upload(name, file).await,
        }
    }

    /// Removes blobs up to the first failure; returns the removed ones.
    pub async fn remove_all(&self, names: Vec<String>) -> (Vec<String>, io::Result<()>) {
        match self {
            Self::Directory(directory) => {
                let paths: Vec<_> = names.iter().map(|name| directory.path(name)).collect();
                let removing = blocking(move || Ok(directory::remove_files(&paths)));
                match removing.await {
                    Ok((count, result)) => {
                        let gone = names.into_iter().take(count).collect();
                        (gone, result)
                    }
                    Err(error) => (Vec::new(), Err(error)),
                }
            }
            Self::Bucket(bucket) => bucket.remove_all(names).await,
        }
    }

    /// Removes the unfinished files that were not written for this time; returns how many. Storages remove the parts of
    /// unfinished uploads by a rule of their own.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn remove_unfinished(&self, unused_for: Duration) -> io::Result<u64> {
        match self {
            Self::Directory(directory) => {
                let folder = directory.unfinished();
                blocking(move || folder.remove_older_than(unused_for)).await
            }
            Self::Bucket(_) => Ok(0),
        }
    }

    /// A page of the blobs of the store that are at least this old.
    ///
    /// # Errors
    /// When the storage fails.
    pub async fn page(&self, start: Option<String>, min_age: Duration) -> io::Result<BlobPage> {
        match self {
            Self::Directory(directory) => {
                let folder = directory.shard(start.as_deref());
                blocking(move || folder.page(min_age)).await
            }
            Self::Bucket(bucket) => bucket.page(start.as_deref(), min_age).await,
        }
    }

    /// Checks that the storage responds.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.ping().await,
            Self::Bucket(bucket) => bucket.ping().await,
        }
    }

    /// Allows other processes to use the directory, after the leftovers are removed.
    ///
    /// # Errors
    /// When the lock fails.
    pub async fn share(&self) -> io::Result<()> {
        match self {
            Self::Directory(directory) => {
                let lock = directory.lock()?;
                blocking(move || lock.lock_shared()).await
            }
            Self::Bucket(_) => Ok(()),
        }
    }

    /// Ends running uploads, and deletes temporary files.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn close(&self) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.delete_temporary(),
            Self::Bucket(bucket) => bucket.close().await,
        }
    }
}

/// Runs blocking work on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other).flatten()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    async fn open(root: &TempDir) -> (BlobStorage, StorageUse) {
        let location = BlobLocation::Directory(root.path().join("files"));
        BlobStorage::open(location, "store", false).await.unwrap()
    }

    fn unfinished(storage: &BlobStorage, name: &str) -> File {
        File::create_new(storage.unfinished_path(name)).unwrap()
    }

    #[tokio::test]
    async fn what_another_process_writes_is_no_leftover_before_a_day_has_passed() {
        let root = tempfile::tempdir().unwrap();
        let (one, first) = open(&root).await;
        one.share().await.unwrap();
        let (two, second) = open(&root).await;
        assert_eq!((first, second), (StorageUse::Exclusive, StorageUse::Shared));
        let [running, placed, left] = ["0", "1", "2"].map(|digit| digit.repeat(2 * NAME_BYTES));
        let _running = unfinished(&one, &running);
        one.place(&placed, unfinished(&one, &placed)).await.unwrap();
        let old = unfinished(&one, &left);
        old.set_modified(std::time::SystemTime::now() - 2 * DAY)
            .unwrap();
        assert_eq!(two.remove_unfinished(DAY).await.unwrap(), 1);
        assert!(one.unfinished_path(&running).exists());
        let mut found = Vec::new();
        for min_age in [DAY, Duration::ZERO] {
            let mut start = None;
            loop {
                let page = two.page(start, min_age).await.unwrap();
                found.extend(page.names.into_iter().map(|name| (min_age, name)));
                start = page.next;
                if start.is_none() {
                    break;
                }
            }
        }
        assert_eq!(found, [(Duration::ZERO, placed.clone())]);
        assert!(two.blob(&placed, 0).exists().await);
        let (gone, result) = two.remove_all(vec![placed.clone(), running]).await;
        result.unwrap();
        assert_eq!(gone.len(), 2);
        assert!(!one.blob(&placed, 0).exists().await);
    }
}
