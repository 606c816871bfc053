//! Where conversations are kept: SQLite, in a file or in memory.
//!
//! Every statement names the owner or a row that was found through it. Writers take turns on one connection; readers of
//! a file have connections of their own and see the last committed state. What the dropped future of a write leaves behind is the whole write or nothing.

pub(super) mod connections;
mod open;
mod park;
mod put;
mod read;
#[cfg(test)]
mod tests;
pub(super) mod write;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::timeout;

use self::connections::{Connections, Held};
use self::park::Parked;
use self::put::Put;
use self::write::Clock;
use super::files::FileStore;
use super::settings::Settings;
use super::{Change, SessionError, StoredSession};
use crate::ids::{Owner, SessionId};

/// Longest wait for each step of closing; what is not written back then is in the write-ahead log.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The session store; cheap to clone.
#[derive(Debug, Clone)]
pub struct SessionStore {
    writer: Arc<Connections>,
    /// The same as `writer` where the store is in memory.
    reader: Arc<Connections>,
    clock: Arc<Clock>,
    parked: Arc<Mutex<Parked>>,
    files: FileStore,
}

/// Something that lasts as long as a turn.
pub type Attached = Arc<dyn Any + Send + Sync>;

/// An unstored conversation that waits for the results of its client's tools.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// The conversation.
    pub session: StoredSession,
    /// What goes with the turn.
    pub held: Option<Attached>,
}

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
    /// Opens the store with its files, and brings its schema up to date.
    ///
    /// # Errors
    /// When the file cannot be opened or migrated, or the directory of files cannot be used.
    pub async fn open(settings: &Settings) -> Result<Self, SessionError> {
        let (writer, reader) = open::connections(&settings.store).await?;
        let clock = Arc::<Clock>::default();
        let connections = (Arc::clone(&writer), Arc::clone(&reader));
        let files = FileStore::open(connections, Arc::clone(&clock), settings);
        let files = files
            .await
            .map_err(|error| SessionError::Store(Box::new(error)))?;
        Ok(Self {
            writer,
            reader,
            clock,
            parked: Arc::default(),
            files,
        })
    }

    /// The files of sessions and of owners.
    pub fn files(&self) -> &FileStore {
        &self.files
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
        let mut held = self.reader.take().await?;
        let session = read::load(held.get()?, owner, id).await?;
        held.done();
        Ok(session)
    }

    /// Applies a change whole or not at all; makes the session if there is none.
    ///
    /// Where fewer messages are stored than `keep`, the new ones follow those that are there.
    ///
    /// # Errors
    /// When the store fails; nothing is changed then.
    ///
    /// # Cancel safety
    /// A dropped future makes the change whole or not at all.
    pub async fn change(
        &self,
        owner: &Owner,
        id: &SessionId,
        change: &Change,
    ) -> Result<(), SessionError> {
        let put = Put::change(owner, id, change);
        let mut held = self.writer.take().await?;
        if put.is_long() {
            held.begin().await?;
        }
        put::put(held.get()?, self.clock.stamp(), &put).await?;
        if put.is_long() {
            held.commit().await?;
        } else {
            held.done();
        }
        Ok(())
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
        let mut held = self.reader.take().await?;
        let found = read::find_by_call(held.get()?, owner, call_id).await?;
        held.done();
        Ok(found)
    }

    /// A page of the owner's sessions, last written first, after the one named; at most 1000.
    ///
    /// # Errors
    /// `NotFound` when `after` is none of the owner's; else when the store fails.
    pub async fn list(
        &self,
        owner: &Owner,
        limit: usize,
        after: Option<&SessionId>,
    ) -> Result<Page, SessionError> {
        let mut held = self.reader.take().await?;
        let page = read::list(held.get()?, owner, limit, after).await?;
        held.done();
        Ok(page)
    }

    /// Deletes a session and the files that only it uses; says whether there was one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete(&self, owner: &Owner, id: &SessionId) -> Result<bool, SessionError> {
        let mut held = self.writer.take().await?;
        let deleted = write::delete(held.get()?, owner, id).await?;
        held.done();
        if deleted {
            self.files.clean_up().await;
        }
        Ok(deleted)
    }

    /// Puts a session in place of what is stored under the id; its files stay. The time it was made is kept unless it
    /// is 0.
    ///
    /// # Errors
    /// When the store fails; nothing is changed then.
    pub async fn replace(
        &self,
        owner: &Owner,
        id: &SessionId,
        session: &StoredSession,
    ) -> Result<Replaced, SessionError> {
        let mut held = self.begin().await?;
        let replaced = write::replace(held.get()?, self.clock.stamp(), owner, id, session).await?;
        held.commit().await?;
        Ok(replaced)
    }

    /// Copies a session up to (without) the message at the index that an export counts, or whole.
    ///
    /// Calls that the client was asked to run keep leading to the session that was copied; files are used by both.
    ///
    /// # Errors
    /// `NotFound`, `Exists` when the new id is taken, `Invalid` when the index is past the end; else when the store
    /// fails.
    pub async fn fork(
        &self,
        owner: &Owner,
        id: &SessionId,
        before_message: Option<usize>,
        new_id: Option<SessionId>,
    ) -> Result<SessionId, SessionError> {
        let new_id = new_id.unwrap_or_else(SessionId::fresh);
        let mut held = self.begin().await?;
        let source = write::fork_source(held.get()?, owner, id, before_message).await?;
        write::fork(held.get()?, self.clock.stamp(), owner, &source, &new_id).await?;
        held.commit().await?;
        Ok(new_id)
    }

    /// Deletes the sessions that were not written for so long; returns how many.
    ///
    /// # Errors
    /// When the store fails; some of them may be gone then.
    ///
    /// # Cancel safety
    /// Deletes a few at a time, so that other writes come in between; a dropped future leaves the rest for next time.
    pub async fn expire(&self, ttl: Duration) -> Result<u64, SessionError> {
        let ttl_us = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        let before = self.clock.stamp().saturating_sub(ttl_us);
        let mut total = 0;
        loop {
            let mut held = self.writer.take().await?;
            let deleted = write::expire_some(held.get()?, before).await?;
            held.done();
            total += deleted;
            if deleted < write::EXPIRE_BATCH {
                break;
            }
        }
        if total > 0 {
            self.files.clean_up().await;
        }
        Ok(total)
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), SessionError> {
        let mut held = self.reader.take().await?;
        read::ping(held.get()?).await?;
        held.done();
        Ok(())
    }

    /// Writes out what is pending and closes the store; every later call fails.
    pub async fn close(&self) {
        // Readers first: the log can only be written back whole while nobody reads from it. In memory this closes the
        // writer as well, and there is no log.
        let readers = self.reader.close(CLOSE_WAIT).await;
        let written_back = timeout(CLOSE_WAIT, self.write_back())
            .await
            .is_ok_and(|result| result.is_ok());
        let writer = self.writer.close(CLOSE_WAIT).await;
        self.files.close().await;
        if !(readers && written_back && writer) {
            // Nothing is lost: what is committed is in the log and is found there by the next start.
            tracing::warn!(
                readers,
                written_back,
                writer,
                "session store not closed in order"
            );
        }
    }

    /// Keeps an unstored conversation in memory until time is up, for the answers to its pending client calls.
    ///
    /// Where too many are kept already, the one kept longest gives way.
    pub fn park(&self, owner: &Owner, calls: &[String], waiting: Waiting, until: Instant) {
        self.parked.lock().put(owner, calls, waiting, until);
    }

    /// The parked conversation that waits for this call.
    pub fn parked(&self, owner: &Owner, call_id: &str) -> Option<Waiting> {
        self.parked.lock().get(owner, call_id).cloned()
    }

    /// Lets go of what is held for the parked conversation that waits for this call.
    pub fn release(&self, owner: &Owner, call_id: &str) {
        self.parked.lock().release(owner, call_id);
    }

    /// Forgets the parked conversations whose time is up, and lets go of what is held for them.
    pub fn drop_expired_parked(&self) {
        self.parked.lock().drop_expired();
    }

    /// Moves what is in the log of a file to its place.
    async fn write_back(&self) -> Result<(), sqlx::Error> {
        if self.writer.is_closed() {
            return Ok(());
        }
        let mut held = self.writer.take().await?;
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .execute(held.get()?)
            .await?;
        held.done();
        Ok(())
    }

    /// Takes the writer's turn for a write of several statements.
    async fn begin(&self) -> Result<Held<'_>, SessionError> {
        let mut held = self.writer.take().await?;
        held.begin().await?;
        Ok(held)
    }
}

impl From<sqlx::Error> for SessionError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(Box::new(error))
    }
}

/// A failure of the store that no library reports.
fn damaged(what: String) -> SessionError {
    SessionError::Store(what.into())
}
