//! Checkpoints: writes the write-ahead log back into the database file, on blocking threads: when the log is large, and when
//! nothing was written for some time, so that a copy of the file alone has everything.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::StoreError;
use super::super::shares::StatementSize;
use super::connections::{Connections, Database, StatementError};
use protocol::ids::Owner;

/// Largest log, in bytes and approximately, at which a checkpoint starts.
/// Tried by `sqlite::file::the_log_is_written_back_while_the_store_is_open`.
const LOG_BYTES: usize = 4 * 1024 * 1024;
/// Size of the pages that a write changes besides its new data, in bytes: the session's row, its two indexes, the
/// messages.
const BYTES_PER_WRITE: usize = 24 * 1024;
/// How long there must be no write before a checkpoint of a small log.
const IDLE: Duration = Duration::from_secs(2);

/// Most passes beside the writer. Each writes back what was written during the one before it.
const MOST_PASSES: u32 = 6;
/// Most frames, of a page each, that are left to the writer's connection.
const FEW_FRAMES: i64 = 64;

/// Starts the checkpoints of a file.
#[derive(Debug)]
pub(super) struct Checkpoints {
    path: PathBuf,
    writer: Arc<Connections>,
    /// Approximate bytes written since the last checkpoint.
    written: AtomicUsize,
    running: AtomicBool,
    /// The number of writes.
    writes: AtomicU64,
    /// Whether a task waits until there are no writes.
    awaits_idle: AtomicBool,
    stop: CancellationToken,
}

impl Checkpoints {
    pub(super) fn of(path: PathBuf, writer: Arc<Connections>) -> Arc<Self> {
        Arc::new(Self {
            path,
            writer,
            written: AtomicUsize::new(0),
            running: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            awaits_idle: AtomicBool::new(false),
            stop: CancellationToken::new(),
        })
    }

    /// Counts a write, and starts a checkpoint when the log is large enough.
    pub(super) fn count_written(self: &Arc<Self>, bytes: usize, tasks: &TaskTracker) {
        self.start_when_idle(tasks);
        let bytes = bytes.saturating_add(BYTES_PER_WRITE);
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) < LOG_BYTES || self.running.load(Ordering::Relaxed) {
            return;
        }
        let checkpoints = Arc::clone(self);
        tasks.spawn(async move { checkpoints.run().await });
    }

    /// Starts a checkpoint when there were no writes for some time.
    pub(super) fn start_when_idle(self: &Arc<Self>, tasks: &TaskTracker) {
        self.writes.fetch_add(1, Ordering::SeqCst);
        if self.awaits_idle.swap(true, Ordering::SeqCst) {
            return;
        }
        let checkpoints = Arc::clone(self);
        tasks.spawn(async move {
            let idle = checkpoints.idle();
            if checkpoints.stop.run_until_cancelled(idle).await == Some(true) {
                checkpoints.run().await;
            }
        });
    }

    /// Ends the wait for an idle store. Closing the store writes its log back.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until there are no writes; `false` if another task does.
    async fn idle(&self) -> bool {
        let mut seen = self.writes.load(Ordering::SeqCst);
        loop {
            tokio::time::sleep(IDLE).await;
            self.awaits_idle.store(false, Ordering::SeqCst);
            let writes = self.writes.load(Ordering::SeqCst);
            // A later write starts a task of its own, unless this one continues.
            if writes == seen {
                return true;
            }
            if self.awaits_idle.swap(true, Ordering::SeqCst) {
                return false;
            }
            seen = writes;
        }
    }

    /// Makes a checkpoint, unless one is running.
    async fn run(&self) {
        if self.running.swap(true, Ordering::Acquire) {
            return;
        }
        self.written.store(0, Ordering::Relaxed);
        if let Err(error) = self.write_back().await {
            // The log grows until the next checkpoint.
            tracing::warn!(%error, "the log of the session store could not be written back");
        }
        self.running.store(false, Ordering::Release);
    }

    /// Writes most of the log back on a separate connection while writes continue, then the few remaining frames on the
    /// writer's connection, so that the log restarts.
    async fn write_back(&self) -> Result<(), StoreError> {
        let (path, query_only) = (self.path.clone(), false);
        let beside = tokio::task::spawn_blocking(move || {
            let connection = Database::File { path, query_only }.connect()?;
            let mut frames = 0;
            for _ in 0..MOST_PASSES {
                let before = frames;
                frames = passive(&connection)?;
                if frames - before <= FEW_FRAMES {
                    break;
                }
            }
            Ok::<_, StatementError>(())
        });
        beside.await.map_err(StoreError::failed)??;
        let server = Owner::server();
        let writer = self.writer.checkout(&server, StatementSize::Large).await;
        let mut writer = writer?;
        let written = writer.run(|connection| {
            passive(connection)?;
            // The first write into a restarted log syncs the disk. It is done here so that no task has to wait for it.
            Ok(connection.execute_batch(
                "BEGIN IMMEDIATE; INSERT INTO dead_blobs VALUES (''); DELETE FROM dead_blobs WHERE blob = ''; COMMIT",
            )?)
        });
        written.await
    }
}

/// Writes back as much of the log as readers and writers allow, without waiting. Returns the frames of the log.
fn passive(connection: &Connection) -> Result<i64, StatementError> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?)
}

/// Writes back the whole log and truncates it.
pub(super) fn write_all_back(connection: &Connection) -> Result<(), StatementError> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}
