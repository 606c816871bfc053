//! Where conversations are kept: SQLite, in a file or in memory.

use std::time::{Duration, Instant};

use super::settings::Settings;
use super::{Change, SessionError, StoredSession};
use crate::ids::{Owner, SessionId};

/// The session store; cheap to clone.
#[derive(Debug, Clone)]
pub struct SessionStore {}

/// One entry of the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// The session.
    pub id: SessionId,
    /// When it was made, in seconds since 1970.
    pub created_at: i64,
    /// When it was last written, in seconds since 1970.
    pub updated_at: i64,
    /// Stored messages, hidden ones and instructions included.
    pub message_count: u64,
    /// The beginning of the first user message's text, if it has any.
    pub title: Option<String>,
}

/// A page of the list of sessions.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The entries, last written first.
    pub data: Vec<SessionSummary>,
    /// More follow after the last one.
    pub has_more: bool,
}

/// What a replacement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// There was none.
    Created,
    /// There was one, which is gone.
    Replaced,
}

impl SessionStore {
    /// Opens the store and brings its schema up to date.
    ///
    /// # Errors
    /// When the file cannot be opened or migrated.
    pub async fn open(settings: &Settings) -> Result<Self, SessionError> {
        todo!()
    }

    /// A whole conversation, or `None` where this owner has none of that id.
    ///
    /// # Errors
    /// When the store fails or holds what cannot be read.
    pub async fn load(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, SessionError> {
        todo!()
    }

    /// Applies a change whole or not at all; makes the session if there is none.
    ///
    /// # Errors
    /// When the store fails; nothing is changed then.
    pub async fn change(
        &self,
        owner: &Owner,
        id: &SessionId,
        change: &Change,
    ) -> Result<(), SessionError> {
        todo!()
    }

    /// The session whose response asked the client to run this call.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find_by_call(
        &self,
        owner: &Owner,
        call_id: &str,
    ) -> Result<Option<SessionId>, SessionError> {
        todo!()
    }

    /// A page of the owner's sessions, last written first, after the one named.
    ///
    /// # Errors
    /// `NotFound` when `after` is none of the owner's; else when the store fails.
    pub async fn list(
        &self,
        owner: &Owner,
        limit: usize,
        after: Option<&SessionId>,
    ) -> Result<Page, SessionError> {
        todo!()
    }

    /// Deletes a session; says whether there was one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete(&self, owner: &Owner, id: &SessionId) -> Result<bool, SessionError> {
        todo!()
    }

    /// Puts a session in place of what is stored under the id.
    ///
    /// # Errors
    /// When the store fails; nothing is changed then.
    pub async fn replace(
        &self,
        owner: &Owner,
        id: &SessionId,
        session: &StoredSession,
    ) -> Result<Replaced, SessionError> {
        todo!()
    }

    /// Copies a session up to (without) the message at the index that an export counts, or whole.
    ///
    /// # Errors
    /// `NotFound`, `Exists` when the new id is taken, `Invalid` when the index is past the end; else when the store fails.
    pub async fn fork(
        &self,
        owner: &Owner,
        id: &SessionId,
        before_message: Option<usize>,
        new_id: Option<SessionId>,
    ) -> Result<SessionId, SessionError> {
        todo!()
    }

    /// Deletes the sessions that were not written for so long; returns how many.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn expire(&self, ttl: Duration) -> Result<u64, SessionError> {
        todo!()
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), SessionError> {
        todo!()
    }

    /// Writes out what is pending and closes the store.
    pub async fn close(&self) {
        todo!()
    }

    /// Keeps an unstored conversation in memory until one of its pending client calls is answered or time is up.
    pub fn park(&self, owner: &Owner, calls: &[String], session: StoredSession, until: Instant) {
        todo!()
    }

    /// Takes the parked conversation that waits for this call.
    pub fn take_parked(&self, owner: &Owner, call_id: &str) -> Option<StoredSession> {
        todo!()
    }
}
