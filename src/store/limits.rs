//! The limits on the bytes of sessions.

/// The limits on the bytes of sessions. By default there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Most bytes of one session.
    pub session_bytes: u64,
    /// Most bytes of all sessions of all owners.
    pub total_bytes: u64,
    /// Free bytes of the file system below which no new session is stored.
    pub min_free_disk: u64,
}

/// Why there is no space for more bytes of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StorageFull {
    /// The sessions of all owners have reached the limit, and the owner has more than an equal share of it.
    #[error(
        "the sessions of the owner would have {bytes} bytes, and an equal share of {total} bytes is {share}"
    )]
    Share {
        /// Bytes that the write adds.
        added: u64,
        /// Bytes of the owner's sessions with the write.
        bytes: u64,
        /// The limit, divided by the number of owners with sessions.
        share: u64,
        /// The limit.
        total: u64,
    },
    /// The file system of the store has too little free space for a new session.
    #[error("{free} bytes of the disk are free, and new sessions need {least}")]
    Disk {
        /// Free bytes.
        free: u64,
        /// The limit.
        least: u64,
    },
    /// The disk of the database server has no free space.
    #[error("the disk of the database is full")]
    Database,
}

/// What a write does to the size of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Bytes of the session before the write; `None` if the session does not exist.
    pub before: Option<u64>,
    /// Bytes of the session after it.
    pub after: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            session_bytes: u64::MAX,
            total_bytes: u64::MAX,
            min_free_disk: 0,
        }
    }
}

impl Growth {
    /// The bytes that the write adds.
    pub(super) fn added(self) -> u64 {
        self.after.saturating_sub(self.before.unwrap_or_default())
    }
}
