//! The connections to a database, and the choice of where a statement runs.
//!
//! The owners of statements share the connections. All statements run in the calling task. While a large one does, the other
//! tasks of its worker move to other workers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::super::StoreError;
use super::super::clock::Clock;
use super::super::shares::{ConnectionShare, ConnectionShares, StatementSize};
use net::polling::block_in_place_if;
use protocol::ids::Owner;

/// Number of connections that only small statements get, where there are more.
const KEPT: u32 = 1;
/// Longest wait for a connection; after it the operation fails. A checkpoint holds the writer's connection while it syncs the
/// disk, which takes many seconds on a machine that writes much else.
/// Tried by `connections::a_write_waits_while_the_disk_is_slow`.
const CONNECTION_WAIT: Duration = Duration::from_secs(30);
/// Longest wait for the file lock of another process, such as a backup. After it the operation fails.
/// Tried by `store::a_file_that_another_process_has_locked_stops_nothing_but_its_own_writes`.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Pause between two attempts to get that lock.
/// Tried by `sqlite::limits::a_file_that_another_process_has_locked_does_not_block_other_tasks`.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Most statements that a connection keeps prepared; there are fewer.
/// Tried by `connections::a_statement_is_prepared_once_whatever_its_parameters`.
const PREPARED_STATEMENTS: usize = 128;

/// Why a statement failed.
#[derive(Debug)]
pub(super) enum StatementError {
    /// SQLite failed.
    Sqlite(rusqlite::Error),
    /// The operation is refused.
    Store(StoreError),
}

/// How to open a connection.
#[derive(Debug)]
pub(super) enum Database {
    /// A file, for writing or for reading only.
    File { path: PathBuf, query_only: bool },
    /// Memory; every connection is a separate database.
    Memory,
}

/// Opens connections alike, with the functions that statements of both engines name.
#[derive(Debug)]
pub(super) struct SqliteConnector {
    pub(super) database: Database,
    pub(super) clock: Arc<Clock>,
}

/// A pool of connections to one database, opened on demand.
#[derive(Debug)]
pub(super) struct Connections {
    connector: SqliteConnector,
    limit: u32,
    shares: ConnectionShares,
    /// One permit for each connection of the pool. The owner of a share waits for a permit only while the pool is
    /// closed.
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

/// A connection in use by one caller; returned to the pool on drop.
#[derive(Debug)]
pub(super) struct Checkout {
    connection: Option<Connection>,
    size: StatementSize,
    from: Arc<Connections>,
    /// Released after the connection is returned.
    _permit: OwnedSemaphorePermit,
    _share: ConnectionShare,
}

impl Database {
    /// Opens a connection and applies the settings of all connections. Blocks.
    pub(super) fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match self {
            Self::File { path, .. } => Connection::open_with_flags(path, flags)?,
            Self::Memory => Connection::open_in_memory()?,
        };
        connection.busy_timeout(BUSY_WAIT)?;
        connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
        // Plans do not depend on the values of parameters. Otherwise SQLite prepares some statements again for each new value.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        if let Self::File { .. } = self {
            // Checkpoints run on separate threads, not within a write.
            connection.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0",
            )?;
        }
        // Temporary tables could hold conversations, which must not be written to a shared temporary directory.
        connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY")?;
        if let Self::File {
            query_only: true, ..
        } = self
        {
            connection.execute_batch("PRAGMA query_only = ON")?;
        }
        connection.busy_timeout(Duration::ZERO)?;
        Ok(connection)
    }
}

impl SqliteConnector {
    /// Opens a connection. Blocks.
    pub(super) fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = self.database.connect()?;
        let volatile = FunctionFlags::SQLITE_UTF8;
        let clock = Arc::clone(&self.clock);
        connection.create_scalar_function("micros_1", 0, volatile, move |_| Ok(clock.stamp()))?;
        let clock = Arc::clone(&self.clock);
        connection.create_scalar_function("expiry_time_4", 0, volatile, move |_| {
            Ok(clock.expiry_time())
        })?;
        // The only process that uses the database is this one.
        connection.create_scalar_function("is_alive_1", 1, volatile, |_| Ok(true))?;
        Ok(connection)
    }
}

impl Connections {
    pub(super) fn new(connector: SqliteConnector, limit: u32) -> Arc<Self> {
        Arc::new(Self {
            connector,
            limit,
            shares: ConnectionShares::new(limit, KEPT),
            permits: Arc::new(Semaphore::new(usize::try_from(limit).unwrap_or(1))),
            idle: Mutex::default(),
        })
    }

    /// See [`ConnectionShares::share`].
    pub(super) fn share(&self, shared: bool) {
        self.shares.share(shared);
    }

    /// Adds an open connection.
    pub(super) fn add(&self, connection: Connection) {
        self.idle.lock().push(connection);
    }

    /// Waits for a connection, which may have to be opened.
    pub(super) async fn checkout(
        self: &Arc<Self>,
        owner: &Owner,
        size: StatementSize,
    ) -> Result<Checkout, StoreError> {
        let acquired = timeout(CONNECTION_WAIT, async {
            let share = self.shares.acquire(owner, size).await;
            (share, Arc::clone(&self.permits).acquire_owned().await)
        });
        let (share, permit) = acquired.await.map_err(StoreError::failed)?;
        Ok(Checkout {
            _permit: permit.map_err(StoreError::failed)?,
            _share: share,
            connection: self.idle.lock().pop(),
            size,
            from: Arc::clone(self),
        })
    }

    /// Closes the connections when they are no longer in use, or after `wait`. Waiting and later callers get an error.
    /// Returns whether all connections were closed without errors.
    pub(super) async fn close(&self, wait: Duration) -> bool {
        let unused = timeout(wait, self.permits.acquire_many(self.limit)).await;
        // Callers that still wait came later; they get an error.
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle.lock());
        let closing = tokio::task::spawn_blocking(move || {
            let mut closed = idle.into_iter().map(Connection::close);
            closed.all(|closed| closed.is_ok())
        });
        let closed = timeout(wait, closing).await;
        unused.is_ok() && matches!(closed, Ok(Ok(true)))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }
}

impl Checkout {
    /// Runs work on the connection. If another process has locked the file, it runs again until the lock is free or
    /// [`BUSY_WAIT`] is over, so it must change nothing when it fails.
    ///
    /// # Cancel safety
    /// The work is done completely or not at all.
    pub(super) async fn run<T>(
        &mut self,
        mut work: impl FnMut(&mut Connection) -> Result<T, StatementError>,
    ) -> Result<T, StoreError> {
        let end = Instant::now() + BUSY_WAIT;
        loop {
            let long = self.size == StatementSize::Large || self.connection.is_none();
            match block_in_place_if(long, || work(self.open()?)) {
                Err(fault) if fault.is_busy() && Instant::now() < end => sleep(BUSY_PAUSE).await,
                done => return done.map_err(StoreError::from),
            }
        }
    }

    fn open(&mut self) -> rusqlite::Result<&mut Connection> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.from.connector.connect()?,
        };
        Ok(self.connection.insert(connection))
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // A dropped transaction is rolled back. If the rollback failed, the next caller gets a new connection.
        let settled = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        let replaceable = matches!(self.from.connector.database, Database::File { .. });
        // Checked under the lock, so that `close` misses no connection.
        let mut idle = self.from.idle.lock();
        if !self.from.is_closed() && (settled || !replaceable) {
            idle.push(connection);
        }
    }
}

impl StatementError {
    fn is_busy(&self) -> bool {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy),
            Self::Store(_) => false,
        }
    }
}

impl From<rusqlite::Error> for StatementError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for StatementError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<StatementError> for StoreError {
    fn from(fault: StatementError) -> Self {
        match fault {
            StatementError::Store(error) => error,
            StatementError::Sqlite(error) => Self::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rusqlite::StatementStatus;

    use super::*;

    fn connector(database: Database) -> SqliteConnector {
        let clock = Arc::default();
        SqliteConnector { database, clock }
    }

    async fn checkout(connections: &Arc<Connections>) -> Result<Checkout, StoreError> {
        let owner = Owner::server();
        connections.checkout(&owner, StatementSize::Small).await
    }

    #[tokio::test]
    async fn a_connection_that_is_lost_is_replaced_by_one_set_up_alike() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        std::fs::write(&path, "").unwrap();
        let query_only = false;
        let connections = Connections::new(connector(Database::File { path, query_only }), 1);
        for _ in 0..2 {
            let mut checkout = checkout(&connections).await.unwrap();
            let set_up = "SELECT foreign_keys FROM pragma_foreign_keys";
            let keys: i64 = checkout
                .open()
                .unwrap()
                .query_row(set_up, [], |row| row.get(0))
                .unwrap();
            assert_eq!(keys, 1);
            checkout.connection = None;
        }
        assert!(connections.close(CONNECTION_WAIT).await);
        assert!(checkout(&connections).await.is_err());
    }

    #[test]
    fn a_statement_is_prepared_once_whatever_its_parameters() {
        let connection = Database::Memory.connect().unwrap();
        connection
            .execute_batch("CREATE TABLE t (a INTEGER, b INTEGER); CREATE INDEX t_a ON t (a)")
            .unwrap();
        let sql = "SELECT b FROM t WHERE a = ?1 AND b >= ?2 LIMIT ?3";
        let mut statement = connection.prepare(sql).unwrap();
        for parameters in [[-1, 0, 0], [9, 5, 1], [0, 1, 500], [1, 7, 2]] {
            assert!(!statement.exists(parameters).unwrap());
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }

    #[tokio::test]
    async fn closing_waits_for_those_that_hold_a_connection() {
        let connections = Connections::new(connector(Database::Memory), 1);
        let mut held = checkout(&connections).await.unwrap();
        held.open().unwrap();
        let mut closing = std::pin::pin!(connections.close(CONNECTION_WAIT));
        assert!(closing.as_mut().now_or_never().is_none());
        let mut waiting = std::pin::pin!(checkout(&connections));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        assert!(closing.await);
        assert!(waiting.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_while_the_disk_is_slow() {
        let connections = Connections::new(connector(Database::Memory), 1);
        let held = checkout(&connections).await.unwrap();
        let mut waiting = std::pin::pin!(checkout(&connections));
        let slow = Duration::from_secs(20);
        assert!(timeout(slow, waiting.as_mut()).await.is_err());
        drop(held);
        let held = waiting.await.unwrap();
        assert!(checkout(&connections).await.is_err());
        drop(held);
    }
}
