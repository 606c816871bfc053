//! A database whose rows are copied, into it or out of it.

use sqlx::pool::PoolConnection;
use sqlx::{Executor, Postgres as Driver, query};
use tokio::time::timeout;

use super::super::StoreError;
use super::super::copy::CopyError;
use super::connect::{DatabasePool, STATEMENT_LIMIT, column, failed, is_locked};
use super::migrate;
use super::statements::OpenTransaction;
use super::url::PostgresUrl;
use super::{Postgres, PostgresTx};

/// Number of the advisory lock that a copy holds.
const LOCK: i64 = 0x6c6f_6f70_636f_7079;
/// Number of connections that a copy uses at most: its lock, what it reads, and what it writes beside.
const CONNECTIONS: u32 = 4;
/// How many seconds a copy waits for the end of an interrupted one: the server may still execute its last statement.
const LOCK_WAIT: &str = "SET lock_timeout = '15s'";
/// One transaction that sees the state of its beginning. It takes no locks that writers wait for, and lasts as long as it
/// takes.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// The settings of that transaction.
const UNBOUNDED: &str =
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";

/// Keeps other copies out of a database until it is dropped.
#[derive(Debug)]
pub(crate) struct CopyLock(PoolConnection<Driver>);

impl CopyLock {
    pub(crate) fn release(self) {
        drop(self);
    }
}

impl Drop for CopyLock {
    fn drop(&mut self) {
        // Ends the session of the database, and with it the lock.
        self.0.close_on_drop();
    }
}

/// The connections of a copy, however few a server would have.
fn pool(url: &PostgresUrl) -> Result<DatabasePool, StoreError> {
    DatabasePool::new(&PostgresUrl {
        pool: url.pool.max(CONNECTIONS),
        ..url.clone()
    })
}

impl Postgres {
    /// Opens a database that no process serves from, without becoming one.
    pub(crate) async fn lock_for_copy(url: &PostgresUrl) -> Result<(Self, CopyLock), CopyError> {
        let connections = pool(url)?;
        let upgraded = migrate::migrate(&connections, url.location()).await?;
        let (mut connection, _share) = connections.server().connection().await?;
        connection.execute(LOCK_WAIT).await.map_err(failed)?;
        let lock = query("SELECT pg_advisory_lock($1)").bind(LOCK);
        match timeout(STATEMENT_LIMIT, lock.execute(&mut *connection)).await {
            Ok(Err(error)) if is_locked(&error) => return Err(CopyError::Running),
            Ok(Err(error)) => return Err(failed(error).into()),
            Ok(Ok(_locked)) => {}
            Err(_) => return Err(CopyError::Running),
        }
        let store = Self::with(connections, url, upgraded, false);
        Ok((store, CopyLock(connection)))
    }

    /// Opens a database that other processes may serve from, to read it.
    pub(crate) async fn attach(url: &PostgresUrl) -> Result<Self, StoreError> {
        let connections = pool(url)?;
        let (mut connection, _share) = connections.server().connection().await?;
        migrate::check_readable(&mut connection, url.location()).await?;
        drop(connection);
        Ok(Self::with(connections, url, false, false))
    }

    /// Begins a transaction that sees one state of the database.
    pub(crate) async fn snapshot(&self) -> Result<PostgresTx, StoreError> {
        let server = self.0.connections.server();
        let mut snapshot = OpenTransaction::begin(&server, SNAPSHOT).await?;
        snapshot.control(UNBOUNDED).await?;
        Ok(PostgresTx::Transaction(snapshot))
    }

    /// Whether a process serves from the database.
    pub(crate) async fn is_served(&self) -> Result<bool, StoreError> {
        let living = "SELECT EXISTS (SELECT 1 FROM replicas WHERE expires_at > now())";
        let row = self.0.connections.server().one(|| query(living)).await?;
        column(&row, 0)
    }
}
