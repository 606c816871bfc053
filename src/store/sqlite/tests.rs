//! Runs the conformance tests with a file and with memory, and tests what is specific to SQLite.

mod approvals;
mod disk;
mod file;
mod limits;
mod runs;
mod schema;

use super::super::StoreUrl;
use super::super::engine::Engine;
use super::super::record::StoredSession;
use super::super::suite::{TestStore, append, id, owner, user};
use super::super::waiting::WaitingTurn;
use super::super::{Change, Store};
use super::*;
use protocol::ids::{RunId, SessionId};

mod in_file {
    use crate::suite::suite;

    suite!(super::file);
}

mod in_memory {
    use crate::suite::suite;

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
    async fn pragma(&self, sql: &'static str) {
        let server = Owner::server();
        let checkout = self.0.writer.checkout(&server, StatementSize::Large).await;
        let mut checkout = checkout.unwrap();
        let done = checkout.run(|connection| Ok(connection.execute_batch(sql)?));
        done.await.unwrap();
    }

    pub(crate) fn shift_clock(&self, seconds: i64) {
        let shift = &self.0.clock.shift;
        shift.store(seconds * 1_000_000, std::sync::atomic::Ordering::Relaxed);
    }
}

fn sqlite(store: &Store) -> &Sqlite {
    match &store.engine {
        Engine::Sqlite(sqlite) => sqlite,
        Engine::Postgres(_) => panic!("the store is not SQLite"),
    }
}

async fn write(store: &Store, session: &SessionId, change: Change) -> Result<(), StoreError> {
    let lease = store.acquire(&owner(), session, LONG).await?;
    store.write(lease.fence(), &Arc::new(change)).await
}

async fn loaded(store: &Store, session: &SessionId) -> StoredSession {
    store.load(&owner(), session).await.unwrap().unwrap()
}
