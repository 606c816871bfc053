//! What the engines do differently, besides statements.

use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::clock::ExpiryTime;
use super::lease::{Hold, Lease};
use super::leases::Fence;
use super::postgres::Postgres;
use super::record::SessionSummary;
use super::sqlite::Sqlite;
use super::{StoreError, StoreUrl};
use protocol::ids::{Owner, SessionId};

/// A kind of store; cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Engine {
    /// SQLite, in a file that belongs to this process or in memory.
    Sqlite(Sqlite),
    /// PostgreSQL, which several processes may share.
    Postgres(Postgres),
}

impl Engine {
    pub(super) async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        match url {
            StoreUrl::Sqlite(_) | StoreUrl::Memory => {
                Sqlite::open(url.file()).await.map(Self::Sqlite)
            }
            StoreUrl::Postgres(url) => Postgres::open(url).await.map(Self::Postgres),
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(_) => true,
        }
    }

    pub(super) fn was_upgraded(&self) -> bool {
        match self {
            Self::Sqlite(sqlite) => sqlite.was_upgraded(),
            Self::Postgres(postgres) => postgres.was_upgraded(),
        }
    }

    pub(super) fn share_connections(&self, shared: bool) {
        match self {
            Self::Sqlite(sqlite) => sqlite.share_connections(shared),
            Self::Postgres(postgres) => postgres.share_connections(shared),
        }
    }

    /// Writes that continue when their callers are dropped.
    pub(super) fn tasks(&self) -> &TaskTracker {
        match self {
            Self::Sqlite(sqlite) => sqlite.tasks(),
            Self::Postgres(postgres) => postgres.tasks(),
        }
    }

    /// The name of this process in rows that belong to one.
    pub(super) fn replica(&self) -> &str {
        match self {
            Self::Sqlite(_) => "",
            Self::Postgres(postgres) => postgres.replica(),
        }
    }

    /// See [`super::Store::acquire`].
    pub(super) async fn acquire(
        &self,
        owner: &Owner,
        id: &SessionId,
        wait: Duration,
    ) -> Result<Lease, StoreError> {
        match self {
            Self::Sqlite(sqlite) => {
                let (fence, hold) = sqlite.leases().acquire(owner, id, wait).await?;
                let hold = Hold::Memory(hold);
                Ok(Lease { fence, hold })
            }
            Self::Postgres(postgres) => Box::pin(postgres.acquire(owner, id, wait)).await,
        }
    }

    /// See [`super::Store::renew`].
    pub(super) async fn renew(&self, fence: &Fence) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.leases().pin(fence).map(drop),
            Self::Postgres(postgres) => Box::pin(postgres.renew(fence)).await,
        }
    }

    pub(super) async fn release(&self, lease: Lease) {
        match lease.hold {
            Hold::Memory(hold) => drop(hold),
            Hold::Row(hold) => Box::pin(hold.release()).await,
        }
    }

    /// Marks the sessions of a page whose lease is held.
    pub(super) async fn mark_leased(
        &self,
        owner: &Owner,
        page: &mut [SessionSummary],
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.mark_leased(owner, page),
            Self::Postgres(postgres) => Box::pin(postgres.mark_leased(owner, page)).await?,
        }
        Ok(())
    }

    /// Advances the time by which things expire.
    pub(super) async fn advance_expiry(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.keep_expiry_time().await,
            Self::Postgres(postgres) => Box::pin(postgres.advance_expiry()).await,
        }
    }

    /// The time by which things expire.
    pub(super) async fn expiry_time(&self) -> Result<ExpiryTime, StoreError> {
        match self {
            Self::Sqlite(sqlite) => Ok(sqlite.expiry_time()),
            Self::Postgres(postgres) => Box::pin(postgres.expiry_time()).await,
        }
    }

    /// Sets the expiry time to the expiry time of another store.
    pub(super) async fn set_expiry_time(&self, time: ExpiryTime) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.set_expiry_time(time).await,
            Self::Postgres(postgres) => Box::pin(postgres.set_expiry_time(time)).await,
        }
    }

    /// Measures the free disk space now and then, where it is known.
    pub(super) async fn measure_disk(&self, least: u64) {
        if let Self::Sqlite(sqlite) = self {
            sqlite.measure_disk(least).await;
        }
    }

    /// Refuses a new session if less than `least` bytes of the disk are free.
    pub(super) fn check_disk(&self, least: u64) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.check_disk(least),
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Makes space for a deletion if the disk is full.
    pub(super) async fn make_space_to_delete(&self) {
        if let Self::Sqlite(sqlite) = self {
            sqlite.make_space_to_delete().await;
        }
    }

    /// Keeps space for deletions again.
    pub(super) fn keep_reserve(&self) {
        if let Self::Sqlite(sqlite) = self {
            sqlite.keep_reserve();
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.close().await,
            Self::Postgres(postgres) => Box::pin(postgres.close()).await,
        }
    }
}
