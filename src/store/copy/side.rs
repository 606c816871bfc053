//! The two sides of a copy.

use super::super::clock::ExpiryTime;
use super::super::engine::Engine;
use super::super::postgres::{CopyLock, Postgres};
use super::super::shares::StatementSize;
use super::super::tx::{Tx, values};
use super::super::{Store, StoreError, StoreUrl};
use super::CopyError;
use super::tables::TABLES;
use protocol::ids::Owner;

/// The source as a target remembers it.
#[derive(Debug)]
pub(super) struct CopySource {
    pub(super) name: String,
    pub(super) secret: [u8; 32],
    pub(super) expiry: ExpiryTime,
    /// Changes with every use of the source.
    pub(super) state: String,
}

/// A store that no process serves from.
pub(super) struct Unserved {
    pub(super) store: Store,
    pub(super) location: String,
    /// Keeps other copies out.
    lock: Option<CopyLock>,
}

impl Unserved {
    pub(super) async fn open(url: &StoreUrl) -> Result<Self, CopyError> {
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
            lock,
        })
    }

    /// Interrupts the runs that ended processes have left in the source, so that a continued copy finds it as before.
    pub(super) async fn interrupt(&self) -> Result<(), StoreError> {
        let mut tx = self
            .store
            .begin(&Owner::server(), StatementSize::Large)
            .await?;
        for sql in [
            "UPDATE runs SET status = 'interrupted', ended_at = micros_1() WHERE status = 'running'",
            "DELETE FROM idempotency_keys WHERE NOT recorded",
            "DELETE FROM reservations",
        ] {
            tx.rows(sql, &[]).await?;
        }
        tx.commit().await
    }

    pub(super) async fn close(self) {
        let Self { store, lock, .. } = self;
        if let Some(lock) = lock {
            lock.release();
        }
        store.close().await;
    }

    /// Whether a process serves from the store.
    pub(super) async fn is_served(&self) -> Result<bool, StoreError> {
        match &self.store.engine {
            // Its lock is held.
            Engine::Sqlite(_) => Ok(false),
            Engine::Postgres(postgres) => Box::pin(postgres.is_served()).await,
        }
    }

    /// Notes that a copy begins, or checks that it can continue.
    pub(super) async fn begin(&self, source: &CopySource) -> Result<(), CopyError> {
        let location = || self.location.clone();
        let store = &self.store;
        let mut tx = store.read(&Owner::server(), StatementSize::Small).await?;
        let noted = "SELECT name, state, finished FROM store_copy";
        let is_new = match tx.row(noted, &[]).await? {
            Some(mut row) => {
                let (name, state): (String, String) = (row.column(0)?, row.column(1)?);
                if name != source.name {
                    return Err(CopyError::OtherData {
                        location: location(),
                    });
                }
                if row.column(2)? {
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
        }
        // This check follows the note, because a starting process first writes its row and then reads the note.
        if self.is_served().await? {
            if is_new {
                let mut tx = store.single(&server, StatementSize::Small).await?;
                tx.rows("DELETE FROM store_copy", &[]).await?;
            }
            return Err(CopyError::TargetInUse {
                location: location(),
            });
        }
        // A continued copy does this again: the one before may have ended before it.
        Ok(store.take_identity(source).await?)
    }
}

impl Store {
    pub(crate) fn of(engine: Engine) -> Self {
        let shared = std::sync::Arc::default();
        Self { engine, shared }
    }

    /// Fails while a copy into the store is not complete.
    pub(crate) async fn refuse_unfinished(&self, location: &str) -> Result<(), StoreError> {
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
    pub(super) async fn take_identity(&self, source: &CopySource) -> Result<(), StoreError> {
        let sql = "UPDATE store_identity SET name = $1, secret = $2";
        let mut tx = self.single(&Owner::server(), StatementSize::Small).await?;
        tx.rows(sql, values![&*source.name, &source.secret[..]])
            .await?;
        drop(tx);
        self.engine.set_expiry_time(source.expiry).await
    }

    /// Statements that see the store as it is at one moment, where others may write it meanwhile.
    pub(super) async fn snapshot(&self) -> Result<Tx, StoreError> {
        match &self.engine {
            Engine::Sqlite(_) => self.read(&Owner::server(), StatementSize::Small).await,
            Engine::Postgres(postgres) => Box::pin(postgres.snapshot()).await.map(Tx::Postgres),
        }
    }

    /// Notes that a copy is complete, so that processes may use the store.
    pub(super) async fn finish_copy(&self) -> Result<(), StoreError> {
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
