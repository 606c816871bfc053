//! Runs the conformance tests with a file and with memory, and tests what is specific to SQLite.

mod file;
mod forks;
mod limits;
mod runs;
mod schema;
mod sizes;

use rusqlite::params;

use super::super::StoreUrl;
use super::super::suite::{TestStore, append, id, owner, user};
use super::super::{Change, IdOrigin, Store};
use super::*;
use crate::ids::{FileId, RunId};

mod in_file {
    use crate::store::suite::suite;

    suite!(super::file);
}

mod in_memory {
    use crate::store::suite::suite;

    suite!(super::memory);
}

const LONG: Duration = Duration::from_secs(30);

async fn file() -> TestStore {
    let directory = tempfile::tempdir().unwrap();
    let url = StoreUrl::Sqlite(directory.path().join("sessions.db"));
    TestStore {
        store: Store::open(&url).await.unwrap(),
        directory: Some(directory),
    }
}

async fn memory() -> TestStore {
    TestStore {
        store: Store::open(&StoreUrl::Memory).await.unwrap(),
        directory: None,
    }
}

async fn both() -> [TestStore; 2] {
    [memory().await, file().await]
}

impl Sqlite {
    /// Runs a statement on the writer; returns how many rows it changed.
    async fn execute(&self, sql: &str) -> usize {
        let sql = sql.to_owned();
        let done = self
            .0
            .writer
            .run(Owner::server(), Executor::Thread, move |connection, _| {
                Ok(connection.execute(&sql, [])?)
            });
        done.await.unwrap()
    }

    async fn pragma(&self, sql: &'static str) {
        let done = self
            .0
            .writer
            .run(Owner::server(), Executor::Thread, move |connection, _| {
                Ok(connection.execute_batch(sql)?)
            });
        done.await.unwrap();
    }

    async fn count(&self, sql: &'static str) -> i64 {
        let found = self
            .0
            .writer
            .run(Owner::server(), Executor::Thread, move |connection, _| {
                Ok(connection.query_row(sql, [], |row| row.get(0))?)
            });
        found.await.unwrap()
    }

    pub(in crate::store) async fn set_updated_at(
        &self,
        owner: &Owner,
        id: &SessionId,
        seconds: i64,
    ) {
        let (owner, id) = (owner.clone(), id.clone());
        let done = self.0.writer.run(Owner::server(), Executor::Thread, move |connection, _| {
            let sql = "UPDATE sessions SET updated_at = ?1, written_at = 0 WHERE owner = ?2 AND session_id = ?3";
            Ok(connection.execute(
                sql,
                params![seconds * 1_000_000, owner.as_str(), id.as_str()],
            )?)
        });
        assert_eq!(done.await.unwrap(), 1);
    }

    pub(in crate::store) fn shift_clock(&self, seconds: i64) {
        let shift = &self.0.clock.shift;
        shift.store(seconds * 1_000_000, std::sync::atomic::Ordering::Relaxed);
    }

    pub(in crate::store) async fn age_runs(&self, seconds: i64) {
        let micros = seconds * 1_000_000;
        for sql in [
            format!("UPDATE runs SET ended_at = ended_at - {micros}"),
            format!("UPDATE idempotency_keys SET created_at = created_at - {micros}"),
        ] {
            self.execute(&sql).await;
        }
    }

    pub(in crate::store) async fn stored_rows(&self) -> [i64; 3] {
        [
            self.count("SELECT count(*) FROM sessions").await,
            self.count("SELECT count(*) FROM messages").await,
            self.count("SELECT count(*) FROM message_pieces").await,
        ]
    }

    pub(in crate::store) async fn run_rows(&self) -> [i64; 3] {
        [
            self.count("SELECT count(*) FROM runs").await,
            self.count("SELECT count(*) FROM run_bodies").await,
            self.count("SELECT count(*) FROM idempotency_keys").await,
        ]
    }

    pub(in crate::store) async fn set_unused_for(&self, id: &FileId, seconds: i64) {
        let id = id.clone();
        let done = self
            .0
            .writer
            .run(Owner::server(), Executor::Thread, move |connection, _| {
                let sql = "UPDATE files SET last_used_at = last_used_at - ?1 WHERE id = ?2";
                Ok(connection.execute(sql, params![seconds * 1_000_000, id.as_str()])?)
            });
        assert_eq!(done.await.unwrap(), 1);
    }
}

fn sqlite(store: &Store) -> &Sqlite {
    match store {
        Store::Sqlite(sqlite) => sqlite,
        Store::Postgres(_) => panic!("the store is not SQLite"),
    }
}

async fn write(store: &Store, session: &SessionId, change: Change) -> Result<(), StoreError> {
    let lease = store.acquire(&owner(), session, LONG).await?;
    store.write(lease.fence(), &Arc::new(change)).await
}

async fn loaded(store: &Store, session: &SessionId) -> StoredSession {
    store.load(&owner(), session).await.unwrap().unwrap()
}
