//! Opening the conversation of a run.

use std::sync::Arc;

use super::super::inputs::{InputFiles, has_files};
use super::super::turn::TurnRequest;
use super::super::{AgentError, AgentParts, block_in_place_if};
use super::{Conversation, RunSession, is_long};
use crate::ids::{Owner, RunId, SessionId};
use crate::openai::citation::CitedSource;
use crate::openai::message::{Message, Role};
use crate::session::{
    Change, Lease, StoredMessage, StoredSession, WaitingTurn, interrupted_results, merge,
};

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
    pub(in super::super) async fn open(
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
}

/// The id of the last tool call whose result the request brings. It identifies the waiting turn.
fn pending_call(messages: &[Message]) -> Option<&str> {
    messages
        .iter()
        .rev()
        .find(|message| *message.role() == Role::Tool)?
        .tool_call_id()
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
