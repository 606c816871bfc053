//! Sessions: stored conversations with their hidden tool rounds, one namespace per owner.
//!
//! Independent of the loop and of HTTP. A session is identified by its owner and its id, never by its content.

pub mod backup;
pub mod export;
pub mod files;
mod interrupted;
pub(crate) mod merge;
pub(crate) mod repair;
pub(crate) mod service;
pub mod settings;
mod title;

pub(crate) use self::interrupted::interrupted_results;
pub use self::service::Sessions;
pub(crate) use self::service::UnwrittenChange;
pub use store::{
    Approval, ApprovalDecision, ApprovalEvent, ApprovalQuestion, ApprovalState, ApprovalVerdict,
    Change, Decided, Remember, Replaced, SessionHead, SessionSummary, StorageFull, StoreError,
    StoredMessage, StoredSession, View, WaitingFilter,
};
pub(crate) use store::{Attachment, IdOrigin, Lease, TurnChange, UnstoredTurn, WaitingTurn};

/// How a request's messages relate to the stored history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// `Append` when the request holds no assistant message and the session is not empty, else `Replay`.
    #[default]
    Auto,
    /// The request holds only the new messages.
    Append,
    /// The request holds the whole conversation as the client received it.
    Replay,
    /// The request holds only new messages, including instructions: they follow the instructions of the session and do
    /// not replace them.
    Continue,
}
