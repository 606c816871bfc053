//! Removes unused files, the contents of deleted files, and leftovers of interrupted writes.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::{FileError, FileStore};

/// How long an unfinished file, or a blob without a row, is no leftover while others use the storage, and how often
/// leftovers are looked for meanwhile. No upload takes that long, and the clocks of two machines do not differ that
/// much.
/// Tried by `file_storage::leftovers_of_others_are_removed_after_a_day`.
const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 60 * 60);

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

    /// Removes the contents of deleted files; returns how many.
    ///
    /// # Errors
    /// When the storage or the database fails; the next call removes the rest.
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
            let (removed, failed) = self.blobs().storage.remove_all(dead).await;
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

    /// Removes what other processes have left behind, once a day; returns how much.
    ///
    /// # Errors
    /// When the storage or the database fails; the rest is removed a day later.
    ///
    /// # Cancel safety
    /// If the future is dropped, a later call removes the rest.
    pub async fn sweep(&self) -> Result<u64, FileError> {
        {
            let mut next = self.0.next_sweep.lock();
            let now = Instant::now();
            if next.is_none_or(|next| now < next) {
                return Ok(0);
            }
            *next = now.checked_add(LEFTOVER_AGE);
        }
        self.remove_leftovers(LEFTOVER_AGE).await
    }

    /// Removes the leftovers of a crash. Must run only while no other process uses the directory.
    pub(super) async fn remove_leftovers_at_start(&self) {
        match self.remove_leftovers(Duration::ZERO).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "leftovers of files removed"),
            Err(error) => tracing::warn!(%error, "leftovers of files could not be removed"),
        }
    }

    /// Removes unfinished files, and blobs without a row, of at least this age.
    async fn remove_leftovers(&self, age: Duration) -> Result<u64, FileError> {
        let storage = &self.blobs().storage;
        let mut removed = storage.remove_unfinished(age).await.map_err(listing)?;
        let mut start = None;
        loop {
            let page = storage.page(start, age).await.map_err(listing)?;
            if !page.names.is_empty() {
                removed += self.remove_orphans(&page.names).await?;
            }
            if page.next.is_none() {
                return Ok(removed);
            }
            start = page.next;
        }
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

    /// Removes the blobs that have no row.
    async fn remove_orphans(&self, found: &[String]) -> Result<u64, FileError> {
        let orphans = self.store().blobs_without_row(found.to_vec()).await?;
        let (removed, failed) = self.blobs().storage.remove_all(orphans).await;
        failed.map_err(|source| FileError::Io {
            doing: "remove a file",
            source,
        })?;
        Ok(removed.len() as u64)
    }
}

fn listing(source: io::Error) -> FileError {
    FileError::Io {
        doing: "list files",
        source,
    }
}
