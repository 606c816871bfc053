//! Making a history valid for strict upstreams.

use crate::openai::message::Message;

/// Repairs.
pub fn repair(messages: Vec<Message>) -> Vec<Message> {
    todo!()
}
