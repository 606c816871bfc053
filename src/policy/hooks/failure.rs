//! Why a hook gives no answer.

use std::time::Duration;

use super::answer::HookAnswerError;

/// Why a hook has given no answer. The texts are for the client and the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookFailure {
    /// The request could not be written or signed.
    #[error("the request could not be written")]
    Unwritten,
    /// There was no connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// It took longer than it may.
    #[error("it did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It answered with a status other than 2xx.
    #[error("it answered with status {0}")]
    Status(u16),
    /// The answer is larger than it may be; holds the limit in bytes.
    #[error("its answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The answer is compressed.
    #[error("its answer has a content-encoding")]
    Compressed,
    /// The answer cannot be understood.
    #[error(transparent)]
    Answer(#[from] HookAnswerError),
    /// The messages of the answer are no chat messages.
    #[error("`hookSpecificOutput.updatedMessages` in the answer has an entry that is no message")]
    Messages,
}

impl HookFailure {
    /// The class, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Connection(_) => "connection",
            Self::TimedOut(_) => "timeout",
            Self::Status(_) => "status",
            Self::TooLarge(_) => "too_large",
            Self::Unwritten | Self::Compressed | Self::Answer(_) | Self::Messages => "invalid",
        }
    }
}
