//! Removes unused files, the contents of deleted files, and leftovers of interrupted writes.

use std::time::Duration;

use super::blobs::{self, blocking};
use super::{FileError, FileStore};

impl FileStore {
    /// Deletes the files that no session uses and that were last used more than `ttl` ago; returns how many.
    ///
    /// # Errors
    /// When the database fails; some files may have been deleted.
    ///
    /// # Cancel safety
    /// Files are deleted in batches, so that other writes can run in between. If the future is dropped, the next call
    /// deletes the rest.
    pub async fn expire(&self, ttl: Duration) -> Result<u64, FileError> {
        let total = self.store().expire_files(ttl).await?;
        self.reap().await?;
        Ok(total)
    }

    /// Removes the contents of deleted files from the disk; returns how many.
    ///
    /// # Errors
    /// When the disk or the database fails; the next call removes the rest.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call removes the rest.
    pub async fn reap(&self) -> Result<u64, FileError> {
        let mut total = self.remove_unconfirmed().await?;
        loop {
            let dead = self.store().dead_blobs().await?;
            if dead.is_empty() {
                return Ok(total);
            }
            let blobs = self.blobs().clone();
            let removing = blocking("remove files", move || Ok(blobs.remove_all(dead)));
            let (removed, failed) = removing.await?;
            total += removed.len() as u64;
            self.store().forget_blobs(removed).await?;
            failed.map_err(|source| FileError::Io {
                doing: "remove a file",
                source,
            })?;
        }
    }

    /// Calls [`FileStore::reap`] after a successful deletion; a failure is only logged.
    pub(in crate::session) async fn clean_up(&self) {
        if let Err(error) = self.reap().await {
            tracing::warn!(%error, "deleted files could not be removed from the disk yet");
        }
    }

    /// Removes the leftovers of a crash. Must run only while no other process uses the directory.
    pub(super) async fn remove_leftovers_at_start(&self) {
        match self.remove_leftovers().await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "leftovers of files removed"),
            Err(error) => tracing::warn!(%error, "leftovers of files could not be removed"),
        }
    }

    /// Removes unfinished files, and blobs without a row.
    async fn remove_leftovers(&self) -> Result<u64, FileError> {
        let blobs = self.blobs().clone();
        let unfinished = blocking("list files", move || blobs.remove_unfinished());
        let mut removed = unfinished.await?;
        for shard in 0..blobs::SHARDS {
            let blobs = self.blobs().clone();
            let found = blocking("list files", move || blobs.blobs_of(shard)).await?;
            if !found.is_empty() {
                removed += self.remove_orphans(&found).await?;
            }
        }
        Ok(removed)
    }

    /// Removes the unconfirmed blobs that have no row.
    async fn remove_unconfirmed(&self) -> Result<u64, FileError> {
        let unconfirmed = self.blobs().unconfirmed();
        if unconfirmed.is_empty() {
            return Ok(0);
        }
        let removed = self.remove_orphans(&unconfirmed).await?;
        self.blobs().confirm(&unconfirmed);
        Ok(removed)
    }

    /// Removes those of the blobs that have no row.
    async fn remove_orphans(&self, found: &[String]) -> Result<u64, FileError> {
        let orphans = self.store().blobs_without_row(found.to_vec()).await?;
        let blobs = self.blobs().clone();
        let removing = blocking("remove files", move || {
            let (removed, failed) = blobs.remove_all(orphans);
            failed.map(|()| removed.len() as u64)
        });
        removing.await
    }
}
