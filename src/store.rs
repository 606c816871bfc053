//! Persistent state: sessions, the rows of files, records of runs, leases, and turns that wait for their client.
//!
//! One enum with a variant for each kind of store. The store keeps records, each of which belongs to an owner; it does
//! not interpret conversations. Every write of a run carries the fence of its lease. A write whose lease has ended is
//! refused.

mod answer;
mod backup;
mod check;
mod clock;
mod copy;
mod error;
mod file;
mod lease;
mod limits;
mod postgres;
mod record;
mod replica;
mod run;
mod shares;
mod sqlite;
#[cfg(test)]
mod suite;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::backup::{BackupCounts, BackupError, StoreBackup};
pub use self::check::{check, check_directory};
pub use self::copy::{CopyError, CopyProgress, TableCopy, copy};
pub use self::error::StoreError;
pub use self::file::{
    FileFilter, FileOrder, FilePage, FileRecord, FileUsage, InsertedFile, Purpose, StoredFile,
};
pub use self::lease::{Fence, Lease};
pub use self::limits::{Growth, SessionLimits, StorageFull};
pub use self::postgres::{Postgres, PostgresUrl};
pub use self::record::{
    Change, IdOrigin, Replaced, SessionHead, SessionPage, SessionSummary, StoredMessage,
    StoredSession, Title, View,
};
pub use self::replica::OtherReplica;
pub use self::run::{KeyClaim, RunRecord, RunRecordState, StoredAnswer};
pub use self::sqlite::Sqlite;
pub use self::waiting::{Attachment, UnstoredTurn, WaitingTurn};
use crate::ids::{Owner, SessionId};

/// The location of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// Memory; lost when the process ends.
    Memory,
    /// A PostgreSQL database, which several processes may share.
    Postgres(PostgresUrl),
}

impl StoreUrl {
    /// Whether several processes may use the store.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Postgres(_) => true,
            Self::Sqlite(_) | Self::Memory => false,
        }
    }

    /// The database file, if the store is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Memory | Self::Postgres(_) => None,
        }
    }
}

/// A store; cheap to clone.
#[derive(Debug, Clone)]
pub enum Store {
    /// SQLite, in a file that belongs to this process or in memory.
    Sqlite(Sqlite),
    /// PostgreSQL, which several processes may share.
    Postgres(Postgres),
}

impl Store {
    /// Whether several processes may use the store.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(_) => true,
        }
    }

    /// Opens the store and migrates its schema.
    ///
    /// # Errors
    /// `InUse`, `NewerSchema`; else when it cannot be opened or migrated.
    pub async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        match url {
            StoreUrl::Sqlite(_) | StoreUrl::Memory => {
                Sqlite::open(url.file()).await.map(Self::Sqlite)
            }
            StoreUrl::Postgres(url) => Postgres::open(url).await.map(Self::Postgres),
        }
    }

    /// Whether an older version of the program has made the database that was opened.
    pub fn was_upgraded(&self) -> bool {
        match self {
            Self::Sqlite(sqlite) => sqlite.was_upgraded(),
            Self::Postgres(postgres) => postgres.was_upgraded(),
        }
    }

    /// Sets the limits on the bytes of sessions. Without this call there are none.
    pub async fn limit_sessions(&self, limits: SessionLimits) {
        match self {
            Self::Sqlite(sqlite) => sqlite.limit_sessions(limits).await,
            Self::Postgres(postgres) => postgres.limit_sessions(limits),
        }
    }

    /// Checks whether the limits allow a write to a session. If the sessions of all owners have reached their limit,
    /// sessions whose id loopwright made are deleted first: the least recently written of the owners with most bytes.
    /// Sessions with a lease are not deleted. Every write makes the same check.
    ///
    /// # Errors
    /// `SessionTooLarge`, `Full`; else when the store fails.
    pub async fn check_growth(
        &self,
        owner: &Owner,
        id: &SessionId,
        growth: Growth,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.check_growth(owner, id, growth).await,
            Self::Postgres(postgres) => Box::pin(postgres.check_growth(owner, id, growth)).await,
        }
    }

    /// Acquires the lease of a session, in order of arrival. With a `wait` of zero, only a free lease is acquired.
    ///
    /// # Errors
    /// `Busy` after `wait`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue for the lease.
    pub async fn acquire(
        &self,
        owner: &Owner,
        id: &SessionId,
        wait: Duration,
    ) -> Result<Lease, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.leases().acquire(owner, id, wait).await,
            Self::Postgres(postgres) => Box::pin(postgres.acquire(owner, id, wait)).await,
        }
    }

    /// Checks that a lease is held. The store itself keeps leases from expiring while the process lives.
    ///
    /// # Errors
    /// `LeaseLost` when the lease has ended; writes with its fence are refused.
    pub async fn renew(&self, lease: &Lease) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.leases().pin(lease.fence()).map(drop),
            Self::Postgres(postgres) => Box::pin(postgres.renew(lease.fence())).await,
        }
    }

    /// Releases a lease. Dropping the lease also releases it, without waiting.
    pub async fn release(&self, lease: Lease) {
        match self {
            Self::Sqlite(_) => drop(lease),
            Self::Postgres(postgres) => Box::pin(postgres.release(lease)).await,
        }
    }

    /// A whole session, or `None` if the owner has no session with this id.
    ///
    /// # Errors
    /// When the store fails or the stored data is damaged.
    pub async fn load(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.load(owner, id).await,
            Self::Postgres(postgres) => Box::pin(postgres.load(owner, id)).await,
        }
    }

    /// What is known of a session without its messages; `None` if the owner has no session with this id.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn head(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<SessionHead>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.head(owner, id).await,
            Self::Postgres(postgres) => Box::pin(postgres.head(owner, id)).await,
        }
    }

    /// Applies a change atomically; creates the session if it does not exist.
    ///
    /// If fewer messages are stored than `keep`, all of them are kept.
    ///
    /// # Errors
    /// `LeaseLost`, `SessionTooLarge`, `Full`; else when the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change is applied completely or not at all.
    pub async fn write(&self, fence: &Fence, change: &Arc<Change>) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.write(fence, change).await,
            Self::Postgres(postgres) => Box::pin(postgres.write(fence, change)).await,
        }
    }

    /// Replaces the messages and instructions of a session with those of the change; its files stay. `created_at` is in
    /// Unix seconds; 0 is the current time.
    ///
    /// # Errors
    /// `LeaseLost`, `SessionTooLarge`, `Full`; else when the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn replace(
        &self,
        fence: &Fence,
        created_at: i64,
        change: &Arc<Change>,
    ) -> Result<Replaced, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.replace(fence, created_at, change).await,
            Self::Postgres(postgres) => Box::pin(postgres.replace(fence, created_at, change)).await,
        }
    }

    /// Copies the messages before the index `before_message`, or all. The index counts instructions and messages
    /// together. Both sessions share the stored messages, and each counts as a whole session for the limits.
    ///
    /// Pending client calls stay assigned to the source session. Both sessions use the same files.
    ///
    /// # Errors
    /// `LeaseLost`, `NotFound`, `Exists` when the new id is taken, `PastEnd`, `SessionTooLarge`, `Full`; else when the
    /// store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn fork(
        &self,
        source: &Fence,
        before_message: Option<usize>,
        new_id: &SessionId,
    ) -> Result<SessionSummary, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.fork(source, before_message, new_id).await,
            Self::Postgres(postgres) => {
                Box::pin(postgres.fork(source, before_message, new_id)).await
            }
        }
    }

    /// Deletes a session and the rows of the files that only it uses; returns whether it existed.
    ///
    /// # Errors
    /// `LeaseLost`; else when the store fails.
    pub async fn delete(&self, fence: &Fence) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.delete(fence).await,
            Self::Postgres(postgres) => Box::pin(postgres.delete(fence)).await,
        }
    }

    /// A page of the owner's sessions after the session `after`, last written first; at most 1000.
    ///
    /// # Errors
    /// `NotFound` when the owner has no session `after`; else when the store fails.
    pub async fn list(
        &self,
        owner: &Owner,
        limit: usize,
        after: Option<&SessionId>,
    ) -> Result<SessionPage, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.list(owner, limit, after).await,
            Self::Postgres(postgres) => Box::pin(postgres.list(owner, limit, after)).await,
        }
    }

    /// Deletes the sessions that were last written more than `ttl` ago, for nameless ones `nameless_ttl`; returns how
    /// many. `None` keeps the sessions.
    ///
    /// # Errors
    /// When the store fails; some sessions may have been deleted.
    ///
    /// # Cancel safety
    /// Sessions are deleted in batches, so that other writes can run in between. If the future is dropped, the next
    /// call deletes the rest.
    pub async fn expire(
        &self,
        ttl: Option<Duration>,
        nameless_ttl: Option<Duration>,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.expire(ttl, nameless_ttl).await,
            Self::Postgres(postgres) => Box::pin(postgres.expire(ttl, nameless_ttl)).await,
        }
    }

    /// The turn that waits for the result of this client call: a stored session, or an unstored turn that has not
    /// expired.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn waiting_turn(
        &self,
        owner: &Owner,
        call_id: &str,
    ) -> Result<Option<WaitingTurn>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.waiting_turn(owner, call_id).await,
            Self::Postgres(postgres) => Box::pin(postgres.waiting_turn(owner, call_id)).await,
        }
    }

    /// Keeps an unstored turn in memory until `until`, for the results of its pending client calls. The pending calls
    /// of a stored session are written with its [`Change`].
    ///
    /// If a limit is exceeded, the oldest turns are dropped.
    pub fn park(&self, owner: &Owner, calls: &[String], turn: UnstoredTurn, until: Instant) {
        match self {
            Self::Sqlite(sqlite) => sqlite.waiting().put(owner, calls, turn, until),
            Self::Postgres(postgres) => postgres.waiting().put(owner, calls, turn, until),
        }
    }

    /// Drops the attachment of the unstored turn that waits for this call. The turn itself is kept.
    pub fn detach(&self, owner: &Owner, call_id: &str) {
        match self {
            Self::Sqlite(sqlite) => sqlite.waiting().detach(owner, call_id),
            Self::Postgres(postgres) => postgres.waiting().detach(owner, call_id),
        }
    }

    /// Drops the unstored turns that have expired, with their attachments.
    pub fn expire_waiting(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.waiting().drop_expired(),
            Self::Postgres(postgres) => postgres.waiting().drop_expired(),
        }
    }

    /// Random bytes that this store has kept since it was made. Ids that nobody else may compute are derived from them.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn secret(&self) -> Result<[u8; 32], StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.secret().await,
            Self::Postgres(postgres) => Box::pin(postgres.secret()).await,
        }
    }

    /// The unique name of this store, for a directory of blobs that several stores share.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn name(&self) -> Result<String, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.name().await,
            Self::Postgres(postgres) => Box::pin(postgres.name()).await,
        }
    }

    /// Checks that the store responds.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.ping().await,
            Self::Postgres(postgres) => Box::pin(postgres.ping()).await,
        }
    }

    /// Completes pending writes and closes the store. Every later call fails.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.close().await,
            Self::Postgres(postgres) => Box::pin(postgres.close()).await,
        }
    }
}
