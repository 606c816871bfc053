//! Sessions that are read whole for an answer: their memory is reserved before, and is given back with the last byte that the
//! client has taken.

use std::time::Duration;

use bytes::Bytes;

use super::AppState;
use super::error::ApiError;
use crate::ids::{Owner, SessionId};
use crate::quota::ReservedMemory;
use crate::session::StoredSession;

/// Longest wait for memory that other answers hold.
const MEMORY_WAIT: Duration = Duration::from_secs(5);
/// Memory for a byte of a session and of the text that is made of it.
pub(super) const TEXT_FACTOR: u64 = 3;
/// Memory for a byte of a session whose items are made, each an object.
pub(super) const ITEMS_FACTOR: u64 = 40;

/// A session with the memory that is reserved for it.
#[derive(Debug)]
pub(super) struct ReadSession {
    pub(super) stored: StoredSession,
    memory: ReservedMemory,
}

/// A text that is sent, with its memory.
struct HeldText {
    text: String,
    _memory: ReservedMemory,
}

/// Reads a session, of which each byte takes so many of memory.
///
/// # Errors
/// When the memory is in use for too long, or the store fails.
pub(super) async fn session(
    state: &AppState,
    owner: &Owner,
    id: &SessionId,
    factor: u64,
) -> Result<Option<ReadSession>, ApiError> {
    let Some(head) = state.sessions.head(owner, id).await? else {
        return Ok(None);
    };
    let memory = reserve(state, owner, head.bytes.saturating_mul(factor)).await?;
    session_within(state, owner, id, memory).await
}

/// The same with memory that is reserved already.
///
/// # Errors
/// When the store fails.
pub(super) async fn session_within(
    state: &AppState,
    owner: &Owner,
    id: &SessionId,
    memory: ReservedMemory,
) -> Result<Option<ReadSession>, ApiError> {
    let stored = state.sessions.load(owner, id).await?;
    Ok(stored.map(|stored| ReadSession { stored, memory }))
}

/// Reserves memory for an answer.
///
/// # Errors
/// When the memory is in use for too long.
pub(super) async fn reserve(
    state: &AppState,
    owner: &Owner,
    bytes: u64,
) -> Result<ReservedMemory, ApiError> {
    let mut memory = state.reads.empty(owner);
    match memory.grow_to(bytes, MEMORY_WAIT).await {
        true => Ok(memory),
        false => Err(ApiError::answers_overloaded()),
    }
}

impl ReadSession {
    /// The session, and its memory, which is to be held as long.
    pub(super) fn into_parts(self) -> (StoredSession, ReservedMemory) {
        (self.stored, self.memory)
    }

    /// A text that was made of the session, in whose place it stands from now on.
    pub(super) fn into_text(self, text: String) -> Bytes {
        let mut memory = self.memory;
        memory.shrink_to(text.len() as u64);
        Bytes::from_owner(HeldText {
            text,
            _memory: memory,
        })
    }
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}
