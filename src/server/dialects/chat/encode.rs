//! Encodes the events of a turn as an answer: a stream of chunks or one completion. A call outside of a turn is one entry.

mod approvals;
mod arguments;
mod call;
mod chunks;
mod completion;
mod progress;
mod records;
mod replay;
mod schema;

pub(crate) use self::approvals::PendingApproval;
pub(crate) use self::call::{CallCollector, DirectCallAnswer};
pub(crate) use self::chunks::{ChunkEncoder, ChunkOptions, fail};
pub(crate) use self::completion::CompletionCollector;
pub(crate) use self::progress::ProgressDelivery;
pub(crate) use self::records::{AgentSummary, FileEntry};
pub(crate) use self::replay::replay;
pub(crate) use self::schema::{ChatCompletion, StreamedData};

/// The members that every chunk of an answer and the completion have.
#[derive(Debug, Clone)]
pub(crate) struct AnswerHead {
    /// The id of the completion.
    pub(crate) id: String,
    /// When the answer was begun, in seconds since 1970.
    pub(crate) created: i64,
    /// The model as the client named it, until the upstream reports its name of the model.
    pub(crate) model: String,
}
