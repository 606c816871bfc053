//! From the events of a turn to the bytes of an answer: a stream of chunks, or one completion.

mod chunks;
mod completion;
mod progress;
mod records;

pub use self::chunks::{ChunkEncoder, fail};
pub use self::completion::CompletionCollector;
pub use self::progress::Delivery;

/// What every chunk of an answer says, and the completion too.
#[derive(Debug, Clone)]
pub struct AnswerHead {
    /// The completion's id.
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    /// The model as the client named it; the model's own name for itself replaces it.
    pub model: String,
}
