//! Sessions: the expanded history of a conversation, kept per owner.
//!
//! Knows nothing of the loop or of HTTP. Content never decides whose session it is; the owner and the id do.

pub mod export;
pub mod files;
pub mod merge;
pub mod repair;
pub mod service;
pub mod settings;
mod title;

pub use self::service::{Sessions, UnwrittenChange};
pub use crate::store::{
    Attachment, Change, Lease, Replaced, SessionSummary, StoredMessage, StoredSession,
    UnstoredTurn, View, WaitingTurn,
};

/// How a request's messages relate to the stored history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// `Append` when the request holds no assistant message and the session is not empty, else `Replay`.
    #[default]
    Auto,
    /// The request holds only what is new.
    Append,
    /// The request holds the conversation as the client sees it.
    Replay,
}

/// Why a session could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Another turn of it is running and did not end in time.
    #[error("session is busy")]
    Busy,
    /// There is none under this id for this owner.
    #[error("session not found")]
    NotFound,
    /// There is one already.
    #[error("session exists already")]
    Exists,
    /// An import does not hold a valid session; the text names the field and the remedy.
    #[error("{message}")]
    Invalid {
        /// The field at fault.
        param: String,
        /// For the client.
        message: String,
    },
    /// The store failed.
    #[error("session store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}
