//! Persistent state: sessions, the rows of files, records of runs, leases, and turns that wait for their client.
//!
//! The store keeps records, each of which belongs to an owner; it does not interpret conversations. Every write of a run
//! carries the fence of its lease. A write whose lease has ended is refused.
//!
//! There are two engines. A verb of the store is written once, over the statements of both ([`tx`]). What differs is in their
//! folders: connections, migrations, leases between processes, and the write of a session, which each makes in its fastest way.

mod accounts;
mod answer;
mod approval;
mod approval_events;
mod approvals;
mod backup;
mod check;
mod clock;
mod copy;
mod engine;
mod error;
mod evict;
mod file;
mod files;
mod fork;
mod keys;
mod lease;
mod leases;
mod limits;
#[cfg_attr(not(feature = "postgres"), path = "no_postgres.rs")]
mod postgres;
mod record;
mod replica;
mod run;
mod runs;
mod sessions;
mod shares;
mod sqlite;
#[cfg(test)]
mod suite;
mod suspended;
#[cfg(any(test, feature = "test-helpers"))]
mod testing;
mod tx;
mod usage;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

#[cfg(test)]
pub(crate) use self::accounts::{Account, AccountReservation};
pub use self::approval::{
    Approval, ApprovalDecision, ApprovalQuestion, ApprovalState, ApprovalVerdict, Decided, Remember,
};
pub use self::approval_events::ApprovalEvent;
pub use self::approvals::WaitingFilter;
pub use self::backup::{BackupCounts, BackupError, StoreBackup};
pub use self::check::{check, check_directory};
pub use self::copy::{CopyError, CopyProgress, copy};
use self::engine::Engine;
pub use self::error::StoreError;
pub use self::file::{FileFilter, FileOrder, FilePage, FileRecord, FileUsage, Purpose, StoredFile};
pub use self::lease::Lease;
pub(crate) use self::leases::Fence;
pub use self::limits::{Growth, SessionLimits, StorageFull};
pub use self::postgres::PostgresUrl;
pub use self::record::{
    Change, IdOrigin, Replaced, SessionHead, SessionSummary, StoredMessage, StoredSession, Title,
    TurnChange, View,
};
pub use self::replica::OtherReplica;
pub use self::run::{KeyClaim, RunAnswer, RunRecord, RunRecordState};
use self::shares::StatementSize;
pub use self::suspended::SuspendedRun;
use self::tx::{Tx, values};
use self::usage::{AnswerQuota, SessionQuota};
use self::waiting::WaitingTurns;
pub use self::waiting::{Attachment, UnstoredTurn, WaitingTurn};
use protocol::ids::{Owner, SessionId};

/// How long a verb is tried again whose connection was lost, or that the database has undone because of another one.
/// Tried by `postgres::a_lost_connection_is_made_again`.
const RETRY_LIMIT: Duration = Duration::from_secs(5);
/// Pause before a verb is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

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

/// The location without secrets.
impl std::fmt::Display for StoreUrl {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(formatter),
            Self::Memory => formatter.write_str("memory:"),
            Self::Postgres(url) => formatter.write_str(url.location()),
        }
    }
}

/// A store; cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    engine: Engine,
    shared: Arc<Shared>,
}

/// What the verbs of one store share.
#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<WaitingTurns>,
    sessions: SessionQuota,
    answers: AnswerQuota,
}

impl Store {
    /// Opens the store and migrates its schema.
    ///
    /// # Errors
    /// `InUse`, `NewerSchema`; else when it cannot be opened or migrated.
    pub async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        let store = Self {
            engine: Engine::open(url).await?,
            shared: Arc::default(),
        };
        if let Err(error) = store.refuse_unfinished(&url.to_string()).await {
            store.close().await;
            return Err(error);
        }
        Ok(store)
    }

    /// Whether several processes may use the store.
    pub fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }

    /// Whether an older version of the program has made the database that was opened.
    pub fn was_upgraded(&self) -> bool {
        self.engine.was_upgraded()
    }

    /// Sets whether several owners share the connections to the database, as they do without this call.
    pub fn share_connections(&self, shared: bool) {
        self.engine.share_connections(shared);
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
        self.engine.acquire(owner, id, wait).await
    }

    /// Checks that a lease is held. The store itself keeps leases from expiring while the process lives.
    ///
    /// # Errors
    /// `LeaseLost` when the lease has ended; writes with its fence are refused.
    pub async fn renew(&self, lease: &Lease) -> Result<(), StoreError> {
        self.engine.renew(lease.fence()).await
    }

    /// Releases a lease. Dropping the lease also releases it, without waiting.
    pub async fn release(&self, lease: Lease) {
        self.engine.release(lease).await;
    }

    /// Applies a change atomically; creates the session if it does not exist.
    ///
    /// `keep` may be larger than the number of stored messages; then no message is deleted.
    ///
    /// # Errors
    /// `LeaseLost`, `SessionTooLarge`, `Full`; else when the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change is applied completely or not at all.
    pub async fn write(&self, fence: &Fence, change: &Arc<Change>) -> Result<(), StoreError> {
        self.change(fence, change, None).await.map(drop)
    }

    /// Replaces the messages and instructions of a session by the messages and instructions of the change; its files
    /// stay. `created_at` is in Unix seconds; 0 is the current time.
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
        self.change(fence, change, Some(created_at)).await
    }

    async fn change(
        &self,
        fence: &Fence,
        change: &Change,
        created_at: Option<i64>,
    ) -> Result<Replaced, StoreError> {
        let least = self.shared.sessions.limits().min_free_disk;
        self.engine.measure_disk(least).await;
        self.with_room(&fence.owner, &fence.id, |room| async move {
            let written = match &self.engine {
                Engine::Sqlite(sqlite) => {
                    let admit = |growth: Growth| {
                        self.check_session(growth)?;
                        Ok(self.admit(room, growth.added()))
                    };
                    return sqlite.write(fence, (change, created_at), admit).await;
                }
                Engine::Postgres(postgres) => {
                    let limits = self.shared.sessions.limits();
                    let most = (limits.session_bytes, self.room(room).unwrap_or(0));
                    Box::pin(postgres.write(fence, (change, created_at), most)).await?
                }
            };
            Ok(written.map(|(replaced, added)| {
                self.shared.sessions.count_added(added);
                replaced
            }))
        })
        .await
    }

    /// Keeps an unstored turn in memory until `until`, for the results of its pending client calls. The pending calls
    /// of a stored session are written with its [`Change`].
    ///
    /// If a limit is exceeded, the oldest turns are dropped.
    pub fn put_waiting(&self, owner: &Owner, calls: &[String], turn: UnstoredTurn, until: Instant) {
        self.shared.waiting.lock().put(owner, calls, turn, until);
    }

    /// Drops the attachment of the unstored turn that waits for this call, but not the turn.
    pub fn detach(&self, owner: &Owner, call_id: &str) {
        self.shared.waiting.lock().detach(owner, call_id);
    }

    /// Drops the unstored turns that have expired, with their attachments.
    pub fn expire_waiting(&self) {
        self.shared.waiting.lock().drop_expired();
    }

    /// Random bytes that this store has had since it was created. Ids that others must not be able to compute are
    /// derived from them.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn secret(&self) -> Result<[u8; 32], StoreError> {
        let mut tx = self.read(&Owner::server(), StatementSize::Small).await?;
        let mut row = tx.one("SELECT secret FROM store_identity", &[]).await?;
        let secret: bytes::Bytes = row.column(0)?;
        let length = "the secret of the store does not have 32 bytes";
        <[u8; 32]>::try_from(&secret[..]).map_err(|_| StoreError::failed(length))
    }

    /// The unique name of this store, for a directory of blobs that several stores share.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn name(&self) -> Result<String, StoreError> {
        let mut tx = self.read(&Owner::server(), StatementSize::Small).await?;
        let mut row = tx.one("SELECT name FROM store_identity", &[]).await?;
        row.column(0)
    }

    /// Checks that the store responds.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        // A query of a table, because a constant would be returned without access to the file.
        let mut tx = self.read(&Owner::server(), StatementSize::Small).await?;
        tx.row("SELECT 1 FROM sessions LIMIT 1", &[])
            .await
            .map(drop)
    }

    /// Completes pending writes and closes the store. Every later call fails.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// Statements that only read, each on its own.
    async fn read(&self, owner: &Owner, size: StatementSize) -> Result<Tx, StoreError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.read(owner, size).await.map(Tx::Sqlite),
            Engine::Postgres(postgres) => Ok(Tx::Postgres(postgres.single(owner, size))),
        }
    }

    /// Statements, each on its own.
    async fn single(&self, owner: &Owner, size: StatementSize) -> Result<Tx, StoreError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.single(owner, size).await.map(Tx::Sqlite),
            Engine::Postgres(postgres) => Ok(Tx::Postgres(postgres.single(owner, size))),
        }
    }

    /// Begins a transaction. A verb with one is [`retrying`].
    async fn begin(&self, owner: &Owner, size: StatementSize) -> Result<Tx, StoreError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.begin(owner, size).await.map(Tx::Sqlite),
            Engine::Postgres(postgres) => Box::pin(postgres.begin(owner, size))
                .await
                .map(Tx::Postgres),
        }
    }
}

impl Tx {
    /// Fails with `LeaseLost` if the lease has ended. Else it cannot pass to another holder before the transaction ends.
    async fn check_lease(&mut self, fence: &Fence) -> Result<(), StoreError> {
        let held = match self {
            Self::Sqlite(tx) => tx.hold(fence).is_ok(),
            Self::Postgres(_) => {
                let sql = "SELECT holds_lease_1($1, $2, $3)";
                let token = tx::signed(fence.token);
                let values = values![fence.owner.as_str(), fence.id.as_str(), token];
                self.one(sql, values).await?.column(0)?
            }
        };
        match held {
            true => Ok(()),
            false => Err(StoreError::LeaseLost),
        }
    }
}

/// Runs a verb, and again if the database has undone it for a reason that may have passed. It must have the same effect if it
/// runs twice: a commit may have succeeded whose answer was lost.
async fn retrying<T, F>(verb: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = Instant::now() + RETRY_LIMIT;
    loop {
        match verb().await {
            Err(error) if postgres::is_passing(&error) && Instant::now() < deadline => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            done => return done,
        }
    }
}
