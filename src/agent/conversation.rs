//! The session of a run: finds and leases it, joins the request's messages to its history, and writes the changes.

mod decide;
mod join;
mod leased;
mod open;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

pub(super) use self::join::take_suspended;
pub(super) use self::open::{OpenContext, OpenedTurn};
use crate::session::{
    ApprovalQuestion, Attachment, Change, IdOrigin, Lease, Sessions, StoreError, StoredMessage,
    StoredSession, TurnChange, UnstoredTurn, UnwrittenChange,
};
use net::polling::LONG_BYTES;
use protocol::ids::{FileId, Owner, RunId, SessionId};
use protocol::openai::citation::CitedSource;

/// How long a turn of an unstored session waits for the results of its client calls. Then it is forgotten.
const UNSTORED_TURN_TTL: Duration = Duration::from_secs(600);

/// The conversation of one run.
///
/// Writes run in tasks of their own, one after another. The lease is released when the last write has ended, even if the
/// run itself is dropped.
#[derive(Debug)]
pub(super) struct Conversation {
    sessions: Sessions,
    /// Owns the tasks of session writes, which continue when a run is dropped.
    tasks: TaskTracker,
    run: Option<RunId>,
    owner: Owner,
    session: RunSession,
    /// Who chose the session's id.
    id_origin: IdOrigin,
    /// What is not written yet.
    unsaved: Change,
    writing: Option<JoinHandle<Result<(), Box<UnwrittenChange>>>>,
    /// What lasts as long as the turn of an unstored session, the waits for its client calls included.
    attachment: Option<Attachment>,
    /// The client call whose result this request brings to a waiting unstored turn.
    answered_call: Option<String>,
    /// The sources that the history's tool results found.
    sources: Vec<CitedSource>,
    /// The assistant message that was stored before its calls ran.
    stored_calls: Option<StoredMessage>,
    /// The store keeps a turn with the session, which the next write ends.
    has_suspended_turn: bool,
    /// The session was forked for this request, and the turn has written nothing to it.
    is_unused_fork: bool,
}

/// Why a session could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteFailure {
    /// It would be larger than a session may be.
    TooLarge,
    /// The store failed or has no space.
    Store,
    /// Another run may write to the session now.
    LeaseLost,
}

impl WriteFailure {
    fn of(error: &StoreError) -> Self {
        match error {
            StoreError::SessionTooLarge { .. } => Self::TooLarge,
            StoreError::LeaseLost => Self::LeaseLost,
            _ => Self::Store,
        }
    }
}

/// The session of a run.
#[derive(Debug)]
enum RunSession {
    /// A stored session and the right to write to it.
    Stored {
        id: SessionId,
        lease: Arc<Lease>,
        /// Nothing is written until a server-side call starts: the session does not exist yet, and the request did not name it.
        deferred: bool,
    },
    /// An unstored session (`store: false`). It is held in memory while a turn waits for client calls.
    Unstored(StoredSession),
}

impl Conversation {
    /// The sources that the history's tool results found.
    pub(super) fn sources(&self) -> Vec<CitedSource> {
        self.sources.clone()
    }

    /// What was attached to this turn before it waited for client calls.
    pub(super) fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// Attaches something that lasts as long as the turn of an unstored session, the waits for its client calls included.
    pub(super) fn attach(&mut self, attachment: Attachment) {
        self.attachment = Some(attachment);
    }

    /// Detaches the attachment from the waiting turn whose call this request answered. The request has ended the turn or
    /// led to other client calls, so that only the run itself needs the attachment.
    pub(super) fn detach_answered(&self) {
        if let Some(call) = &self.answered_call {
            self.sessions.store.detach(&self.owner, call);
        }
    }

    /// The session's id, if the session is stored, or will be once a server-side call starts.
    pub(super) fn session_id(&self) -> Option<&SessionId> {
        match &self.session {
            RunSession::Stored { id, .. } => Some(id),
            RunSession::Unstored(_) => None,
        }
    }

    /// The session's id, if the session is stored.
    pub(super) fn stored_id(&self) -> Option<&SessionId> {
        match &self.session {
            RunSession::Stored { id, deferred, .. } => (!deferred).then_some(id),
            RunSession::Unstored(_) => None,
        }
    }

    /// A server-side call starts: the session is stored from now on.
    pub(super) fn keep(&mut self) {
        if let RunSession::Stored { deferred, .. } = &mut self.session {
            *deferred = false;
        }
    }

    /// Files that the session uses once the turn is written.
    pub(super) fn use_files(&mut self, ids: impl IntoIterator<Item = FileId>) {
        self.unsaved.files.extend(ids);
    }

    /// Starts to record the run in a shared store, where other processes find it. The session itself is not written
    /// before the first round, so a turn that fails before leaves it unchanged.
    pub(super) fn record_run(&mut self) {
        let (Some(id), Some(run)) = (self.stored_id().cloned(), self.run.clone()) else {
            return;
        };
        if !self.sessions.store.is_shared() {
            return;
        }
        let (store, owner) = (self.sessions.store.clone(), self.owner.clone());
        self.writing = Some(self.tasks.spawn(async move {
            if let Err(error) = store.begin_run(&run, &owner, Some(&id)).await {
                tracing::error!(%error, "a run was not recorded");
            }
            Ok(())
        }));
    }

    /// Deletes the fork that was made for a turn that has failed without a write.
    pub(super) async fn discard(&mut self) {
        if let RunSession::Stored { lease, .. } = &self.session
            && std::mem::take(&mut self.is_unused_fork)
        {
            delete_fork(&self.sessions, lease).await;
        }
    }

    /// Stores an assistant message before its calls run, if it is not stored. [`Self::push_round`] gets it again with
    /// the results. `turn` says what happens to the suspended turn of the session.
    ///
    /// # Errors
    /// When it could not be stored. The message is then not part of the next write, and earlier writes are not undone.
    pub(super) async fn store_calls(
        &mut self,
        message: StoredMessage,
        turn: TurnChange,
    ) -> Result<(), WriteFailure> {
        if self.stored_id().is_none() || self.keeps_written(&message) {
            return Ok(());
        }
        let RunSession::Stored { lease, .. } = &self.session else {
            return Ok(());
        };
        let lease = lease.clone();
        self.unsaved.append.push(message.clone());
        match turn {
            TurnChange::Leave => {}
            TurnChange::End => self.end_turn(),
            TurnChange::Suspend { .. } => {
                self.unsaved.turn = turn;
                self.has_suspended_turn = true;
            }
        }
        let change = self.take_change();
        // The write is awaited here, because the calls start after it.
        let written = self.sessions.write(&lease, change).await;
        match self.note_write(written) {
            Ok(()) => self.stored_calls = Some(message),
            Err(failure) => {
                self.unsaved.append.pop();
                return Err(failure);
            }
        }
        Ok(())
    }

    /// The next write ends the turn that the store keeps, if it keeps one.
    fn end_turn(&mut self) {
        if std::mem::take(&mut self.has_suspended_turn) {
            self.unsaved.turn = TurnChange::End;
        }
    }

    /// What is to be written now.
    fn take_change(&mut self) -> Change {
        self.is_unused_fork = false;
        let next = Change {
            keep: self.unsaved.keep + self.unsaved.append.len(),
            ..Change::default()
        };
        let mut change = std::mem::replace(&mut self.unsaved, next);
        // The first write names the run.
        change.run = change.run.or_else(|| self.run.take());
        change.id_origin = self.id_origin;
        change
    }

    /// Takes the result of a write. A change that was not made becomes part of the next one.
    fn note_write(
        &mut self,
        written: Result<(), Box<UnwrittenChange>>,
    ) -> Result<(), WriteFailure> {
        let Err(failed) = written else {
            return Ok(());
        };
        let UnwrittenChange { error, change } = *failed;
        tracing::error!(error = %error, cause = ?std::error::Error::source(&error), "session write failed");
        let failure = WriteFailure::of(&error);
        let mut append = change.append;
        append.append(&mut self.unsaved.append);
        let turn = match change.turn {
            // The caller reports that the turn is not suspended.
            TurnChange::Suspend { .. } => TurnChange::Leave,
            turn @ (TurnChange::Leave | TurnChange::End) => turn,
        };
        self.unsaved = Change {
            append,
            turn,
            client_calls: Vec::new(),
            ..change
        };
        Err(failure)
    }

    /// Appends the messages of a round, which the next write stores. A first message that is stored already is left out;
    /// if it has changed since, it replaces the stored one.
    pub(super) fn push_round(&mut self, messages: Vec<StoredMessage>) {
        let mut messages = messages.into_iter();
        let Some(first) = messages.next() else {
            return;
        };
        if !self.keeps_written(&first) {
            self.unsaved.append.push(first);
        }
        self.stored_calls = None;
        self.unsaved.append.extend(messages);
    }

    /// Keeps the message that was stored ahead if it is `message`; returns whether it is. A different one is replaced
    /// by the next write.
    fn keeps_written(&mut self, message: &StoredMessage) -> bool {
        let is_same = self.stored_calls.as_ref() == Some(message);
        if !is_same && self.stored_calls.take().is_some() {
            self.unsaved.keep = self.unsaved.keep.saturating_sub(1);
        }
        is_same
    }

    /// Suspends a turn in the stored session, so that another process can resume it. `message` asks for its calls; if
    /// it is not stored yet, or has changed, it is stored in the same transaction. `questions` are the calls that wait
    /// for a person.
    ///
    /// # Errors
    /// When the turn cannot be stored.
    pub(super) async fn suspend_turn(
        &mut self,
        message: StoredMessage,
        turn: String,
        questions: Vec<ApprovalQuestion>,
    ) -> Result<(), WriteFailure> {
        self.keep();
        let RunSession::Stored { lease, .. } = &self.session else {
            return Err(WriteFailure::Store);
        };
        if self.stored_calls.as_ref() != Some(&message) {
            let turn = TurnChange::Suspend { turn, questions };
            return self.store_calls(message, turn).await;
        }
        if self.run.is_some() {
            // The first write of a run names it.
            let lease = lease.clone();
            self.unsaved.turn = TurnChange::Suspend { turn, questions };
            self.has_suspended_turn = true;
            let change = self.take_change();
            let written = self.sessions.write(&lease, change).await;
            return self.note_write(written);
        }
        self.has_suspended_turn = true;
        let store = &self.sessions.store;
        let kept = store.suspend_turn(lease.fence(), &turn, &questions).await;
        kept.map_err(|error| {
            tracing::error!(%error, cause = ?std::error::Error::source(&error), "a turn was not kept");
            WriteFailure::of(&error)
        })
    }

    /// Starts a write of the unsaved changes. `client_calls` are the ids of the calls whose results the turn waits for.
    /// Await [`Self::finish_write`] before the next write.
    pub(super) fn save(&mut self, client_calls: Vec<String>) {
        self.unsaved.client_calls = client_calls;
        match &mut self.session {
            // What is not stored yet stays in `unsaved`.
            RunSession::Stored { deferred: true, .. } => {}
            RunSession::Stored { lease, .. } => {
                let (sessions, lease) = (self.sessions.clone(), lease.clone());
                self.end_turn();
                let change = self.take_change();
                // The task holds the lease, so that the next turn starts after the change is written.
                self.writing = Some(
                    self.tasks
                        .spawn(async move { sessions.write(&lease, change).await }),
                );
            }
            RunSession::Unstored(session) => {
                apply(session, &mut self.unsaved);
                let calls = std::mem::take(&mut self.unsaved.client_calls);
                if !calls.is_empty() {
                    let until = Instant::now() + UNSTORED_TURN_TTL;
                    let turn = UnstoredTurn {
                        session: session.clone(),
                        attached: self.attachment.clone(),
                    };
                    let store = &self.sessions.store;
                    store.put_waiting(&self.owner, &calls, turn, until);
                }
            }
        }
    }

    /// Waits until the started write has ended.
    ///
    /// # Errors
    /// When the write failed. The next write then includes its change, unless its task panicked.
    pub(super) async fn finish_write(&mut self) -> Result<(), WriteFailure> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        match writing.await {
            Ok(written) => self.note_write(written),
            Err(join_error) => {
                tracing::error!(error = %join_error, "session write was lost");
                Err(WriteFailure::Store)
            }
        }
    }
}

async fn delete_fork(sessions: &Sessions, lease: &Lease) {
    if let Err(error) = sessions.delete(lease).await {
        tracing::error!(%error, "a fork that no turn has used stays");
    }
}

/// Whether work on this number of messages or bytes takes more than a few milliseconds.
pub(super) fn is_long(messages: usize, bytes: usize) -> bool {
    messages >= 2_000 || bytes > LONG_BYTES
}

fn apply(session: &mut StoredSession, change: &mut Change) {
    if let Some(instructions) = change.instructions.take() {
        session.instructions = instructions;
    }
    session.messages.truncate(change.keep);
    session.messages.append(&mut change.append);
    change.keep = session.messages.len();
}
