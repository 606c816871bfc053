//! Opens the storage for the files of a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::settings::{
    BlobLocation, SHARED_FILES_DIR, Settings, StoreUrl, default_files_dir,
};
use super::blobs::Blobs;
use super::{FileError, FileLimits, FileStore, Inner};
use blobs::{BlobStorage, StorageUse, check_bucket};
use protocol::ids::random_hex;
use store::{Store, check_directory};

impl FileStore {
    /// Opens the storage for the files of an open store. Leftovers of a crash are removed here if no other process uses
    /// the storage, else by a later [`FileStore::sweep`].
    pub(in crate::session) async fn open(
        store: Store,
        settings: &Settings,
    ) -> Result<Self, FileError> {
        let name = store.name().await?;
        let (location, temporary) = location(settings)?;
        let shown = location.to_string();
        let opened = BlobStorage::open(location, &name, temporary).await;
        let (storage, storage_use) = opened.map_err(|source| FileError::Storage {
            location: shown,
            source,
        })?;
        // A store in a file belongs to one process. Of another one there may be replicas, and a lock in a directory that
        // machines share cannot be trusted to show them.
        let is_exclusive = storage_use == StorageUse::Exclusive && settings.store.file().is_some();
        let next_sweep = (!is_exclusive && !temporary).then(Instant::now);
        let files = Self(Arc::new(Inner {
            store,
            blobs: Arc::new(Blobs::new(storage)),
            limits: FileLimits {
                max_file_bytes: settings.max_file_bytes,
                max_total_bytes: settings.max_total_file_bytes,
            },
            next_sweep: Mutex::new(next_sweep),
        }));
        if is_exclusive {
            files.remove_leftovers_at_start().await;
        }
        if storage_use == StorageUse::Exclusive {
            let shared = files.blobs().storage.share().await;
            shared.map_err(|source| FileError::Io {
                doing: "share the directory",
                source,
            })?;
        }
        files.clean_up().await;
        Ok(files)
    }
}

/// Checks that files can be stored where the settings say. Creates and writes nothing. Returns the location.
///
/// # Errors
/// When the place cannot be used; the text names it.
pub async fn check_files(settings: &Settings) -> Result<String, FileError> {
    let (location, _temporary) = location(settings)?;
    let shown = location.to_string();
    let checked = match location {
        BlobLocation::Directory(path) => {
            let checking = tokio::task::spawn_blocking(move || check_directory(&path));
            checking.await.unwrap_or_else(|error| Err(error.into()))
        }
        BlobLocation::Bucket(bucket) => check_bucket(&bucket).await,
    };
    match checked {
        Ok(()) => Ok(shown),
        Err(source) => Err(FileError::Storage {
            location: shown,
            source,
        }),
    }
}

/// Where the files are, and whether the location is temporary.
fn location(settings: &Settings) -> Result<(BlobLocation, bool), FileError> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|source| FileError::Storage {
            location: format!("the directory {}", path.display()),
            source,
        })
    };
    let directory = |path: PathBuf| absolute(&path).map(BlobLocation::Directory);
    match (&settings.files_dir, settings.store.file()) {
        (Some(BlobLocation::Bucket(bucket)), _) => {
            Ok((BlobLocation::Bucket(bucket.clone()), false))
        }
        (given, None) if settings.store == StoreUrl::Memory => {
            let parent = match given {
                Some(BlobLocation::Directory(path)) => path.clone(),
                Some(BlobLocation::Bucket(_)) | None => std::env::temp_dir(),
            };
            let name = format!("loopwright-files-{}", random_hex::<8>());
            Ok((directory(parent.join(name))?, true))
        }
        (Some(BlobLocation::Directory(path)), _) => Ok((directory(path.clone())?, false)),
        (None, database) => {
            let path = database.map_or_else(|| SHARED_FILES_DIR.into(), default_files_dir);
            Ok((directory(path)?, false))
        }
    }
}
