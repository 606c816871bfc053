//! Sessions: stored conversations with their hidden tool rounds, one namespace per owner.
//!
//! Independent of the loop and of HTTP. A session is identified by its owner and its id, never by its content.

pub mod backup;
pub mod export;
pub mod files;
mod interrupted;
pub mod merge;
pub mod repair;
pub mod service;
pub mod settings;
mod title;

pub use self::interrupted::interrupted_results;
pub use self::service::{Sessions, UnwrittenChange};
pub use crate::store::{
    Attachment, Change, IdOrigin, Lease, Replaced, SessionHead, SessionSummary, StorageFull,
    StoredMessage, StoredSession, UnstoredTurn, View, WaitingTurn,
};

/// How a request's messages relate to the stored history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// `Append` when the request holds no assistant message and the session is not empty, else `Replay`.
    #[default]
    Auto,
    /// The request holds only the new messages.
    Append,
    /// The request holds the whole conversation as the client received it.
    Replay,
    /// The request holds only what is new, instructions included: they follow those of the session and do not replace them.
    #[serde(skip)]
    Continue,
}

/// Why an operation on a session failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Another run holds the lease of the session and did not release it in time.
    #[error("session is busy")]
    Busy,
    /// The owner has no session with this id.
    #[error("session not found")]
    NotFound,
    /// The owner already has a session with this id.
    #[error("session already exists")]
    Exists,
    /// The client sent an invalid value; the text names the field and the remedy.
    #[error("{message}")]
    Invalid {
        /// The invalid field.
        param: String,
        /// The text for the client.
        message: String,
    },
    /// The session would exceed its limit.
    #[error("session too large: {bytes} bytes, and the limit is {limit}")]
    TooLarge {
        /// Bytes of the session with the write.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// There is no space for more bytes of sessions.
    #[error("session store full: {0}")]
    Full(StorageFull),
    /// The run lost the lease of the session; another run may write to it.
    #[error("the lease of the session was lost")]
    LeaseLost,
    /// The store failed.
    #[error("session store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}
