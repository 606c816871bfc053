//! The session of a run: finds and leases it, joins the request's messages to its history, and writes what is new.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::inputs::{InputFiles, has_files};
use super::turn::TurnRequest;
use super::{AgentError, AgentParts, block_in_place_if};
use crate::ids::{Owner, RunId, SessionId};
use crate::openai::citation::CitedSource;
use crate::openai::message::{Message, Role};
use crate::session::{
    Attachment, Change, Lease, StoredMessage, StoredSession, UnstoredTurn, UnwrittenChange,
    WaitingTurn, interrupted_results, merge,
};

/// How long a turn of an unstored session waits for the results of its client calls.
const UNSTORED_TURN_TTL: Duration = Duration::from_secs(600);

/// The conversation of one run.
///
/// Writes run in tasks of their own, one after another. The lease is released when the last write has ended, even if the
/// run itself is dropped.
#[derive(Debug)]
pub(super) struct Conversation {
    parts: Arc<AgentParts>,
    run: Option<RunId>,
    owner: Owner,
    session: RunSession,
    /// The request named no session.
    nameless: bool,
    /// What is not written yet.
    unsaved: Change,
    writing: Option<JoinHandle<Result<(), Box<UnwrittenChange>>>>,
    /// What lasts as long as the turn of an unstored session, the waits for its client calls included.
    attachment: Option<Attachment>,
    /// The client call whose result this request brings to a waiting unstored turn.
    answered_call: Option<String>,
    /// The sources that the history's tool results found.
    sources: Vec<CitedSource>,
    /// The request deletes nothing of the stored history.
    only_appends: bool,
    /// The assistant message that was stored before its calls ran.
    written_ahead: Option<StoredMessage>,
}

/// The session of a run.
#[derive(Debug)]
enum RunSession {
    /// A stored session and the right to write to it.
    Stored {
        id: SessionId,
        lease: Arc<Lease>,
        /// Nothing is written until a server-side call starts: the request named no session.
        deferred: bool,
    },
    /// An unstored session (`store: false`). It is kept in memory, and only while a turn waits for client calls.
    Unstored(StoredSession),
}

/// A session that a run has leased.
struct LeasedSession {
    id: SessionId,
    lease: Lease,
    /// What is stored of it.
    found: Option<StoredSession>,
    /// The request named no session.
    is_fresh: bool,
}

impl Conversation {
    /// Finds and leases the session of a request, and joins the request's messages to its history.
    ///
    /// Returns the conversation and the history. Without a session there is no conversation, and the history is the
    /// request's messages.
    ///
    /// # Errors
    /// When a file of the messages cannot be used, the session is busy or the store fails.
    pub(super) async fn open(
        parts: &Arc<AgentParts>,
        request: &mut TurnRequest,
        run: &RunId,
    ) -> Result<(Option<Self>, Vec<Message>), AgentError> {
        let (mut conversation, history) = Self::open_session(parts, request).await?;
        if let Some(conversation) = &mut conversation {
            conversation.run = Some(run.clone());
        }
        Ok((conversation, history))
    }

    async fn open_session(
        parts: &Arc<AgentParts>,
        request: &mut TurnRequest,
    ) -> Result<(Option<Self>, Vec<Message>), AgentError> {
        let owner = request.caller.owner.clone();
        let incoming = std::mem::take(&mut request.messages);
        let accept_unstored = |incoming| {
            let files = InputFiles {
                parts,
                owner: &owner,
                session: None,
            };
            files.accept(incoming)
        };
        let pending_call = pending_call(&incoming).map(str::to_owned);
        let waiting = match &pending_call {
            Some(call) => parts.sessions.waiting_turn(&owner, call).await,
            None => None,
        };
        if let Some(WaitingTurn::Unstored(waiting)) = waiting {
            // The waiting turn of an unstored session continues unstored, whatever this request says of `store`.
            let incoming = accept_unstored(incoming).await?;
            let (mut conversation, history) =
                Self::unstored(parts, request, waiting.session, incoming);
            conversation.attachment = waiting.attached;
            conversation.answered_call = pending_call;
            return Ok((Some(conversation), history));
        }
        let explicit = request.options.session_id.clone();
        let continued = match (&explicit, waiting) {
            (None, Some(WaitingTurn::Stored(id))) => Some(id),
            _ => None,
        };
        if request.options.ephemeral && explicit.is_none() && continued.is_none() {
            let nothing = StoredSession::default();
            let incoming = accept_unstored(incoming).await?;
            let (conversation, history) = Self::unstored(parts, request, nothing, incoming);
            return Ok((Some(conversation), history));
        }
        let fresh = explicit.is_none() && continued.is_none();
        if fresh && !request.tools.has_server_tools() {
            return Ok((None, accept_unstored(incoming).await?));
        }
        let id = explicit.or(continued).unwrap_or_else(SessionId::fresh);
        let lease = parts.sessions.lease(&owner, &id).await?;
        let found = match fresh {
            true => None,
            false => parts.sessions.load(&owner, &id).await?,
        };
        let stored_before = found.is_some();
        let stored = found.unwrap_or_default();
        if request.options.ephemeral {
            let incoming = accept_unstored(incoming).await?;
            let (conversation, history) = Self::unstored(parts, request, stored, incoming);
            return Ok((Some(conversation), history));
        }
        let session = LeasedSession {
            id,
            lease,
            found: stored_before.then_some(stored),
            is_fresh: fresh,
        };
        let (conversation, history) = Self::stored(parts, request, session, incoming).await?;
        Ok((Some(conversation), history))
    }

    /// The conversation of a stored session, or of one that will be stored.
    async fn stored(
        parts: &Arc<AgentParts>,
        request: &TurnRequest,
        session: LeasedSession,
        incoming: Vec<Message>,
    ) -> Result<(Self, Vec<Message>), AgentError> {
        let LeasedSession {
            id,
            lease,
            found,
            is_fresh: fresh,
        } = session;
        let owner = request.caller.owner.clone();
        let exists = found.is_some();
        let mut stored = found.unwrap_or_default();
        let files = InputFiles {
            parts,
            owner: &owner,
            session: Some(&id),
        };
        let has_files = has_files(&incoming);
        let incoming = files.accept(incoming).await?;
        // Inline files are stored for the session.
        let deferred = fresh && !has_files;
        let is_read_only = |name: &str| request.tools.is_read_only(name);
        let interrupted = interrupted_results(&stored, is_read_only);
        let before = stored.messages.len();
        stored.messages.extend(interrupted);
        let (mut unsaved, history) = join(&stored, request, incoming);
        if !deferred {
            let existing = exists.then_some(&stored);
            let size = parts.sessions.check_size(&owner, &id, existing, &unsaved);
            size.await?;
        }
        let session = RunSession::Stored {
            id,
            lease: Arc::new(lease),
            deferred,
        };
        let sources = sources(&stored, &unsaved);
        if unsaved.keep > before {
            // The results of interrupted calls are stored with what follows them.
            let results = stored.messages.drain(before..unsaved.keep);
            unsaved.append.splice(0..0, results);
            unsaved.keep = before;
        }
        let only_appends = unsaved.keep == before;
        let conversation = Self {
            only_appends,
            nameless: fresh,
            ..Self::new(parts, owner, session, unsaved, sources)
        };
        Ok((conversation, history))
    }

    fn unstored(
        parts: &Arc<AgentParts>,
        request: &TurnRequest,
        stored: StoredSession,
        incoming: Vec<Message>,
    ) -> (Self, Vec<Message>) {
        let (unsaved, history) = join(&stored, request, incoming);
        let owner = request.caller.owner.clone();
        let sources = sources(&stored, &unsaved);
        let session = RunSession::Unstored(stored);
        let conversation = Self::new(parts, owner, session, unsaved, sources);
        (conversation, history)
    }

    fn new(
        parts: &Arc<AgentParts>,
        owner: Owner,
        session: RunSession,
        unsaved: Change,
        sources: Vec<CitedSource>,
    ) -> Self {
        Self {
            parts: parts.clone(),
            run: None,
            owner,
            session,
            nameless: false,
            unsaved,
            writing: None,
            attachment: None,
            answered_call: None,
            sources,
            only_appends: false,
            written_ahead: None,
        }
    }

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
            self.parts.sessions.detach(&self.owner, call);
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

    /// Starts a write of the request's messages, so that they are not lost if the turn fails. Messages that replace stored
    /// ones wait for the answer: until then the stored ones are the better history.
    pub(super) fn save_request(&mut self) {
        let is_stored = self.stored_id().is_some();
        if is_stored && self.only_appends && !self.unsaved.append.is_empty() {
            self.save(Vec::new());
        }
    }

    /// Stores an assistant message before its calls run. [`Self::push_round`] brings it again with the results.
    ///
    /// # Errors
    /// When it could not be stored. It is not part of the next write then.
    pub(super) async fn write_ahead(&mut self, message: StoredMessage) -> Result<(), ()> {
        if self.stored_id().is_none() {
            return Ok(());
        }
        let RunSession::Stored { lease, .. } = &self.session else {
            return Ok(());
        };
        let lease = lease.clone();
        self.unsaved.append.push(message.clone());
        let change = self.take_change();
        // In this task, as the calls wait for it.
        let written = self.parts.sessions.write(&lease, change).await;
        match self.note_write(written) {
            Ok(()) => self.written_ahead = Some(message),
            Err(()) => {
                self.unsaved.append.pop();
                return Err(());
            }
        }
        Ok(())
    }

    /// What is to be written now.
    fn take_change(&mut self) -> Change {
        let next = Change {
            keep: self.unsaved.keep + self.unsaved.append.len(),
            ..Change::default()
        };
        let mut change = std::mem::replace(&mut self.unsaved, next);
        // The first write names the run.
        change.run = change.run.or_else(|| self.run.take());
        change.nameless = self.nameless;
        change
    }

    /// Takes the result of a write. A change that was not made becomes part of the next one.
    fn note_write(&mut self, written: Result<(), Box<UnwrittenChange>>) -> Result<(), ()> {
        let Err(failed) = written else {
            return Ok(());
        };
        let UnwrittenChange { error, change } = *failed;
        tracing::error!(error = %error, cause = ?std::error::Error::source(&error), "session write failed");
        let mut append = change.append;
        append.append(&mut self.unsaved.append);
        self.unsaved = Change {
            append,
            client_calls: Vec::new(),
            ..change
        };
        Err(())
    }

    /// Appends the messages of a round, which the next write stores. A first message that is stored already is left out;
    /// if it has changed since, it replaces the stored one.
    pub(super) fn push_round(&mut self, messages: Vec<StoredMessage>) {
        let mut messages = messages.into_iter().peekable();
        if let Some(written) = self.written_ahead.take() {
            match messages.peek() == Some(&written) {
                true => drop(messages.next()),
                false => self.unsaved.keep = self.unsaved.keep.saturating_sub(1),
            }
        }
        self.unsaved.append.extend(messages);
    }

    /// Starts a write of what is new. `client_calls` are the ids of the calls whose results the turn waits for. Await
    /// [`Self::finish_write`] before the next write.
    pub(super) fn save(&mut self, client_calls: Vec<String>) {
        self.unsaved.client_calls = client_calls;
        match &mut self.session {
            // What is not stored yet stays in `unsaved`.
            RunSession::Stored { deferred: true, .. } => {}
            RunSession::Stored { lease, .. } => {
                let (sessions, lease) = (self.parts.sessions.clone(), lease.clone());
                let change = self.take_change();
                // The task holds the lease, so that the next turn starts after the change is written.
                self.writing = Some(
                    self.parts
                        .tasks
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
                    self.parts.sessions.park(&self.owner, &calls, turn, until);
                }
            }
        }
    }

    /// Waits until the started write has ended.
    ///
    /// # Errors
    /// When the write failed. The next write then includes its change, unless its task panicked.
    pub(super) async fn finish_write(&mut self) -> Result<(), ()> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        match writing.await {
            Ok(written) => self.note_write(written),
            Err(join_error) => {
                tracing::error!(error = %join_error, "session write was lost");
                Err(())
            }
        }
    }
}

/// The id of the last tool call whose result the request brings. It identifies the waiting turn.
fn pending_call(messages: &[Message]) -> Option<&str> {
    messages
        .iter()
        .rev()
        .find(|message| *message.role() == Role::Tool)?
        .tool_call_id()
}

/// Whether work on so many messages or bytes takes more than a few milliseconds.
pub(super) fn is_long(messages: usize, bytes: usize) -> bool {
    messages >= 2_000 || bytes >= 1024 * 1024
}

fn join(
    stored: &StoredSession,
    request: &TurnRequest,
    incoming: Vec<Message>,
) -> (Change, Vec<Message>) {
    let messages = stored.messages.len() + incoming.len();
    let size = |message: &Message| message.json().len();
    let bytes: usize = stored
        .messages
        .iter()
        .map(|stored| size(&stored.message))
        .sum();
    let bytes = bytes + incoming.iter().map(size).sum::<usize>();
    let (joined, history) = block_in_place_if(is_long(messages, bytes), || {
        let joined = merge::plan(stored, incoming, request.options.session_mode);
        let history = merge::history(stored, &joined);
        (joined, history)
    });
    let change = Change {
        instructions: joined.instructions,
        keep: joined.keep,
        append: joined.new.into_iter().map(StoredMessage::visible).collect(),
        ..Change::default()
    };
    (change, history)
}

/// The sources of the stored tool results that the change keeps.
fn sources(stored: &StoredSession, change: &Change) -> Vec<CitedSource> {
    let kept = stored.messages.iter().take(change.keep);
    kept.flat_map(|stored| stored.sources.iter().cloned())
        .collect()
}

fn apply(session: &mut StoredSession, change: &mut Change) {
    if let Some(instructions) = change.instructions.take() {
        session.instructions = instructions;
    }
    session.messages.truncate(change.keep);
    session.messages.append(&mut change.append);
    change.keep = session.messages.len();
}
