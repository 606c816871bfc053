//! One turn at a time per conversation.

use std::time::Duration;

use super::SessionError;
use crate::ids::{Owner, SessionId};

/// Who is at work on which session.
#[derive(Debug, Default)]
pub struct SessionLocks {}

/// The right to work on a session, until it is dropped.
#[derive(Debug)]
pub struct SessionGuard {}

impl SessionLocks {
    /// Waits for the session's turn, first come first served.
    ///
    /// # Errors
    /// `Busy` after `wait`.
    pub async fn acquire(
        &self,
        owner: &Owner,
        id: &SessionId,
        wait: Duration,
    ) -> Result<SessionGuard, SessionError> {
        todo!()
    }

    /// Whether somebody works on the session now.
    pub fn is_running(&self, owner: &Owner, id: &SessionId) -> bool {
        todo!()
    }
}
