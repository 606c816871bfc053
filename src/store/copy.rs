//! Copies a store into an empty one of any engine.
//!
//! Tables are copied one after the other, in batches, by the order of their keys. The last key of a table in the target
//! says how far its copy is, so an interrupted copy continues from there. At the end both sides are read once more and
//! compared. The table `store_copy` of the target says from which store it is a copy. Until the copy is complete and
//! checked, no process serves from the target.

mod digest;
mod side;
mod tables;

use futures_util::future::BoxFuture;

use self::digest::{RunningDigest, TableDigest};
use self::side::{CopySource, Unserved};
use self::tables::{CopiedTable, TABLES};
use super::engine::Engine;
use super::postgres::Postgres;
use super::shares::StatementSize;
use super::tx::Tx;
use super::{PostgresUrl, Store, StoreError, StoreUrl};
use protocol::ids::Owner;

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
    #[error("there is no SQLite store {0}")]
    NoSource(String),
    /// Another process has the source open.
    #[error("{0} is in use by another loopwright process; stop that process first")]
    SourceInUse(String),
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
    /// The source has changed, so the rest of it would not fit the rows that were copied.
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

/// Copies a store into another one, or continues an interrupted copy. `report` is called after each batch.
///
/// Opens both stores as a starting server does: their schema becomes the schema of this version, and runs that had not
/// ended are interrupted. Apart from that the source is not changed.
///
/// # Errors
/// See [`CopyError`]. No process serves from the target until the copy is complete.
pub fn copy<'a>(
    source: &'a StoreUrl,
    target: &'a StoreUrl,
    report: &'a mut (dyn FnMut(CopyProgress) + Send),
) -> BoxFuture<'a, Result<Vec<TableCopy>, CopyError>> {
    // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
    Box::pin(async {
        if let Some(file) = source.file().filter(|file| !file.is_file()) {
            return Err(CopyError::NoSource(file.display().to_string()));
        }
        let opened = Unserved::open(source).await.map_err(|error| match error {
            CopyError::TargetInUse { location } => CopyError::SourceInUse(location),
            CopyError::Target(error) => CopyError::Source(error),
            other => other,
        })?;
        let copied = copy_all(&opened, target, report).await;
        opened.close().await;
        copied
    })
}

async fn copy_all(
    source: &Unserved,
    target: &StoreUrl,
    report: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<Vec<TableCopy>, CopyError> {
    if source.is_served().await.map_err(CopyError::Source)? {
        return Err(CopyError::SourceInUse(source.location.clone()));
    }
    source.interrupt().await.map_err(CopyError::Source)?;
    let mut from = source.store.snapshot().await.map_err(CopyError::Source)?;
    let described = describe(&source.store, &mut from).await;
    let (described, totals) = described.map_err(CopyError::Source)?;
    let target = Unserved::open(target).await?;
    let copied = copy_into(&mut from, &target, &described, totals, report).await;
    target.close().await;
    copied
}

async fn copy_into(
    from: &mut Tx,
    target: &Unserved,
    source: &CopySource,
    totals: Vec<(&'static CopiedTable, u64)>,
    report: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<Vec<TableCopy>, CopyError> {
    target.begin(source).await?;
    for (table, total) in &totals {
        copy_table(from, &target.store, table, *total, report).await?;
    }
    let mut copies = Vec::new();
    for (table, total) in totals {
        let expected = digest(from, table, total, report).await;
        let expected = expected.map_err(CopyError::Source)?;
        let mut to = target.store.snapshot().await?;
        let found = digest(&mut to, table, total, &mut |_| {}).await?;
        if expected != found {
            return Err(CopyError::Differs {
                table: table.name,
                expected: expected.rows,
                found: found.rows,
            });
        }
        copies.push(TableCopy {
            table: table.name,
            rows: found.rows,
            bytes: found.bytes,
            sha256: found.sha256,
        });
    }
    target.store.finish_copy().await?;
    Ok(copies)
}

/// Copies a database, as it is at one moment and while it is served from, into an empty store.
pub(super) async fn copy_snapshot(url: &PostgresUrl, target: &Store) -> Result<(), StoreError> {
    let source = Store::of(Engine::Postgres(Postgres::attach(url).await?));
    source.refuse_unfinished(url.location()).await?;
    let mut from = source.snapshot().await?;
    let (described, totals) = describe(&source, &mut from).await?;
    target.take_identity(&described).await?;
    for (table, total) in totals {
        let copied = copy_table(&mut from, target, table, total, &mut |_| {}).await;
        copied.map_err(|error| match error {
            CopyError::Source(error) | CopyError::Target(error) => error,
            other => StoreError::failed(other),
        })?;
    }
    drop(from);
    source.close().await;
    Ok(())
}

async fn describe(
    source: &Store,
    from: &mut Tx,
) -> Result<(CopySource, Vec<(&'static CopiedTable, u64)>), StoreError> {
    let last_write = "SELECT max(newest) FROM (
            SELECT max(updated_at) AS newest FROM sessions UNION ALL SELECT max(written_at) FROM sessions
            UNION ALL SELECT max(last_used_at) FROM files UNION ALL SELECT max(created_at) FROM runs
            UNION ALL SELECT max(ended_at) FROM runs UNION ALL SELECT max(created_at) FROM idempotency_keys
            UNION ALL SELECT max(decided_at) FROM approvals) times";
    let (mut totals, mut counts) = (Vec::new(), Vec::new());
    for table in TABLES {
        let rows = table.count(from).await?;
        totals.push((table, rows));
        counts.push(rows.to_string());
    }
    let last: Option<i64> = from.one(last_write, &[]).await?.column(0)?;
    let described = CopySource {
        name: source.name().await?,
        secret: source.secret().await?,
        expiry: source.engine.expiry_time().await?,
        state: format!("{} at {}", counts.join(" "), last.unwrap_or_default()),
    };
    Ok((described, totals))
}

async fn copy_table(
    from: &mut Tx,
    target: &Store,
    table: &'static CopiedTable,
    total: u64,
    report: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<(), CopyError> {
    let mut to = target.snapshot().await?;
    let mut last = table.last_key(&mut to).await?;
    let mut done = table.count(&mut to).await?;
    drop(to);
    loop {
        report(CopyProgress {
            table: table.name,
            compares: false,
            done,
            total,
        });
        let rows = table.batch(from, last.as_ref()).await;
        let rows = rows.map_err(CopyError::Source)?;
        let Some(newest) = rows.last() else {
            return Ok(());
        };
        let inserted = async {
            let mut to = target.begin(&Owner::server(), StatementSize::Small).await?;
            table.insert(&mut to, &rows).await?;
            to.commit().await
        };
        inserted.await?;
        done += rows.len() as u64;
        last = Some(table.key_of(newest));
    }
}

/// Reads a table in the order of its key.
async fn digest(
    tx: &mut Tx,
    table: &'static CopiedTable,
    total: u64,
    report: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<TableDigest, StoreError> {
    let (mut digest, mut last, mut done) = (RunningDigest::default(), None, 0);
    loop {
        report(CopyProgress {
            table: table.name,
            compares: true,
            done,
            total,
        });
        let rows = table.batch(tx, last.as_ref()).await?;
        let Some(newest) = rows.last() else {
            return Ok(digest.finish());
        };
        rows.iter().for_each(|row| digest.add(row));
        done += rows.len() as u64;
        last = Some(table.key_of(newest));
    }
}
