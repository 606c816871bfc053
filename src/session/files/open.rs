//! Opens the directory for the files of a database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::settings::{Settings, default_files_dir};
use super::blobs::{Blobs, DirectoryUse, blocking};
use super::{FileError, FileLimits, FileStore, Inner};
use crate::ids::random_hex;
use crate::store::Store;

impl FileStore {
    /// Opens the directory for the files of an open database, and removes the leftovers of a crash from it.
    pub(in crate::session) async fn open(
        store: Store,
        settings: &Settings,
    ) -> Result<Self, FileError> {
        let name = store.name().await?;
        let (path, temporary) = directory(settings)?;
        let root = path.clone();
        let opened = blocking("open the directory", move || {
            Blobs::open(root, &name, temporary)
        });
        let (blobs, directory_use) = opened.await.map_err(|error| match error {
            FileError::Io { source, .. } => FileError::Directory { path, source },
            other => other,
        })?;
        let files = Self(Arc::new(Inner {
            store,
            blobs: Arc::new(blobs),
            limits: FileLimits {
                max_file_bytes: settings.max_file_bytes,
                max_total_bytes: settings.max_total_file_bytes,
            },
        }));
        if directory_use == DirectoryUse::Exclusive {
            files.remove_leftovers_at_start().await;
            let blobs = files.blobs().clone();
            blocking("share the directory", move || blobs.share()).await?;
        }
        files.clean_up().await;
        Ok(files)
    }
}

/// The directory for files, and whether it is temporary.
fn directory(settings: &Settings) -> Result<(PathBuf, bool), FileError> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|source| FileError::Directory {
            path: path.to_owned(),
            source,
        })
    };
    match (settings.store.file(), &settings.files_dir) {
        (Some(_), Some(path)) => Ok((absolute(path)?, false)),
        (Some(database), None) => Ok((absolute(&default_files_dir(database))?, false)),
        (None, given) => {
            let parent = given.clone().unwrap_or_else(std::env::temp_dir);
            let name = format!("loopwright-files-{}", random_hex::<8>());
            Ok((absolute(&parent)?.join(name), true))
        }
    }
}
