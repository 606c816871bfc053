//! Opens the directory of files that goes with a database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::settings::{Settings, StoreUrl, beside};
use super::super::store::connections::Connections;
use super::super::store::write::Clock;
use super::blobs::{Blobs, Use, blocking};
use super::{FileError, FileStore, Inner, Limits, rows};
use crate::ids::random_hex;

impl FileStore {
    /// Opens the directory that goes with an open database, and removes what a crash has left in it.
    pub(in crate::session) async fn open(
        (writer, reader): (Arc<Connections>, Arc<Connections>),
        clock: Arc<Clock>,
        settings: &Settings,
    ) -> Result<Self, FileError> {
        let mut held = reader.take().await?;
        let name = rows::store_name(held.get()?).await?;
        held.done();
        let (path, temporary) = directory(settings)?;
        let root = path.clone();
        let opened = blocking("open the directory", move || {
            Blobs::open(root, &name, temporary)
        });
        let (blobs, used) = opened.await.map_err(|error| match error {
            FileError::Io { source, .. } => FileError::Directory { path, source },
            other => other,
        })?;
        let store = Self(Arc::new(Inner {
            writer,
            reader,
            clock,
            blobs: Arc::new(blobs),
            limits: Limits {
                max_file_bytes: settings.max_file_bytes,
                max_total_bytes: settings.max_total_file_bytes,
            },
        }));
        if used == Use::Alone {
            store.start_clean().await;
            let blobs = store.blobs().clone();
            blocking("share the directory", move || blobs.share()).await?;
        }
        store.clean_up().await;
        Ok(store)
    }
}

/// Where the files are kept, and whether they go with the process.
fn directory(settings: &Settings) -> Result<(PathBuf, bool), FileError> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|source| FileError::Directory {
            path: path.to_owned(),
            source,
        })
    };
    match (&settings.store, &settings.files_dir) {
        (StoreUrl::Sqlite(_), Some(path)) => Ok((absolute(path)?, false)),
        (StoreUrl::Sqlite(database), None) => Ok((absolute(&beside(database))?, false)),
        (StoreUrl::Memory, given) => {
            let parent = given.clone().unwrap_or_else(std::env::temp_dir);
            let name = format!("loopwright-files-{}", random_hex::<8>());
            Ok((absolute(&parent)?.join(name), true))
        }
    }
}
