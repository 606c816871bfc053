//! Connections: the pool, which owners share, statements that are tried again on another connection, and errors.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnection, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, Executor, PgPool, Postgres as Driver};
use tokio::time::{Instant, timeout, timeout_at};

use super::super::shares::{ConnectionShare, ConnectionShares, StatementSize};
use super::super::{StorageFull, StoreError};
use super::url::PostgresUrl;
use protocol::ids::Owner;

/// Number of connections that large statements do not get, where there are more.
const KEPT: u32 = 1;
/// Longest wait for a connection, a new one included, and how long a statement is tried again after its connection was
/// lost. After it the operation fails.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Pause before a statement is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Longest time of one statement with all its attempts: a lease that was renewed 10 seconds before lives as long. The
/// server is told to end it 2 seconds earlier.
/// Tried by `replicas::faults::connections_that_fall_silent_are_given_up_and_stop_no_stream`.
pub(super) const STATEMENT_LIMIT: Duration = Duration::from_secs(20);
/// Longest time without use after which a connection is used unchecked.
const IDLE_CHECK: Duration = Duration::from_secs(20);
/// Longest wait for the answer to that check. After it the connection is closed.
pub(super) const CHECK_LIMIT: Duration = Duration::from_secs(2);

/// The settings of each connection: bounds for statements, for waits for locks, and for transactions that were left
/// open.
const SETTINGS: &str = "SET statement_timeout = '18s'; SET lock_timeout = '15s';
    SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = 'warning'";

/// The error code of the functions in the schema for a record of another owner.
pub(super) const OTHER_OWNER: &str = "LW001";
/// The error code of the server for a disk without free space.
const DISK_FULL: &str = "53100";

/// A statement with its arguments.
pub(super) type Statement<'q> = Query<'q, Driver, PgArguments>;

/// The pool of the database's connections; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct DatabasePool {
    pool: PgPool,
    shares: Arc<ConnectionShares>,
}

/// The pool for statements of one owner and size.
#[derive(Debug)]
pub(crate) struct OwnerPool {
    pool: DatabasePool,
    /// The owner and the size of the statements; `None` for statements that do not wait for a share.
    shared: Option<(Owner, StatementSize)>,
}

/// An error of the driver without its details, which may hold stored data.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct DatabaseError {
    message: String,
    /// Whether the cause may have passed when the transaction is made again.
    passing: bool,
}

impl DatabasePool {
    pub(super) fn new(url: &PostgresUrl) -> Result<Self, StoreError> {
        let options = url.options().map_err(failed)?;
        let pool = PgPoolOptions::new()
            .max_connections(url.pool)
            .acquire_timeout(CONNECT_LIMIT)
            .test_before_acquire(false)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(SETTINGS).await.map(drop) })
            })
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for < IDLE_CHECK {
                        return Ok(true);
                    }
                    let checked = timeout(CHECK_LIMIT, connection.ping()).await;
                    Ok(checked.is_ok_and(|answer| answer.is_ok()))
                })
            });
        Ok(Self {
            pool: pool.connect_lazy_with(options),
            shares: Arc::new(ConnectionShares::new(url.pool, KEPT)),
        })
    }

    /// A pool of one connection, for who keeps it.
    pub(super) fn single(&self) -> PgPool {
        let options = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CHECK_LIMIT)
            .idle_timeout(None)
            .max_lifetime(None);
        options.connect_lazy_with(self.pool.connect_options().as_ref().clone())
    }

    /// See [`ConnectionShares::share`].
    pub(super) fn share(&self, shared: bool) {
        self.shares.share(shared);
    }

    /// The pool for statements that read or write few rows.
    pub(super) fn small(&self, owner: &Owner) -> OwnerPool {
        self.sized(owner, StatementSize::Small)
    }

    /// The pool for statements that may read or write many rows.
    pub(super) fn large(&self, owner: &Owner) -> OwnerPool {
        self.sized(owner, StatementSize::Large)
    }

    /// The pool for small statements of no owner.
    pub(super) fn server(&self) -> OwnerPool {
        self.small(&Owner::server())
    }

    /// The pool for statements that show other processes that this one is alive. They wait for no share of an owner:
    /// each is next when a connection becomes free.
    pub(super) fn heartbeat(&self) -> OwnerPool {
        OwnerPool {
            shared: None,
            pool: self.clone(),
        }
    }

    pub(super) fn sized(&self, owner: &Owner, size: StatementSize) -> OwnerPool {
        OwnerPool {
            pool: self.clone(),
            shared: Some((owner.clone(), size)),
        }
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

impl OwnerPool {
    /// Runs one statement. It is made and run again if the connection was lost or the server resolved a deadlock, so it
    /// must have the same effect if it runs twice.
    pub(super) async fn rows<'q>(
        &self,
        statement: impl Fn() -> Statement<'q>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (end, deadline) = (
            Instant::now() + STATEMENT_LIMIT,
            Instant::now() + CONNECT_LIMIT,
        );
        loop {
            let (mut connection, share) = self.connection().await?;
            match timeout_at(end, statement().fetch_all(&mut *connection)).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) => {
                    let lost = is_lost(&error);
                    if lost {
                        connection.close_on_drop();
                    }
                    if !(lost || is_conflict(&error)) || Instant::now() >= deadline {
                        return Err(failed(error));
                    }
                }
                Err(_) => {
                    connection.close_on_drop();
                    return Err(StoreError::failed("the database did not answer in time"));
                }
            }
            drop((connection, share));
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// As [`Self::rows`], for a statement that returns at most one row.
    pub(super) async fn row<'q>(
        &self,
        statement: impl Fn() -> Statement<'q>,
    ) -> Result<Option<PgRow>, StoreError> {
        Ok(self.rows(statement).await?.into_iter().next())
    }

    /// As [`Self::rows`], for a statement that returns one row.
    pub(super) async fn one<'q>(
        &self,
        statement: impl Fn() -> Statement<'q>,
    ) -> Result<PgRow, StoreError> {
        let row = self.row(statement).await?;
        row.ok_or_else(|| StoreError::failed("the database returned no row"))
    }

    /// A connection for a transaction of several statements, and the share that must outlive it.
    pub(super) async fn connection(
        &self,
    ) -> Result<(PoolConnection<Driver>, Option<ConnectionShare>), StoreError> {
        let acquired = timeout(CONNECT_LIMIT, async {
            let share = self.share().await;
            Ok((self.pool.pool.acquire().await?, share))
        });
        let acquired = acquired.await;
        acquired
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
            .map_err(failed)
    }

    /// The right to one connection, where it is shared.
    async fn share(&self) -> Option<ConnectionShare> {
        let (owner, size) = self.shared.as_ref()?;
        Some(self.pool.shares.acquire(owner, *size).await)
    }
}

/// Makes a connection, and ends it.
pub(super) async fn check(url: &PostgresUrl) -> Result<(), StoreError> {
    let options = url.options().map_err(failed)?;
    let connecting = timeout(CONNECT_LIMIT, PgConnection::connect_with(&options)).await;
    let in_time = connecting.map_err(|_| StoreError::failed("no connection in time"))?;
    in_time.map_err(failed)?.close().await.map_err(failed)
}

/// Runs a statement of a transaction within the limit of time.
pub(super) async fn execute(
    connection: &mut PgConnection,
    statement: Statement<'_>,
) -> Result<Vec<PgRow>, StoreError> {
    match timeout(STATEMENT_LIMIT, statement.fetch_all(connection)).await {
        Ok(done) => done.map_err(failed),
        Err(_) => Err(StoreError::failed("the database did not answer in time")),
    }
}

/// A value of a row.
pub(crate) fn column<'r, T>(row: &'r PgRow, index: usize) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, Driver> + sqlx::Type<Driver>,
{
    sqlx::Row::try_get(row, index).map_err(failed)
}

pub(super) fn failed(error: sqlx::Error) -> StoreError {
    let code = match &error {
        sqlx::Error::Database(database) => database.code(),
        _ => None,
    };
    match code.as_deref() {
        Some(OTHER_OWNER) => return StoreError::Exists,
        Some(DISK_FULL) => return StoreError::Full(StorageFull::Database),
        _ => {}
    }
    let passing = is_lost(&error) || is_conflict(&error);
    let message = match error {
        sqlx::Error::PoolTimedOut => {
            "the database cannot be reached, or all connections are in use".to_owned()
        }
        other => other.to_string(),
    };
    StoreError::failed(DatabaseError { message, passing })
}

/// Whether the cause of a failed transaction may have passed when it is made again.
pub(crate) fn is_passing(error: &StoreError) -> bool {
    let StoreError::Failed(error) = error else {
        return false;
    };
    let error = error.downcast_ref::<DatabaseError>();
    error.is_some_and(|error| error.passing)
}

/// Whether the connection cannot be used any more.
fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        // The server ends, or has been started again and recovers.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            ["57P01", "57P02", "57P03"].contains(&&*code) || code.starts_with("08")
        }),
        _ => false,
    }
}

/// Whether the server has undone a statement because of another one.
fn is_conflict(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(error) => error.code(),
        _ => None,
    };
    code.is_some_and(|code| ["40001", "40P01"].contains(&&*code))
}

/// Whether a lock was not free in time.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    error.code().is_some_and(|code| code == "55P03")
}
