//! Backups: copies a database file that may be in use, fills a new one with the rows of another store, and checks both.

use std::path::Path;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params, params_from_iter};

use super::super::StoreError;
use super::super::backup::BackupCounts;
use super::super::clock::ExpiryTime;
use super::super::copy::{ColumnType, CopiedRow, CopiedTable, CopiedValue, RowSource};
use super::connections::{BUSY_WAIT, Connections, Database, Executor, StatementError};
use super::expiry;
use super::migrate::migrate;
use super::pieces::{self, LONGEST_IN_ROW};
use super::size::unsigned;
use super::write::{HIDDEN, count};
use crate::ids::Owner;

/// Copies the database in a file, as it is at one moment, into an empty file. Neither readers nor writers of other processes
/// wait. What was deleted is not in the copy. Blocks.
pub(in crate::store) fn copy_database(source: &Path, target: &Path) -> Result<(), StoreError> {
    let copy = || {
        let connection = open(source, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // The source stays as it is, whoever closes it last.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.execute("VACUUM INTO ?1", [target.to_string_lossy()])?;
        Ok::<_, rusqlite::Error>(())
    };
    copy().map_err(StoreError::failed)
}

/// Checks a database that nobody uses, and counts what it has. Blocks.
pub(in crate::store) fn backup_counts(path: &Path) -> Result<BackupCounts, StoreError> {
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
        let sql = "SELECT count(*) FROM sessions WHERE owner <> ?1";
        let sessions = connection.query_row(sql, [HIDDEN], |row| row.get(0))?;
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

/// The name of the store in a database that nobody uses, and the names and lengths of the contents of its files. Blocks.
pub(in crate::store) fn contents_of(
    path: &Path,
) -> Result<(String, Vec<(String, u64)>), StoreError> {
    let read = || {
        let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let name = connection.query_row("SELECT name FROM file_store", [], |row| row.get(0))?;
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

/// A new database, which is filled with the rows of another store.
#[derive(Debug)]
pub(in crate::store) struct BackupTarget(Arc<Connections>);

impl BackupTarget {
    /// Makes the tables in an empty file.
    pub(in crate::store) async fn open(path: &Path) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let (file, query_only) = (path.clone(), false);
            let database = Database::File {
                path: file,
                query_only,
            };
            let mut connection = database.connect().map_err(StoreError::failed)?;
            // A file that is not complete is thrown away, and the complete one is synced.
            connection
                .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
                .map_err(StoreError::failed)?;
            migrate(&mut connection, &path)?;
            let connections = Connections::new(database, 1);
            connections.add(connection);
            Ok(Self(connections))
        });
        opened.await.map_err(StoreError::failed)?
    }

    /// Gives the database the identity of the store whose rows it gets, and its time by which things expire.
    pub(in crate::store) async fn identify(
        &self,
        name: String,
        secret: Vec<u8>,
        time: ExpiryTime,
    ) -> Result<(), StoreError> {
        let identify = move |connection: &mut Connection, _| {
            connection.execute("UPDATE file_store SET name = ?1", [&name])?;
            connection.execute("UPDATE store_secret SET secret = ?1", [&secret])?;
            Ok(expiry::keep(connection, time)?)
        };
        self.0
            .run(Owner::server(), Executor::Thread, identify)
            .await
    }

    /// Inserts rows.
    pub(in crate::store) async fn insert(
        &self,
        table: &'static CopiedTable,
        rows: Vec<CopiedRow>,
    ) -> Result<(), StoreError> {
        let insert = move |connection: &mut Connection, _| {
            let transaction = connection.transaction()?;
            for row in &rows {
                match table.source {
                    RowSource::Query(_) => insert_row(&transaction, table, row)?,
                    RowSource::Messages => insert_message(&transaction, row)?,
                }
            }
            Ok(transaction.commit()?)
        };
        self.0.run(Owner::server(), Executor::Thread, insert).await
    }

    /// Completes the database and closes it.
    pub(in crate::store) async fn finish(&self) -> Result<(), StoreError> {
        let sql = "INSERT INTO run_usage (owner, answers, bytes)
                   SELECT owner, count(*), sum(bytes) FROM runs WHERE status = 'ended' GROUP BY owner
                   ON CONFLICT (owner) DO UPDATE SET answers = answers + excluded.answers, bytes = bytes + excluded.bytes";
        let finish = move |connection: &mut Connection, _| Ok(connection.execute(sql, [])?);
        self.0
            .run(Owner::server(), Executor::Thread, finish)
            .await?;
        match self.0.close(BUSY_WAIT).await {
            true => Ok(()),
            false => Err(StoreError::failed("the new database could not be closed")),
        }
    }
}

/// The column of SQLite for one of a copied table, if it has one.
fn column_of(table: &CopiedTable, column: &'static str) -> Option<&'static str> {
    match (table.name, column) {
        // Processes are not copied.
        (_, "replica") => None,
        ("sessions", "num") => Some("id"),
        ("sessions", "origin") => Some("nameless"),
        (_, column) => Some(column),
    }
}

/// Whether SQLite has bytes in a column, and not a text.
fn is_blob(column: &str) -> bool {
    matches!(column, "piece" | "fingerprint")
}

fn insert_row(
    connection: &Connection,
    table: &CopiedTable,
    row: &[CopiedValue],
) -> Result<(), StatementError> {
    let columns = table.columns.iter().zip(row);
    let kept = columns.filter_map(|((name, kind), value)| {
        let mark = match (is_blob(name), kind) {
            (true, ColumnType::Bytea) => "CAST(? AS BLOB)",
            _ => "?",
        };
        Some((column_of(table, name)?, mark, value))
    });
    let (mut names, mut marks, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (name, mark, value) in kept {
        names.push(name);
        marks.push(mark);
        values.push(value);
    }
    let (names, marks) = (names.join(", "), marks.join(", "));
    let sql = format!("INSERT INTO {} ({names}) VALUES ({marks})", table.name);
    connection
        .prepare_cached(&sql)?
        .execute(params_from_iter(values))?;
    Ok(())
}

/// Inserts a message, with its long texts in pieces.
fn insert_message(connection: &Connection, row: &[CopiedValue]) -> Result<(), StatementError> {
    let [
        CopiedValue::Integer(session),
        CopiedValue::Integer(seq),
        json,
        hidden,
        more @ ..,
    ] = row
    else {
        return Err(StoreError::failed("a stored message is not complete").into());
    };
    let texts: Vec<&CopiedValue> = std::iter::once(json).chain(more).collect();
    let is_long = |text: &CopiedValue| text_length(text) > LONGEST_IN_ROW;
    let in_row = |field: usize| match texts.get(field) {
        Some(text) if is_long(text) => CopiedValue::Bytes(Vec::new()),
        Some(text) => (*text).clone(),
        None => CopiedValue::Null,
    };
    let long = texts.iter().filter(|text| is_long(text));
    let long_bytes = count(long.map(|text| text_length(text)).sum());
    connection
        .prepare_cached(
            "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources, long_bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            session,
            seq,
            in_row(0),
            hidden,
            in_row(1),
            in_row(2),
            in_row(3),
            long_bytes
        ])?;
    for (field, text) in texts.into_iter().enumerate() {
        if let CopiedValue::Bytes(bytes) = text
            && is_long(text)
        {
            pieces::insert_text(connection, (*session, *seq), field, bytes)?;
        }
    }
    Ok(())
}

fn text_length(text: &CopiedValue) -> usize {
    match text {
        CopiedValue::Bytes(bytes) => bytes.len(),
        CopiedValue::Null | CopiedValue::Integer(_) => 0,
    }
}
