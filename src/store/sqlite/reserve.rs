//! Disk space that is reserved for deletions: a file beside the database. A full disk refuses every write, also the
//! deletions with which an operator frees space. The file is deleted for them, and made again once there is space.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::Sqlite;

/// Size of the reserve, in bytes: what the log of many deletions takes.
const BYTES: u64 = 8 * 1024 * 1024;
/// Threshold of free space below which the reserve is given up, in bytes: a few writes.
const SCARCE: u64 = 1024 * 1024;
/// Threshold of free space from which on the reserve is made, in bytes, so that it takes nothing that turns need.
const AMPLE: u64 = 8 * BYTES;

/// The reserve of a database file.
#[derive(Debug, Clone)]
pub(super) struct DiskReserve {
    path: PathBuf,
}

impl DiskReserve {
    pub(super) fn beside(database: &Path) -> Self {
        let mut name = database.to_owned().into_os_string();
        name.push(".reserve");
        Self { path: name.into() }
    }

    /// Gives the space up if the disk is full. Blocks.
    pub(super) fn give_up_if_full(&self) {
        if self.free().is_none_or(|free| free >= SCARCE) {
            return;
        }
        match fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!(
                path = %self.path.display(),
                "the disk of the session store is full; the space that was kept for deletions is used"
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "the space for deletions could not be freed"),
        }
    }

    /// Makes the reserve if it is missing and there is space. Blocks.
    pub(super) fn keep(&self) {
        if self.path.exists() || self.free().is_none_or(|free| free < AMPLE) {
            return;
        }
        if let Err(error) = self.create() {
            // Some file systems cannot set space aside.
            tracing::debug!(%error, "no space can be kept for deletions");
            let _none = fs::remove_file(&self.path);
        }
    }

    fn create(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.create_new(true).write(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        let file: File = options.open(&self.path)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, BYTES)?)
    }

    /// The free bytes of the disk; `None` if they are unknown.
    fn free(&self) -> Option<u64> {
        let found = statvfs(self.path.parent()?).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

impl Sqlite {
    /// Makes space for a deletion if the disk is full.
    pub(crate) async fn make_space_to_delete(&self) {
        let Some(reserve) = self.0.reserve.clone() else {
            return;
        };
        let made = tokio::task::spawn_blocking(move || reserve.give_up_if_full());
        if let Err(error) = made.await {
            tracing::warn!(%error, "the space for deletions could not be freed");
        }
    }

    /// Makes the reserve again if it was given up and there is space.
    pub(crate) fn keep_reserve(&self) {
        if let Some(reserve) = self.0.reserve.clone() {
            self.0.tasks.spawn_blocking(move || reserve.keep());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_made_once_and_stays_while_there_is_space() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = DiskReserve::beside(&directory.path().join("x.db"));
        reserve.keep();
        let kept = fs::metadata(directory.path().join("x.db.reserve")).unwrap();
        assert_eq!(kept.len(), BYTES);
        reserve.keep();
        reserve.give_up_if_full();
        assert!(reserve.path.exists());
    }
}
