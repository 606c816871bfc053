//! Copies a SQLite store into an empty PostgreSQL database.
//!
//! Tables are copied one after the other, in batches, by the order of their keys. The last key of a table in the target says
//! how far its copy is, so a copy that was interrupted goes on from there. At the end both sides are read once more and
//! compared.

mod tables;

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;

pub(in crate::store) use self::tables::{
    ColumnType, CopiedRow, CopiedTable, CopiedValue, RowBatch, RowSource, RunningDigest, TABLES,
    TableDigest,
};
use super::clock::ExpiryTime;
use super::postgres::CopyTarget;
use super::{PostgresUrl, Sqlite, StoreError};

/// The source as a target remembers it.
#[derive(Debug)]
pub(in crate::store) struct CopySource {
    pub(in crate::store) name: String,
    pub(in crate::store) secret: [u8; 32],
    pub(in crate::store) expiry: ExpiryTime,
    /// Changes with every use of the source.
    pub(in crate::store) state: String,
}

/// What a copy is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// The table.
    pub table: &'static str,
    /// Whether its rows are compared; else they are copied.
    pub compares: bool,
    /// Rows of the table that are done.
    pub done: u64,
    /// All its rows.
    pub total: u64,
}

/// What was copied of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableCopy {
    /// The table.
    pub table: &'static str,
    /// Its rows.
    pub rows: u64,
    /// The bytes of its texts.
    pub bytes: u64,
    /// The SHA-256 of its values.
    pub sha256: [u8; 32],
}

/// Why a store could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is no source.
    #[error("there is no SQLite store {}", .0.display())]
    NoSource(PathBuf),
    /// Another process has the source open.
    #[error("{} is in use by another loopwright process; stop that process first", .0.display())]
    SourceInUse(PathBuf),
    /// The source cannot be read.
    #[error("cannot read the source")]
    Source(#[source] StoreError),
    /// The target holds something that is not of this copy.
    #[error("{location} already holds data of another store; name an empty database")]
    OtherData {
        /// The target.
        location: String,
    },
    /// The target is a complete copy of the source, and may have been written to since.
    #[error(
        "{location} already holds a finished copy of this store; nothing was copied. To copy again, name an empty database"
    )]
    Finished {
        /// The target.
        location: String,
    },
    /// A process serves from the target.
    #[error(
        "a loopwright process uses {location}; stop it first, and wait for the end of its lease if it was killed"
    )]
    TargetInUse {
        /// The target.
        location: String,
    },
    /// Another copy into the target is running.
    #[error("another copy into this database is running")]
    Running,
    /// The rest of the source would not fit what was copied of it.
    #[error(
        "the source was used after the copy into {location} had begun; begin again with an empty database"
    )]
    SourceChanged {
        /// The target.
        location: String,
    },
    /// The two sides are not the same.
    #[error(
        "the copy of {table} differs: {expected} rows in the source, {found} in the target; begin again with an empty database"
    )]
    Differs {
        /// The table.
        table: &'static str,
        /// Rows of the source.
        expected: u64,
        /// Rows of the target.
        found: u64,
    },
    /// The target failed.
    #[error("cannot write the target; start the same copy again to go on with it")]
    Target(#[from] StoreError),
}

/// Copies the store in a file into a database, or goes on with that. `report` is called after each batch.
///
/// The file is opened as by a server that starts: its schema becomes that of this version, and runs that had not ended are
/// interrupted. Else it is not changed.
///
/// # Errors
/// As [`CopyError`] says. Nothing serves from the database until the copy is complete.
pub fn copy<'a>(
    source: &'a Path,
    target: &'a PostgresUrl,
    report: &'a mut (dyn FnMut(CopyProgress) + Send),
) -> BoxFuture<'a, Result<Vec<TableCopy>, CopyError>> {
    // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
    Box::pin(copy_file(source, target, report))
}

async fn copy_file(
    source: &Path,
    target: &PostgresUrl,
    report: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<Vec<TableCopy>, CopyError> {
    if !source.is_file() {
        return Err(CopyError::NoSource(source.to_owned()));
    }
    let source = Sqlite::open(Some(source))
        .await
        .map_err(|error| match error {
            StoreError::InUse { path } => CopyError::SourceInUse(path),
            other => CopyError::Source(other),
        })?;
    let copied = copy_all(&source, target, report).await;
    source.close().await;
    copied
}

async fn copy_all(
    source: &Sqlite,
    target: &PostgresUrl,
    report: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<Vec<TableCopy>, CopyError> {
    source.tidy().await.map_err(CopyError::Source)?;
    let mut totals = Vec::new();
    for table in TABLES {
        let total = source.count_rows(table).await.map_err(CopyError::Source)?;
        totals.push((table, total));
    }
    let described = describe(source, &totals).await.map_err(CopyError::Source)?;
    let mut target = CopyTarget::open(target, &described).await?;
    for (table, total) in totals.iter().filter(|(table, _)| !table.derived) {
        copy_table(source, &mut target, table, *total, report).await?;
    }
    let mut copies = Vec::new();
    for (table, total) in totals {
        copies.push(compare(source, &mut target, table, total, report).await?);
    }
    target.finish().await?;
    target.close().await;
    Ok(copies)
}

async fn describe(
    source: &Sqlite,
    totals: &[(&'static CopiedTable, u64)],
) -> Result<CopySource, StoreError> {
    let rows: Vec<String> = totals.iter().map(|(_, rows)| rows.to_string()).collect();
    Ok(CopySource {
        name: source.name().await?,
        secret: source.secret().await?,
        expiry: source.expiry_time(),
        state: format!("{} at {}", rows.join(" "), source.last_write().await?),
    })
}

async fn copy_table(
    source: &Sqlite,
    target: &mut CopyTarget,
    table: &'static CopiedTable,
    total: u64,
    report: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<(), CopyError> {
    let (mut last, mut done) = target.progress(table).await?;
    loop {
        report(CopyProgress {
            table: table.name,
            compares: false,
            done,
            total,
        });
        let rows = source.read_rows(table, last).await;
        let rows = rows.map_err(CopyError::Source)?;
        let Some(newest) = rows.last() else {
            return Ok(());
        };
        target.insert(table, &rows).await?;
        done += rows.len() as u64;
        last = Some(key_of(newest, table));
    }
}

/// Reads both sides of a table and compares them.
async fn compare(
    source: &Sqlite,
    target: &mut CopyTarget,
    table: &'static CopiedTable,
    total: u64,
    report: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<TableCopy, CopyError> {
    let expected = async {
        let (mut digest, mut last, mut done) = (RunningDigest::default(), None, 0);
        loop {
            report(CopyProgress {
                table: table.name,
                compares: true,
                done,
                total,
            });
            let rows = source.read_rows(table, last).await?;
            let Some(newest) = rows.last() else {
                return Ok(digest.finish());
            };
            rows.iter().for_each(|row| digest.add(row));
            done += rows.len() as u64;
            last = Some(key_of(newest, table));
        }
    };
    let (expected, found): (Result<TableDigest, StoreError>, _) =
        tokio::join!(expected, target.digest(table));
    let (expected, found) = (expected.map_err(CopyError::Source)?, found?);
    if expected != found {
        return Err(CopyError::Differs {
            table: table.name,
            expected: expected.rows,
            found: found.rows,
        });
    }
    Ok(TableCopy {
        table: table.name,
        rows: found.rows,
        bytes: found.bytes,
        sha256: found.sha256,
    })
}

fn key_of(row: &CopiedRow, table: &CopiedTable) -> CopiedRow {
    row.iter().take(table.key).cloned().collect()
}
