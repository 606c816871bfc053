//! Opens the database: which file, with which rights, how many connections.

use std::path::Path;
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::super::SessionError;
use super::super::settings::StoreUrl;

/// Longest wait for a connection; then the store counts as failed.
const ACQUIRE_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for another process that holds the file's lock, a backup for instance.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// SQLite reads take well under a millisecond; more connections than this would only wait for the disk.
const READERS: u32 = 4;

/// Opens the pools of writers (one connection) and of readers, and brings the schema up to date.
pub(super) async fn pools(store: &StoreUrl) -> Result<(SqlitePool, SqlitePool), SessionError> {
    let (writer, reader) = match store {
        StoreUrl::Memory => {
            // Every connection would be a database of its own, so there is one for all, and it is never given up.
            let options = SqliteConnectOptions::new()
                .filename(":memory:")
                .foreign_keys(true);
            let pool = pool_options(1).connect_with(options).await?;
            (pool.clone(), pool)
        }
        StoreUrl::Sqlite(path) => {
            // An absolute path is never read as a `file:` URI or as `:memory:`.
            let path = std::path::absolute(path).map_err(store_error)?;
            create_private(&path).await.map_err(store_error)?;
            let options = SqliteConnectOptions::new()
                .filename(path)
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Normal)
                .busy_timeout(BUSY_WAIT)
                .foreign_keys(true);
            let writer = replacing_broken(pool_options(1))
                .connect_with(options.clone())
                .await?;
            let reader = replacing_broken(pool_options(READERS))
                .connect_lazy_with(options.pragma("query_only", "ON"));
            (writer, reader)
        }
    };
    sqlx::migrate!("src/session/migrations")
        .run(&writer)
        .await
        .map_err(|error| SessionError::Store(Box::new(error)))?;
    Ok((writer, reader))
}

/// Connections to a file of this process do not go stale. They are not tested before use: a caller that gives up while
/// the test runs would close the connection, and with it a database in memory.
fn pool_options(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_WAIT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// On some errors (a full disk) SQLite ends the transaction by itself, sqlx goes on believing in it and refuses every
/// later one; such a connection is closed and another one opened.
fn replacing_broken(options: SqlitePoolOptions) -> SqlitePoolOptions {
    options.after_release(|connection, _| {
        Box::pin(async move {
            // The roll-back of a dropped transaction is done by the time the connection answers.
            connection.ping().await?;
            Ok(!connection.is_in_transaction())
        })
    })
}

/// Conversations are private: a new file is for its owner only, and SQLite makes the log beside it alike. The rights of
/// a file that is there are the operator's choice.
async fn create_private(path: &Path) -> std::io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.create(true).write(true).truncate(false);
    #[cfg(unix)]
    options.mode(0o600);
    options.open(path).await.map(drop)
}

fn store_error(error: std::io::Error) -> SessionError {
    SessionError::Store(Box::new(error))
}
