//! Copies a store into an empty one of any engine.
//!
//! Tables are copied one after the other, in batches, by the order of their keys. The last key of a table in the target says
//! how far its copy is, so a copy that was interrupted goes on from there. At the end both sides are read once more and
//! compared. The table `store_copy` of the target says from which store it is a copy. Until the copy is complete and checked,
//! no process serves from the target.

mod tables;

use futures_util::future::BoxFuture;

use self::tables::{CopiedTable, RunningDigest, TABLES, TableDigest};
use super::clock::ExpiryTime;
use super::engine::Engine;
use super::postgres::{CopyLock, Postgres};
use super::shares::StatementSize;
use super::tx::{Tx, values};
use super::{PostgresUrl, Store, StoreError, StoreUrl};
use crate::ids::Owner;

/// The source as a target remembers it.
#[derive(Debug)]
struct CopySource {
    name: String,
    secret: [u8; 32],
    expiry: ExpiryTime,
    /// Changes with every use of the source.
    state: String,
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

/// A store that nobody serves from.
struct Unserved {
    store: Store,
    location: String,
    /// Keeps other copies out.
    _lock: Option<CopyLock>,
}

/// Copies a store into another one, or goes on with that. `report` is called after each batch.
///
/// Both are opened as by a server that starts: their schema becomes that of this version, and runs that had not ended are
/// interrupted. Else the source is not changed.
///
/// # Errors
/// As [`CopyError`] says. Nothing serves from the target until the copy is complete.
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
        opened.store.close().await;
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
    let mut from = source.store.snapshot().await.map_err(CopyError::Source)?;
    let described = describe(&source.store, &mut from).await;
    let (described, totals) = described.map_err(CopyError::Source)?;
    let target = Unserved::open(target).await?;
    let copied = copy_into(&mut from, &target, &described, totals, report).await;
    target.store.close().await;
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
        copy_table(&mut from, target, table, total, &mut |_| {}).await?;
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
            UNION ALL SELECT max(ended_at) FROM runs UNION ALL SELECT max(created_at) FROM idempotency_keys) times";
    let (mut totals, mut counts) = (Vec::new(), Vec::new());
    for table in TABLES {
        let rows = table.count(from).await?;
        totals.push((table, rows));
        counts.push(rows.to_string());
    }
    let last: Option<i64> = from.one(last_write, &[]).await?.take(0)?;
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
) -> Result<(), CopyErrorSide> {
    let mut to = target.snapshot().await.map_err(CopyErrorSide::Target)?;
    let mut last = table
        .last_key(&mut to)
        .await
        .map_err(CopyErrorSide::Target)?;
    let mut done = table.count(&mut to).await.map_err(CopyErrorSide::Target)?;
    drop(to);
    loop {
        report(CopyProgress {
            table: table.name,
            compares: false,
            done,
            total,
        });
        let rows = table.batch(from, last.as_ref()).await;
        let rows = rows.map_err(CopyErrorSide::Source)?;
        let Some(newest) = rows.last() else {
            return Ok(());
        };
        let inserted = async {
            let mut to = target.begin(&Owner::server(), StatementSize::Small).await?;
            table.insert(&mut to, &rows).await?;
            to.commit().await
        };
        inserted.await.map_err(CopyErrorSide::Target)?;
        done += rows.len() as u64;
        last = Some(table.key_of(newest));
    }
}

/// Which side of a copy failed.
enum CopyErrorSide {
    Source(StoreError),
    Target(StoreError),
}

impl From<CopyErrorSide> for CopyError {
    fn from(error: CopyErrorSide) -> Self {
        match error {
            CopyErrorSide::Source(error) => Self::Source(error),
            CopyErrorSide::Target(error) => Self::Target(error),
        }
    }
}

impl From<CopyErrorSide> for StoreError {
    fn from(error: CopyErrorSide) -> Self {
        match error {
            CopyErrorSide::Source(error) | CopyErrorSide::Target(error) => error,
        }
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

impl Unserved {
    async fn open(url: &StoreUrl) -> Result<Self, CopyError> {
        let (engine, lock) = match url {
            StoreUrl::Postgres(url) => {
                let (postgres, lock) = Box::pin(Postgres::lock_for_copy(url)).await?;
                (Engine::Postgres(postgres), Some(lock))
            }
            StoreUrl::Sqlite(_) | StoreUrl::Memory => {
                let engine = Engine::open(url).await.map_err(|error| match error {
                    StoreError::InUse { path } => CopyError::TargetInUse {
                        location: path.display().to_string(),
                    },
                    other => CopyError::Target(other),
                });
                (engine?, None)
            }
        };
        Ok(Self {
            store: Store::of(engine),
            location: url.to_string(),
            _lock: lock,
        })
    }

    /// Whether a process serves from the store.
    async fn is_served(&self) -> Result<bool, StoreError> {
        match &self.store.engine {
            // Its lock is held.
            Engine::Sqlite(_) => Ok(false),
            Engine::Postgres(postgres) => Box::pin(postgres.is_served()).await,
        }
    }

    /// Notes that a copy begins, or checks that it can go on.
    async fn begin(&self, source: &CopySource) -> Result<(), CopyError> {
        let location = || self.location.clone();
        let store = &self.store;
        let mut tx = store.read(&Owner::server(), StatementSize::Small).await?;
        let noted = "SELECT name, state, finished FROM store_copy";
        let is_new = match tx.row(noted, &[]).await? {
            Some(mut row) => {
                let (name, state): (String, String) = (row.take(0)?, row.take(1)?);
                if name != source.name {
                    return Err(CopyError::OtherData {
                        location: location(),
                    });
                }
                if row.take(2)? {
                    return Err(CopyError::Finished {
                        location: location(),
                    });
                }
                if state != source.state {
                    return Err(CopyError::SourceChanged {
                        location: location(),
                    });
                }
                false
            }
            None => {
                for table in TABLES {
                    if table.count(&mut tx).await? > 0 {
                        return Err(CopyError::OtherData {
                            location: location(),
                        });
                    }
                }
                true
            }
        };
        drop(tx);
        let server = Owner::server();
        if is_new {
            let mut tx = store.begin(&server, StatementSize::Small).await?;
            let note = "INSERT INTO store_copy (name, state) VALUES ($1, $2)";
            tx.rows(note, values![&*source.name, &*source.state])
                .await?;
            tx.commit().await?;
            store.take_identity(source).await?;
        }
        // After the note, which a process that starts looks for after it has its row.
        if self.is_served().await? {
            if is_new {
                let mut tx = store.single(&server, StatementSize::Small).await?;
                tx.rows("DELETE FROM store_copy", &[]).await?;
            }
            return Err(CopyError::TargetInUse {
                location: location(),
            });
        }
        Ok(())
    }
}

impl Store {
    pub(super) fn of(engine: Engine) -> Self {
        let shared = std::sync::Arc::default();
        Self { engine, shared }
    }

    /// Fails while a copy into the store is not complete.
    pub(super) async fn refuse_unfinished(&self, location: &str) -> Result<(), StoreError> {
        let find = "SELECT 1 FROM store_copy WHERE NOT finished";
        let mut tx = self.read(&Owner::server(), StatementSize::Small).await?;
        match tx.row(find, &[]).await? {
            None => Ok(()),
            Some(_) => Err(StoreError::failed(format!(
                "a store is being copied into {location}; finish that with the same `loopwright store copy` as before"
            ))),
        }
    }

    /// Takes the identity of another store: names of stored contents and ids of chats are derived from it.
    async fn take_identity(&self, source: &CopySource) -> Result<(), StoreError> {
        let sql = "UPDATE store_identity SET name = $1, secret = $2";
        let mut tx = self.single(&Owner::server(), StatementSize::Small).await?;
        tx.rows(sql, values![&*source.name, &source.secret[..]])
            .await?;
        drop(tx);
        self.engine.set_expiry_time(source.expiry).await
    }

    /// Statements that see the store as it is at one moment, where others may write it meanwhile.
    async fn snapshot(&self) -> Result<Tx, StoreError> {
        match &self.engine {
            Engine::Sqlite(_) => self.read(&Owner::server(), StatementSize::Small).await,
            Engine::Postgres(postgres) => Box::pin(postgres.snapshot()).await.map(Tx::Postgres),
        }
    }

    /// Notes that a copy is complete, so that processes may use the store.
    async fn finish_copy(&self) -> Result<(), StoreError> {
        let mut tx = self.begin(&Owner::server(), StatementSize::Small).await?;
        if let Tx::Postgres(_) = &tx {
            for table in TABLES.iter().filter(|table| table.generated) {
                let sql = format!(
                    "SELECT setval(pg_get_serial_sequence('{0}', 'num'), coalesce((SELECT max(num) FROM {0}), 0) + 1, false)",
                    table.name
                );
                tx.dynamic(&sql, &[]).await?;
            }
        }
        tx.rows("UPDATE store_copy SET finished = true", &[])
            .await?;
        tx.commit().await
    }
}
