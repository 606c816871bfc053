//! Encodes the events of a turn as an answer: a stream of chunks or one completion. A call outside of a turn is one entry.

mod approvals;
mod call;
mod chunks;
mod completion;
mod progress;
mod records;
mod replay;
mod schema;

pub use self::approvals::PendingApproval;
pub use self::call::{CallCollector, DirectCallAnswer};
pub use self::chunks::{ChunkEncoder, ChunkOptions, fail};
pub use self::completion::CompletionCollector;
pub use self::progress::ProgressDelivery;
pub use self::records::{AgentSummary, FileEntry};
pub use self::replay::replay;
pub use self::schema::{ChatCompletion, StreamedData};

/// The members that every chunk of an answer and the completion have.
#[derive(Debug, Clone)]
pub struct AnswerHead {
    /// The id of the completion.
    pub id: String,
    /// When the answer was begun, in seconds since 1970.
    pub created: i64,
    /// The model as the client named it, until the upstream reports its name of the model.
    pub model: String,
}
