//! Failures of the store.

use std::path::PathBuf;

use super::StorageFull;

/// Why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another run holds the lease and did not release it in time.
    #[error("the session is leased to another run")]
    Busy,
    /// The lease of the write has ended; nothing was written.
    #[error("the lease of the session was lost")]
    LeaseLost,
    /// The owner has no such record.
    #[error("not found")]
    NotFound,
    /// A record with this id already exists.
    #[error("already exists")]
    Exists,
    /// The index of a message is past the end of the session.
    #[error("the session holds only {messages} messages")]
    PastEnd {
        /// Number of instructions and messages of the session.
        messages: u64,
    },
    /// The session would exceed its limit; nothing is changed.
    #[error("the session would have {bytes} bytes, and the limit is {limit}")]
    SessionTooLarge {
        /// Bytes of the session with the write.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// There is no space for more bytes of sessions; nothing is changed.
    #[error("the session store is full: {0}")]
    Full(StorageFull),
    /// Another process has the database file open.
    #[error(
        "{} is in use by another loopwright process; stop that process, or choose another file with --session-store",
        path.display()
    )]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// A newer version of the program has migrated the database.
    #[error(
        "{location} has schema version {found}, but this binary supports versions up to {known}; run a newer loopwright, \
         or choose another store with --session-store"
    )]
    NewerSchema {
        /// The database, without secrets.
        location: String,
        /// The version of its schema.
        found: i64,
        /// The newest version that this binary supports.
        known: i64,
    },
    /// The database failed, or stored data is damaged.
    #[error("the store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    pub(super) fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}
