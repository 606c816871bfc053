//! SQLite through rusqlite: a file in WAL mode that only this process uses, or memory.
//!
//! There is one connection for writes. Reads of a file use other connections and see the last committed state; reads of
//! memory use the same connection as writes.

mod backup;
mod checkpoint;
mod connections;
mod disk;
mod expiry;
mod migrate;
mod open;
mod reserve;
mod statements;
#[cfg(test)]
mod tests;
mod turns;
mod write;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub(super) use self::backup::{backup_counts, contents_of, copy_database};
use self::checkpoint::Checkpoints;
use self::connections::Connections;
use self::disk::DiskSpace;
use self::reserve::DiskReserve;
pub(super) use self::statements::SqliteTx;
use self::write::SessionWrite;
use super::StoreError;
use super::clock::Clock;
use super::leases::{Fence, Leases};
use super::limits::Growth;
use super::record::{Change, Replaced, SessionSummary};
use super::shares::StatementSize;
use protocol::ids::Owner;

/// Longest wait for each step of closing. Data that is not written back by then stays in the write-ahead log.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// An SQLite database; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Sqlite(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Arc<Connections>,
    /// The same as `writer` where the database is in memory.
    reader: Arc<Connections>,
    checkpoints: Option<Arc<Checkpoints>>,
    clock: Arc<Clock>,
    disk: DiskSpace,
    /// The disk space that is reserved for deletions; none in memory.
    reserve: Option<DiskReserve>,
    leases: Leases,
    tasks: TaskTracker,
    /// The lock that keeps other processes from opening the file until the store is closed.
    lock: Mutex<Option<File>>,
    /// Whether an older version of the program has made the database.
    upgraded: bool,
}

impl Sqlite {
    pub(super) async fn open(file: Option<&Path>) -> Result<Self, StoreError> {
        let file = file.map(ToOwned::to_owned);
        let opened = tokio::task::spawn_blocking(move || open::open(file.as_deref())).await;
        let opened = opened.map_err(StoreError::failed)??;
        let writer = Arc::clone(&opened.writer);
        let store = Self(Arc::new(Inner {
            disk: DiskSpace::of(opened.path.clone()),
            reserve: opened.path.as_deref().map(DiskReserve::beside),
            checkpoints: opened.path.map(|path| Checkpoints::of(path, writer)),
            writer: opened.writer,
            reader: opened.reader,
            clock: opened.clock,
            leases: Leases::default(),
            tasks: TaskTracker::new(),
            lock: Mutex::new(opened.lock),
            upgraded: opened.upgraded,
        }));
        store.keep_reserve();
        if let Some(checkpoints) = &store.0.checkpoints {
            // The log holds a new schema too, and the writes of a process that was killed.
            checkpoints.start_when_idle(&store.0.tasks);
        }
        Ok(store)
    }

    /// A store on one connection, without a lock and checkpoints.
    fn unattended(connections: Arc<Connections>, clock: Arc<Clock>) -> Self {
        Self(Arc::new(Inner {
            disk: DiskSpace::of(None),
            reserve: None,
            checkpoints: None,
            reader: Arc::clone(&connections),
            writer: connections,
            clock,
            leases: Leases::default(),
            tasks: TaskTracker::new(),
            lock: Mutex::default(),
            upgraded: false,
        }))
    }

    pub(super) fn was_upgraded(&self) -> bool {
        self.0.upgraded
    }

    pub(super) fn leases(&self) -> &Leases {
        &self.0.leases
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    pub(super) fn share_connections(&self, shared: bool) {
        self.0.reader.share(shared);
        self.0.writer.share(shared);
    }

    pub(super) fn mark_leased(&self, owner: &Owner, page: &mut [SessionSummary]) {
        for entry in page {
            entry.running = self.0.leases.is_leased(owner, &entry.id);
        }
    }

    /// Statements that only read, each on its own.
    pub(super) async fn read(
        &self,
        owner: &Owner,
        size: StatementSize,
    ) -> Result<SqliteTx, StoreError> {
        self.statements(&self.0.reader, owner, size).await
    }

    /// Statements, each on its own.
    pub(super) async fn single(
        &self,
        owner: &Owner,
        size: StatementSize,
    ) -> Result<SqliteTx, StoreError> {
        let tx = self.statements(&self.0.writer, owner, size).await?;
        Ok(SqliteTx { writes: true, ..tx })
    }

    /// Begins a transaction.
    pub(super) async fn begin(
        &self,
        owner: &Owner,
        size: StatementSize,
    ) -> Result<SqliteTx, StoreError> {
        let mut tx = self.single(owner, size).await?;
        tx.checkout
            .run(|connection| statements::begin(connection))
            .await?;
        tx.open = true;
        Ok(tx)
    }

    async fn statements(
        &self,
        connections: &Arc<Connections>,
        owner: &Owner,
        size: StatementSize,
    ) -> Result<SqliteTx, StoreError> {
        Ok(SqliteTx {
            checkout: connections.checkout(owner, size).await?,
            store: self.clone(),
            open: false,
            writes: false,
            bytes: 0,
            holds: Vec::new(),
        })
    }

    /// Changes a session, or replaces it if a time of creation is given. If `admit` refuses its new size, nothing is
    /// changed, and the inner error says how many bytes it would add.
    pub(super) async fn write(
        &self,
        fence: &Fence,
        (change, created_at): (&Change, Option<i64>),
        admit: impl Fn(Growth) -> Result<bool, StoreError>,
    ) -> Result<Result<Replaced, u64>, StoreError> {
        let _hold = self.0.leases.pin(fence)?;
        let bytes = change.weight();
        let size = match created_at {
            // It also deletes the messages that it replaces.
            Some(_) => StatementSize::Large,
            None => StatementSize::of_bytes(bytes as u64),
        };
        let mut checkout = self.0.writer.checkout(&fence.owner, size).await?;
        let write = SessionWrite {
            fence,
            change,
            created_at,
        };
        let done = checkout.run(|connection| {
            let done = write::write(connection, write, &admit, self.0.clock.stamp());
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK")?;
            }
            done
        });
        let done = done.await?;
        self.count_written(bytes);
        Ok(done)
    }

    pub(super) async fn close(&self) {
        if let Some(checkpoints) = &self.0.checkpoints {
            checkpoints.stop();
        }
        self.0.tasks.close();
        let tasks = timeout(CLOSE_WAIT, self.0.tasks.wait()).await.is_ok();
        let kept = timeout(CLOSE_WAIT, self.keep_expiry_time()).await;
        let kept = self.0.writer.is_closed() || kept.is_ok_and(|kept| kept.is_ok());
        // Readers first: the whole log can be written back only if there are no readers. In memory this closes the
        // writer as well, and there is no log.
        let readers = self.0.reader.close(CLOSE_WAIT).await;
        let write_back = async {
            let server = Owner::server();
            let checkout = self.0.writer.checkout(&server, StatementSize::Large).await;
            let mut checkout = checkout?;
            checkout
                .run(|connection| checkpoint::write_all_back(connection))
                .await
        };
        let written_back = self.0.writer.is_closed()
            || timeout(CLOSE_WAIT, write_back)
                .await
                .is_ok_and(|result| result.is_ok());
        let writer = self.0.writer.close(CLOSE_WAIT).await;
        drop(self.0.lock.lock().take());
        if !(tasks && kept && readers && written_back && writer) {
            // No data is lost: committed data is in the log, which is read at the next start.
            tracing::warn!(
                tasks,
                kept,
                readers,
                written_back,
                writer,
                "session store not closed in order"
            );
        }
    }

    /// Counts bytes that were written, and starts a checkpoint when the log is large enough.
    fn count_written(&self, bytes: usize) {
        if let Some(checkpoints) = &self.0.checkpoints {
            checkpoints.count_written(bytes, &self.0.tasks);
        }
    }
}
