//! PostgreSQL through sqlx, for several processes that share one store.
//!
//! A verb is one statement where that is possible; what takes several decisions is a function of the schema. Leases and
//! running runs belong to a process, whose row in `replicas` has to be renewed. All times are those of the database.

mod connect;
mod expiry;
mod export;
mod files;
mod import;
mod leases;
mod migrate;
mod quota;
mod replica;
mod runs;
mod sessions;
mod sweep;
#[cfg(test)]
pub(super) mod tests;
mod url;
mod write;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sqlx::query;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connect::{DatabasePool, column};
use self::expiry::ElapsedTime;
use self::leases::Announcements;
use self::quota::{AnswerQuota, SessionQuota};
use super::StoreError;
use super::lease::{Fence, Leases};
use super::waiting::WaitingTurns;

pub(super) use self::export::export;
pub(super) use self::import::CopyTarget;
pub(super) use self::leases::RowHold;
pub use self::url::PostgresUrl;

/// A PostgreSQL database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Postgres(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connections: DatabasePool,
    /// The id of this process in the database; a new one with each start.
    replica: String,
    /// The URL at which other processes reach this one, once it is announced.
    address: OnceLock<String>,
    /// How long leases outlive their last renewal.
    lease: Duration,
    /// The leases of this process, which come before rows.
    leases: Leases,
    announcements: Announcements,
    /// Leases whose rows could not be deleted.
    unreleased: Mutex<Vec<Fence>>,
    waiting: Mutex<WaitingTurns>,
    sessions: SessionQuota,
    answers: AnswerQuota,
    elapsed: ElapsedTime,
    tasks: TaskTracker,
    /// Where leases are released that are dropped outside of a task.
    runtime: Handle,
    stop: CancellationToken,
    /// Whether an older version of the program has made the database.
    upgraded: bool,
}

impl Postgres {
    pub(super) async fn open(url: &PostgresUrl) -> Result<Self, StoreError> {
        let connections = DatabasePool::new(url)?;
        let upgraded = migrate::migrate(&connections, url.location()).await?;
        let store = Self(Arc::new(Inner {
            connections,
            replica: uuid::Uuid::now_v7().to_string(),
            address: OnceLock::new(),
            lease: url.lease,
            leases: Leases::default(),
            announcements: Announcements::default(),
            unreleased: Mutex::default(),
            waiting: Mutex::default(),
            sessions: SessionQuota::default(),
            answers: AnswerQuota::default(),
            elapsed: ElapsedTime::default(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            stop: CancellationToken::new(),
            upgraded,
        }));
        store.renew_replica().await?;
        // After the row, for which a copy that begins looks after it has noted that it does.
        let refused = import::refuse_unfinished(&store.0.connections, url.location()).await;
        if let Err(error) = refused {
            Box::pin(store.close()).await;
            return Err(error);
        }
        store.begin_expiry().await?;
        store.bury().await?;
        let (living, stop) = (store.clone(), store.0.stop.clone());
        store.0.tasks.spawn(async move {
            stop.run_until_cancelled(living.live()).await;
        });
        Ok(store)
    }

    pub(super) fn was_upgraded(&self) -> bool {
        self.0.upgraded
    }

    /// Checks that the database takes a connection.
    pub(super) async fn check(url: &PostgresUrl) -> Result<(), StoreError> {
        connect::check(url).await
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, WaitingTurns> {
        self.0.waiting.lock()
    }

    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        let look = || query("SELECT 1 FROM sessions LIMIT 1");
        self.0.connections.server().row(look).await.map(drop)
    }

    pub(super) async fn name(&self) -> Result<String, StoreError> {
        let row = self
            .0
            .connections
            .server()
            .one(|| query("SELECT name FROM store_identity"))
            .await?;
        column(&row, 0)
    }

    pub(super) async fn secret(&self) -> Result<[u8; 32], StoreError> {
        let row = self
            .0
            .connections
            .server()
            .one(|| query("SELECT secret FROM store_identity"))
            .await?;
        let secret: Vec<u8> = column(&row, 0)?;
        let length = "the secret of the store does not have 32 bytes";
        secret.try_into().map_err(|_| StoreError::failed(length))
    }
}
