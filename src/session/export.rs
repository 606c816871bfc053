//! The JSON form of a session, out and in.

use super::{SessionError, StoredSession};
use crate::ids::SessionId;

/// Writes a session as JSON.
pub fn export(id: &SessionId, session: &StoredSession) -> String {
    todo!()
}

/// Reads a session.
///
/// # Errors
/// `Invalid`, naming the field and the remedy.
pub fn import(json: &str, max_messages: usize) -> Result<StoredSession, SessionError> {
    todo!()
}
