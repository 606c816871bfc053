//! Removing unused files, the bytes of deleted files, and leftovers of writes that broke off.

use std::time::Duration;

use super::blobs::{self, blocking};
use super::{FileError, FileStore};

impl FileStore {
    /// Deletes the files that no session uses and that were not used for so long; returns how many.
    ///
    /// # Errors
    /// When the database fails; some of them may be gone then.
    ///
    /// # Cancel safety
    /// Deletes a few at a time, so that other writes come in between; a dropped future leaves the rest for next time.
    pub async fn expire(&self, ttl: Duration) -> Result<u64, FileError> {
        let total = self.store().expire_files(ttl).await?;
        self.reap().await?;
        Ok(total)
    }

    /// Removes the bytes of deleted files from the disk; returns how many files that were.
    ///
    /// # Errors
    /// When the disk or the database fails; the rest is left for next time.
    ///
    /// # Cancel safety
    /// A dropped future leaves the rest for next time.
    pub async fn reap(&self) -> Result<u64, FileError> {
        let mut total = self.settle_doubts().await?;
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

    /// [`FileStore::reap`] after a deletion that has succeeded; a failure is only logged.
    pub(in crate::session) async fn clean_up(&self) {
        if let Err(error) = self.reap().await {
            tracing::warn!(%error, "deleted files could not be removed from the disk yet");
        }
    }

    /// Removes the leftovers of a process that has ended; only while no other process uses the directory.
    pub(super) async fn start_clean(&self) {
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

    /// Removes the blobs of writes that nobody waited for, unless they have a row.
    async fn settle_doubts(&self) -> Result<u64, FileError> {
        let doubtful = self.blobs().in_doubt();
        if doubtful.is_empty() {
            return Ok(0);
        }
        let removed = self.remove_orphans(&doubtful).await?;
        self.blobs().settled(&doubtful);
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
