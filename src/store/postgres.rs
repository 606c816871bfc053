//! PostgreSQL through sqlx, for several processes that share one store.
//!
//! A verb is one statement where that is possible; a verb with several decisions is a function of the schema. Leases
//! and running runs belong to a process, whose row in `replicas` has to be renewed. All times are times of the
//! database.

mod connect;
mod copy;
mod expiry;
mod leases;
mod migrate;
mod presence;
mod replica;
mod statements;
#[cfg(test)]
pub(super) mod tests;
mod turns;
mod url;
mod write;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
pub(super) use sqlx::postgres::PgRow;
use sqlx::query;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connect::DatabasePool;
use self::expiry::ElapsedTime;
use self::leases::Announcements;
use self::presence::Presence;
use super::StoreError;
use super::leases::{Fence, Leases};
use super::record::SessionSummary;
use super::shares::StatementSize;
use protocol::ids::Owner;

pub(super) use self::connect::{column, is_passing};
pub(super) use self::copy::CopyLock;
pub(super) use self::leases::RowHold;
use self::statements::OpenTransaction;
pub(super) use self::statements::{PostgresTx, integer, is_null, text};
pub use self::url::PostgresUrl;

/// A PostgreSQL database; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Postgres(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connections: DatabasePool,
    /// Whether this process is one of those that serve from the database.
    serves: bool,
    /// The id of this process in the database; a new one with each start.
    replica: String,
    /// The URL at which other processes reach this one, once it is announced.
    address: OnceLock<String>,
    /// How long leases outlive their last renewal.
    lease: Duration,
    /// The leases of this process, which come before rows.
    leases: Leases,
    announcements: Announcements,
    presence: Presence,
    /// Leases whose rows could not be deleted.
    unreleased: Mutex<Vec<Fence>>,
    elapsed: ElapsedTime,
    tasks: TaskTracker,
    /// The runtime on which a lease is released that is dropped outside of a task.
    runtime: Handle,
    stop: CancellationToken,
    /// Whether an older version of the program has made the database.
    upgraded: bool,
}

impl Postgres {
    pub(super) async fn open(url: &PostgresUrl) -> Result<Self, StoreError> {
        let connections = DatabasePool::new(url)?;
        let upgraded = migrate::migrate(&connections, url.location()).await?;
        let store = Self::with(connections, url, upgraded, true);
        let listener = store.take_lock().await;
        store.renew_replica().await?;
        store.begin_expiry().await?;
        store.reap_dead_replicas(0).await?;
        let (this, stop) = (store.clone(), store.0.stop.clone());
        store.0.tasks.spawn(async move {
            let living =
                async { tokio::join!(this.heartbeat(), this.watch(), this.attend(listener.ok())) };
            stop.run_until_cancelled(Box::pin(living)).await;
        });
        Ok(store)
    }

    fn with(connections: DatabasePool, url: &PostgresUrl, upgraded: bool, serves: bool) -> Self {
        Self(Arc::new(Inner {
            connections,
            serves,
            replica: uuid::Uuid::now_v7().to_string(),
            address: OnceLock::new(),
            lease: url.lease,
            leases: Leases::default(),
            announcements: Announcements::default(),
            presence: Presence::default(),
            unreleased: Mutex::default(),
            elapsed: ElapsedTime::default(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            stop: CancellationToken::new(),
            upgraded,
        }))
    }

    pub(super) fn was_upgraded(&self) -> bool {
        self.0.upgraded
    }

    /// Checks that the database takes a connection.
    pub(super) async fn check(url: &PostgresUrl) -> Result<(), StoreError> {
        connect::check(url).await
    }

    pub(super) fn replica(&self) -> &str {
        &self.0.replica
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    pub(super) fn share_connections(&self, shared: bool) {
        self.0.connections.share(shared);
    }

    /// Statements, each on its own.
    pub(super) fn single(&self, owner: &Owner, size: StatementSize) -> PostgresTx {
        PostgresTx::Single(self.0.connections.sized(owner, size))
    }

    /// Begins a transaction.
    pub(super) async fn begin(
        &self,
        owner: &Owner,
        size: StatementSize,
    ) -> Result<PostgresTx, StoreError> {
        let pool = self.0.connections.sized(owner, size);
        let begun = OpenTransaction::begin(&pool, "BEGIN").await?;
        Ok(PostgresTx::Transaction(begun))
    }

    /// Marks the sessions of a page whose lease is held.
    pub(super) async fn mark_leased(
        &self,
        owner: &Owner,
        page: &mut [SessionSummary],
    ) -> Result<(), StoreError> {
        let sql = "SELECT session_id FROM leases WHERE owner = $1 AND is_alive_1(replica)";
        let select = || query(sql).bind(owner.as_str());
        let rows = self.0.connections.large(owner).rows(select).await?;
        let leased = rows.iter().map(|row| column(row, 0));
        let leased = leased.collect::<Result<HashSet<&str>, _>>()?;
        for entry in page {
            entry.running = leased.contains(entry.id.as_str());
        }
        Ok(())
    }
}
