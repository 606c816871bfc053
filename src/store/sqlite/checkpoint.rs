//! Writing the log back into the database file, on blocking threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rusqlite::Connection;
use tokio_util::task::TaskTracker;

use super::super::StoreError;
use super::connections::{Connections, Database, Executor, Fault};
use super::size::Extent;

/// Bytes in the log, about, after which it is written back.
const LOG_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of pages that a write changes besides what it adds: the row of the session, its two indexes, the messages.
const BYTES_PER_WRITE: usize = 24 * 1024;

/// When a file's log is written back.
#[derive(Debug)]
pub(super) struct Checkpoints {
    path: PathBuf,
    writer: Arc<Connections>,
    /// Bytes written since the last one, about.
    written: AtomicUsize,
    running: AtomicBool,
}

impl Checkpoints {
    pub(super) fn of(path: PathBuf, writer: Arc<Connections>) -> Arc<Self> {
        Arc::new(Self {
            path,
            writer,
            written: AtomicUsize::new(0),
            running: AtomicBool::new(false),
        })
    }

    /// Counts a write, and starts a checkpoint when it is time for one.
    pub(super) fn wrote(self: &Arc<Self>, extent: Extent, tasks: &TaskTracker) {
        let bytes = extent.bytes.saturating_add(BYTES_PER_WRITE);
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) < LOG_BYTES || self.running.swap(true, Ordering::Acquire) {
            return;
        }
        self.written.store(0, Ordering::Relaxed);
        let checkpoints = Arc::clone(self);
        tasks.spawn(async move {
            if let Err(error) = checkpoints.write_back().await {
                // The log grows until the next one.
                tracing::warn!(%error, "the log of the session store could not be written back");
            }
            checkpoints.running.store(false, Ordering::Release);
        });
    }

    /// Writes most of the log back beside the writer, and the rest with it, so that the log begins anew.
    async fn write_back(&self) -> Result<(), StoreError> {
        let (path, query_only) = (self.path.clone(), false);
        let beside = tokio::task::spawn_blocking(move || {
            let connection = Database::File { path, query_only }.connect()?;
            passive(&connection)
        });
        beside.await.map_err(StoreError::failed)??;
        let with_writer = self.writer.run(Executor::Thread, |connection, _| {
            passive(connection)?;
            // The first write into a new log waits for the disk: better here than in a task.
            Ok(connection.execute_batch(
                "BEGIN IMMEDIATE; INSERT INTO dead_blobs VALUES (''); DELETE FROM dead_blobs WHERE blob = ''; COMMIT",
            )?)
        });
        with_writer.await
    }
}

/// As far as no reader needs the log; waits for nobody.
fn passive(connection: &Connection) -> Result<(), Fault> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
}

/// Moves all of the log to its place and empties it.
pub(super) fn write_all_back(connection: &Connection) -> Result<(), Fault> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}
