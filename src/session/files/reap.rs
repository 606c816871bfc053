//! Files that go: those not used for long, the bytes of deleted ones, and what writes that broke off have left.

use std::time::Duration;

use super::blobs::{self, blocking};
use super::{FileError, FileStore, rows};

impl FileStore {
    /// Deletes the files that no session uses and that were not used for so long; returns how many.
    ///
    /// # Errors
    /// When the database fails; some of them may be gone then.
    ///
    /// # Cancel safety
    /// Deletes a few at a time, so that other writes come in between; a dropped future leaves the rest for next time.
    pub async fn expire(&self, ttl: Duration) -> Result<u64, FileError> {
        let ttl_us = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        let before = self.now().saturating_sub(ttl_us);
        let mut total = 0;
        loop {
            let mut held = self.0.writer.take().await?;
            let deleted = rows::expire_some(held.get()?, before).await?;
            held.done();
            total += deleted;
            if deleted < rows::BATCH.unsigned_abs() {
                break;
            }
        }
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
            let mut held = self.0.reader.take().await?;
            let dead = rows::dead_blobs(held.get()?).await?;
            held.done();
            if dead.is_empty() {
                return Ok(total);
            }
            let blobs = self.blobs().clone();
            let removing = blocking("remove files", move || Ok(blobs.remove_all(dead)));
            let (removed, failed) = removing.await?;
            let mut held = self.0.writer.take().await?;
            rows::bury(held.get()?, &removed).await?;
            held.done();
            total += removed.len() as u64;
            failed.map_err(|source| FileError::Io {
                doing: "remove a file",
                source,
            })?;
        }
    }

    /// [`FileStore::reap`] after what is done already and does not fail any more.
    pub(in crate::session) async fn clean_up(&self) {
        if let Err(error) = self.reap().await {
            tracing::warn!(%error, "deleted files could not be removed from the disk yet");
        }
    }

    /// Removes what a process that has ended has left; only for who has the directory alone.
    pub(super) async fn start_clean(&self) {
        match self.remove_leftovers().await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "leftovers of files removed"),
            Err(error) => tracing::warn!(%error, "leftovers of files could not be removed"),
        }
    }

    /// Removes what is on disk and was never finished or has no row.
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

    /// Sees to the writes that nobody waited for to the end.
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
        // The writer's turn, because a write that was broken off is undone only when it comes to the next one.
        let mut held = self.0.writer.take().await?;
        let orphans = rows::without_row(held.get()?, found).await?;
        held.done();
        let blobs = self.blobs().clone();
        let removing = blocking("remove files", move || {
            let (removed, failed) = blobs.remove_all(orphans);
            failed.map(|()| removed.len() as u64)
        });
        removing.await
    }
}
