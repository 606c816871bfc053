//! The free space of the disk: checked before a session is created, and reserved for deletions.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::super::{StorageFull, StoreError};
use super::Sqlite;

/// How long a measurement of the free disk space is used.
const DISK_CHECK: Duration = Duration::from_secs(2);

/// The last measurement of the free disk space.
#[derive(Debug)]
pub(super) struct DiskSpace {
    /// A path on the disk; `None` for a store in memory.
    path: Option<PathBuf>,
    state: Mutex<Measurement>,
}

#[derive(Debug, Default)]
struct Measurement {
    at: Option<Instant>,
    /// `None` before the first measurement, and if it fails.
    free: Option<u64>,
}

impl DiskSpace {
    pub(super) fn of(path: Option<PathBuf>) -> Self {
        let state = Mutex::default();
        Self { path, state }
    }

    /// Refuses a new session if less than `least` bytes are free.
    pub(super) fn check(&self, least: u64) -> Result<(), StoreError> {
        match self.state.lock().free {
            Some(free) if free < least => Err(StoreError::Full(StorageFull::Disk { free, least })),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the free space has to be measured: `None` if not, else whether the last measurement refuses new sessions.
    fn is_due(&self, least: u64) -> Option<bool> {
        if least == 0 || self.path.is_none() {
            return None;
        }
        let mut state = self.state.lock();
        let now = Instant::now();
        if state
            .at
            .is_some_and(|at| now.duration_since(at) < DISK_CHECK)
        {
            return None;
        }
        state.at = Some(now);
        Some(state.free.is_none_or(|free| free < least))
    }

    /// Measures the free space. Blocks.
    fn measure(&self) {
        let Some(path) = &self.path else {
            return;
        };
        let free = match rustix::fs::statvfs(path) {
            Ok(found) => Some(found.f_bavail.saturating_mul(found.f_frsize)),
            Err(error) => {
                tracing::warn!(%error, "the free space of the session store's disk is unknown");
                None
            }
        };
        self.state.lock().free = free;
    }
}

impl Sqlite {
    /// Measures the free disk space if the last measurement is too old. Waits for it only if the last one would refuse
    /// a new session.
    pub(crate) async fn measure_disk(&self, least: u64) {
        let Some(wait) = self.0.disk.is_due(least) else {
            return;
        };
        let store = self.clone();
        let measuring = self.0.tasks.spawn_blocking(move || {
            store.0.disk.measure();
            if let Some(reserve) = &store.0.reserve {
                reserve.keep();
            }
        });
        if wait && timeout(DISK_CHECK, measuring).await.is_err() {
            tracing::warn!(
                "the free space of the session store's disk could not be measured in time"
            );
        }
    }

    /// See [`DiskSpace::check`].
    pub(crate) fn check_disk(&self, least: u64) -> Result<(), StoreError> {
        self.0.disk.check(least)
    }
}
