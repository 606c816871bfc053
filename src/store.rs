//! Where state is kept: sessions, the rows of files, leases, and turns that wait for their client.
//!
//! A closed set of stores behind one enum. Knows how records are kept and that every record belongs to an owner; knows
//! nothing of what a conversation means. Every write of a turn carries the fence of its lease, and the store refuses a
//! write whose lease is no longer held.

mod clock;
mod file;
mod lease;
mod record;
mod sqlite;
#[cfg(test)]
mod suite;
mod waiting;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::file::{
    FileFilter, FileOrder, FilePage, FileRecord, FileUsage, InsertedFile, Purpose, StoredFile,
};
pub use self::lease::{Fence, Lease};
pub use self::record::{
    Change, Replaced, SessionPage, SessionSummary, StoredMessage, StoredSession, Title, View,
};
pub use self::sqlite::Sqlite;
pub use self::waiting::{Attachment, UnstoredTurn, WaitingTurn};
use crate::ids::{Owner, SessionId};

/// Where state is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// Memory; gone when the process ends.
    Memory,
}

/// A store; cheap to clone.
#[derive(Debug, Clone)]
pub enum Store {
    /// SQLite, in a file that belongs to this process or in memory.
    Sqlite(Sqlite),
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another turn holds the lease and did not release it in time.
    #[error("the session is leased to another turn")]
    Busy,
    /// The lease of the write is no longer held; nothing was written.
    #[error("the lease of the session was lost")]
    LeaseLost,
    /// The owner has no such record.
    #[error("not found")]
    NotFound,
    /// There is a record with this id already.
    #[error("exists already")]
    Exists,
    /// The index of a message is past the end of the session.
    #[error("the session holds only {messages} messages")]
    PastEnd {
        /// Instructions and messages of the session.
        messages: u64,
    },
    /// Another process has the database file open.
    #[error(
        "{} is in use by another loopwright process; stop that process, or choose another file with --session-store",
        path.display()
    )]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// A newer binary has changed the schema of the database.
    #[error(
        "{} has schema version {found}, this binary knows versions up to {known}; run the newer loopwright, or choose \
         another file with --session-store",
        path.display()
    )]
    NewerSchema {
        /// The database file.
        path: PathBuf,
        /// The version of its schema.
        found: i64,
        /// The newest version that this binary knows.
        known: i64,
    },
    /// The database failed, or holds what cannot be read.
    #[error("the store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Store {
    /// Opens the store and brings its schema up to date.
    ///
    /// # Errors
    /// `InUse`, `NewerSchema`; else when it cannot be opened or migrated.
    pub async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Sqlite::open(url).await.map(Self::Sqlite)
    }

    /// Waits for the right to write to a session; first come, first served. A `wait` of zero takes it only if it is
    /// free.
    ///
    /// # Errors
    /// `Busy` after `wait`.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub async fn acquire(
        &self,
        owner: &Owner,
        id: &SessionId,
        wait: Duration,
    ) -> Result<Lease, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.leases().acquire(owner, id, wait).await,
        }
    }

    /// Extends a lease.
    ///
    /// # Errors
    /// `LeaseLost` when it is no longer held; what is written under it is refused then.
    #[expect(
        clippy::unused_async,
        reason = "a store that several processes use asks its server"
    )]
    pub async fn renew(&self, lease: &Lease) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.leases().pin(lease.fence()).map(drop),
        }
    }

    /// Gives a lease back. Dropping it does the same without waiting.
    #[expect(
        clippy::unused_async,
        reason = "a store that several processes use asks its server"
    )]
    pub async fn release(&self, lease: Lease) {
        match self {
            Self::Sqlite(_) => drop(lease),
        }
    }

    /// A whole session, or `None` where this owner has none of that id.
    ///
    /// # Errors
    /// When the store fails or holds what cannot be read.
    pub async fn load(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.load(owner, id).await,
        }
    }

    /// Applies a change whole or not at all; makes the session if there is none.
    ///
    /// Where fewer messages are stored than `keep`, the new ones follow those that are there.
    ///
    /// # Errors
    /// `LeaseLost`; else when the store fails. Nothing is changed then.
    ///
    /// # Cancel safety
    /// A dropped future makes the change whole or not at all.
    pub async fn write(&self, fence: &Fence, change: &Arc<Change>) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.write(fence, change).await,
        }
    }

    /// Puts the messages and instructions of a change in place of what is stored under the id; its files stay. A
    /// `created_at` of 0 is now.
    ///
    /// # Errors
    /// `LeaseLost`; else when the store fails. Nothing is changed then.
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
        }
    }

    /// Copies a session up to (without) the message at the index, or whole. The index counts instructions and messages
    /// together.
    ///
    /// Calls that the client was asked to run keep leading to the session that was copied; files are used by both.
    ///
    /// # Errors
    /// `LeaseLost`, `NotFound`, `Exists` when the new id is taken, `PastEnd`; else when the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn fork(
        &self,
        source: &Fence,
        before_message: Option<usize>,
        new_id: &SessionId,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.fork(source, before_message, new_id).await,
        }
    }

    /// Deletes a session and the rows of the files that only it uses; says whether there was one.
    ///
    /// # Errors
    /// `LeaseLost`; else when the store fails.
    pub async fn delete(&self, fence: &Fence) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.delete(fence).await,
        }
    }

    /// A page of the owner's sessions, last written first, after the one named; at most 1000.
    ///
    /// # Errors
    /// `NotFound` when `after` is none of the owner's; else when the store fails.
    pub async fn list(
        &self,
        owner: &Owner,
        limit: usize,
        after: Option<&SessionId>,
    ) -> Result<SessionPage, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.list(owner, limit, after).await,
        }
    }

    /// Deletes the sessions that were not written for so long; returns how many.
    ///
    /// # Errors
    /// When the store fails; some of them may be gone then.
    ///
    /// # Cancel safety
    /// Deletes a few at a time, so that other writes come in between; a dropped future leaves the rest for next time.
    pub async fn expire(&self, ttl: Duration) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.expire(ttl).await,
        }
    }

    /// The turn that waits for the result of this call: the session whose response asked the client to run it, or an
    /// unstored conversation whose time is not up.
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
        }
    }

    /// Keeps an unstored turn in memory until time is up, for the results of its pending client calls. A stored one
    /// waits by the calls of its [`Change`].
    ///
    /// Where too many wait already, the one that has waited longest gives way.
    pub fn park(&self, owner: &Owner, calls: &[String], turn: UnstoredTurn, until: Instant) {
        match self {
            Self::Sqlite(sqlite) => sqlite.waiting().put(owner, calls, turn, until),
        }
    }

    /// Drops what is attached to the unstored turn that waits for this call; the turn can still be asked for.
    pub fn detach(&self, owner: &Owner, call_id: &str) {
        match self {
            Self::Sqlite(sqlite) => sqlite.waiting().detach(owner, call_id),
        }
    }

    /// Forgets the unstored turns whose time is up, with what is attached to them.
    pub fn expire_waiting(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.waiting().drop_expired(),
        }
    }

    /// Names this store where several keep their blobs in one directory.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn name(&self) -> Result<String, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.name().await,
        }
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.ping().await,
        }
    }

    /// Writes out what is pending and closes the store; every later call fails.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.close().await,
        }
    }
}

impl StoreError {
    fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}
