//! Joining a request's messages to the stored history.

use super::{SessionMode, StoredSession};
use crate::openai::message::Message;

/// How a request continues a stored conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Joined {
    /// The new leading instructions; `None` leaves the stored ones.
    pub instructions: Option<Vec<Message>>,
    /// How many stored messages stay.
    pub keep: usize,
    /// The request's messages that follow them.
    pub new: Vec<Message>,
}

/// Joins.
pub fn join(stored: &StoredSession, incoming: Vec<Message>, mode: SessionMode) -> Joined {
    todo!()
}

/// The whole conversation after a join, as the model is to see it.
pub fn history(stored: &StoredSession, joined: &Joined) -> Vec<Message> {
    todo!()
}
