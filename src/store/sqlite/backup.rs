//! Backups: copies a database file that may be in use, makes a new one for the rows of another store, and checks both.

use std::path::Path;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::super::StoreError;
use super::super::backup::BackupCounts;
use super::super::tx::unsigned;
use super::Sqlite;
use super::connections::{BUSY_WAIT, Connections, Database, SqliteConnector};
use super::migrate::migrate;

/// Copies the database in a file, as it is at one moment, into an empty file. Neither readers nor writers of other processes
/// wait. What was deleted is not in the copy. Blocks.
pub(crate) fn copy_database(source: &Path, target: &Path) -> Result<(), StoreError> {
    let copy = || {
        let connection = open(source, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // Closing makes no checkpoint, so the source is not changed even if this connection is the last one.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.execute("VACUUM INTO ?1", [target.to_string_lossy()])?;
        Ok::<_, rusqlite::Error>(())
    };
    copy().map_err(StoreError::failed)
}

/// Checks a database that no process uses, and counts its rows. Blocks.
pub(crate) fn backup_counts(path: &Path) -> Result<BackupCounts, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(StoreError::failed)?;
    let problem: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(StoreError::failed)?;
    if problem != "ok" {
        return Err(StoreError::failed(format!("it is damaged: {problem}")));
    }
    let counted = || {
        let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
        if statement.exists([])? {
            return Ok(None);
        }
        // Earlier versions had hidden sessions.
        let sql = "SELECT count(*) FROM sessions WHERE owner <> char(1) || 'hidden'";
        let sessions = connection.query_row(sql, [], |row| row.get(0))?;
        let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_sqlx%' ESCAPE '\\'";
        let mut statement = connection.prepare(sql)?;
        let names = statement.query_map([], |row| row.get::<_, String>(0))?;
        let mut rows = 0;
        for name in names {
            let sql = format!("SELECT count(*) FROM \"{}\"", name?);
            rows += connection.query_row(&sql, [], |row| row.get::<_, i64>(0))?;
        }
        Ok::<_, rusqlite::Error>(Some(BackupCounts {
            sessions: unsigned(sessions),
            rows: unsigned(rows),
        }))
    };
    let counts = counted().map_err(StoreError::failed)?;
    counts.ok_or_else(|| StoreError::failed("it is damaged: a row refers to one that is missing"))
}

/// The name of the store in a database that no process uses, and the names and lengths of the contents of its files.
/// Blocks.
pub(crate) fn contents_of(path: &Path) -> Result<(String, Vec<(String, u64)>), StoreError> {
    let read = || {
        let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let table = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'store_identity')";
        let sql = match connection.query_row(table, [], |row| row.get(0))? {
            true => "SELECT name FROM store_identity",
            // The schema of earlier versions.
            false => "SELECT name FROM file_store",
        };
        let name = connection.query_row(sql, [], |row| row.get(0))?;
        let mut statement = connection.prepare("SELECT blob, bytes FROM files ORDER BY num")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
        Ok((name, rows.collect::<Result<_, rusqlite::Error>>()?))
    };
    read().map_err(|error: rusqlite::Error| StoreError::failed(error))
}

fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_WAIT)?;
    // See `Database::connect`.
    connection.execute_batch("PRAGMA temp_store = MEMORY")?;
    Ok(connection)
}

impl Sqlite {
    /// Makes the tables in an empty file. A file that is not complete is thrown away, and the complete one is synced.
    pub(crate) async fn create(path: &Path) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let (file, query_only) = (path.clone(), false);
            let database = Database::File {
                path: file,
                query_only,
            };
            let clock = Arc::default();
            let connector = SqliteConnector { database, clock };
            let mut connection = connector.connect().map_err(StoreError::failed)?;
            connection
                .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
                .map_err(StoreError::failed)?;
            migrate(&mut connection, &path)?;
            let clock = Arc::clone(&connector.clock);
            let connections = Connections::new(connector, 1);
            connections.add(connection);
            Ok(Self::unattended(connections, clock))
        });
        opened.await.map_err(StoreError::failed)?
    }
}
