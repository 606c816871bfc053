//! Opens the database: which file, with which rights, how many connections.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::super::SessionError;
use super::super::settings::StoreUrl;
use super::connections::Connections;
use super::put;

/// Longest wait for another process that holds the file's lock, a backup for instance.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// SQLite reads take well under a millisecond; more connections than this would only wait for the disk.
const READERS: u32 = 4;

/// Connections to write with (one) and to read with, after the schema was brought up to date.
pub(super) async fn connections(
    store: &StoreUrl,
) -> Result<(Arc<Connections>, Arc<Connections>), SessionError> {
    let (writer, reader) = match store {
        StoreUrl::Memory => {
            // Every connection would be a database of its own, so there is one for all, and it is never given up.
            let options = options().filename(":memory:");
            let both = Arc::new(Connections::to_memory(options, put::SETUP));
            (both.clone(), both)
        }
        StoreUrl::Sqlite(path) => {
            // An absolute path is never read as a `file:` URI or as `:memory:`.
            let path = std::path::absolute(path).map_err(store_error)?;
            create_private(&path).await.map_err(store_error)?;
            let options = options()
                .filename(path)
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Normal)
                .busy_timeout(BUSY_WAIT);
            let writer = Connections::to_file(options.clone(), put::SETUP, 1);
            let reader = Connections::to_file(options.pragma("query_only", "ON"), "", READERS);
            (Arc::new(writer), Arc::new(reader))
        }
    };
    // Before the set-up, whose trigger would stand in the way of a changed table.
    let mut first = writer.connect().await?;
    sqlx::migrate!("src/session/migrations")
        .run(&mut first)
        .await
        .map_err(|error| SessionError::Store(Box::new(error)))?;
    writer.add(first).await?;
    Ok((writer, reader))
}

fn options() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .foreign_keys(true)
        // What a statement puts aside is conversations too; it belongs in no file of a directory for everyone.
        .pragma("temp_store", "MEMORY")
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
