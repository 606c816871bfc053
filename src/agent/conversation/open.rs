//! Opening the conversation of a run.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::contents::named_in;
use super::super::inputs::{InputFiles, has_files};
use super::super::turn::TurnRequest;
use super::super::{AgentError, AgentParts};
use super::{Conversation, RunSession, delete_fork, is_long};
use crate::ids::{FileId, Owner, RunId, SessionId};
use crate::openai::citation::CitedSource;
use crate::openai::message::{Message, Role};
use crate::polling::block_in_place_if;
use crate::session::{
    Change, IdOrigin, Lease, StoredMessage, StoredSession, WaitingTurn, interrupted_results, merge,
};

/// A session that a run has leased.
struct LeasedSession {
    id: SessionId,
    lease: Arc<Lease>,
    /// What is stored of it.
    found: Option<StoredSession>,
    id_origin: IdOrigin,
    /// It was made for this request.
    is_fork: bool,
}

impl LeasedSession {
    /// A session that nothing is stored of.
    async fn new(
        parts: &AgentParts,
        owner: &Owner,
        id: SessionId,
        id_origin: IdOrigin,
    ) -> Result<Self, AgentError> {
        Ok(Self {
            lease: Arc::new(parts.sessions.lease(owner, &id).await?),
            id,
            found: None,
            id_origin,
            is_fork: false,
        })
    }

    /// A session with what is stored of it.
    async fn load(
        parts: &AgentParts,
        owner: &Owner,
        id: SessionId,
        id_origin: IdOrigin,
    ) -> Result<Self, AgentError> {
        let leased = Self::new(parts, owner, id, id_origin).await?;
        Ok(Self {
            found: parts.sessions.store.load(owner, &leased.id).await?,
            ..leased
        })
    }

    /// Whether it does not exist, and the request did not ask for a session of this name.
    fn is_new(&self) -> bool {
        self.id_origin != IdOrigin::Client && self.found.is_none()
    }
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
        let answers = std::mem::take(&mut request.answered_calls);
        let (named, id_origin) = named_session(parts, request, &incoming, waiting);
        let has_tools = request.tools.has_server_tools();
        let session = match named {
            None if request.options.ephemeral || !(has_tools || request.options.keep) => None,
            None => {
                let id = SessionId::fresh();
                Some(LeasedSession::new(parts, &owner, id, id_origin).await?)
            }
            Some(id) => Some(LeasedSession::load(parts, &owner, id, id_origin).await?),
        };
        let session = match (session, &request.options.previous) {
            (Some(session), Some(previous)) => {
                let is_ephemeral = request.options.ephemeral;
                let session = after(parts, session, previous, &incoming, is_ephemeral);
                Some(session.await?)
            }
            (session, _) => session,
        };
        if let Some(session) = &session
            && let Err(error) = holds_calls(session, answers)
        {
            if session.is_fork {
                delete_fork(parts, &session.lease).await;
            }
            return Err(error);
        }
        if request.options.ephemeral {
            let stored = session.and_then(|session| session.found);
            let incoming = accept_unstored(incoming).await?;
            let (conversation, history) =
                Self::unstored(parts, request, stored.unwrap_or_default(), incoming);
            return Ok((Some(conversation), history));
        }
        let keeps = has_tools || request.options.keep;
        let is_kept = |session: &LeasedSession| keeps || !session.is_new();
        let Some(session) = session.filter(is_kept) else {
            return Ok((None, accept_unstored(incoming).await?));
        };
        let fork = session.is_fork.then(|| session.lease.clone());
        match Self::stored(parts, request, session, incoming).await {
            Ok((conversation, history)) => Ok((Some(conversation), history)),
            Err(error) => {
                if let Some(lease) = fork {
                    delete_fork(parts, &lease).await;
                }
                Err(error)
            }
        }
    }

    /// The conversation of a stored session, or of one that will be stored.
    async fn stored(
        parts: &Arc<AgentParts>,
        request: &TurnRequest,
        session: LeasedSession,
        incoming: Vec<Message>,
    ) -> Result<(Self, Vec<Message>), AgentError> {
        let is_new = session.is_new();
        let LeasedSession {
            id,
            lease,
            found,
            id_origin,
            is_fork,
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
        let used: Vec<FileId> = incoming.iter().flat_map(named_in).collect();
        // Inline files are stored for the session.
        let deferred = is_new && !has_files && !request.options.keep;
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
            lease,
            deferred,
        };
        let sources = sources(&stored, &unsaved);
        if unsaved.keep > before {
            // The results of interrupted calls are stored with what follows them.
            let results = stored.messages.drain(before..unsaved.keep);
            unsaved.append.splice(0..0, results);
            unsaved.keep = before;
        }
        unsaved.files = used;
        let conversation = Self {
            is_unused_fork: is_fork,
            id_origin,
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
            id_origin: IdOrigin::Client,
            unsaved,
            writing: None,
            attachment: None,
            answered_call: None,
            sources,
            written_ahead: None,
            is_unused_fork: false,
        }
    }
}

/// Checks that a session holds these calls.
fn holds_calls(session: &LeasedSession, calls: Vec<String>) -> Result<(), AgentError> {
    let stored = session.found.iter().flat_map(|found| &found.messages);
    let known: HashSet<&str> = match calls.is_empty() {
        true => HashSet::new(),
        false => stored
            .flat_map(|stored| stored.message.tool_calls())
            .map(|call| call.id.as_str())
            .collect(),
    };
    let unknown = calls
        .into_iter()
        .find(|call| !known.contains(call.as_str()));
    unknown.map_or(Ok(()), |call| Err(AgentError::UnknownCall { call }))
}

/// The session that a request names or continues, and who chose its id.
fn named_session(
    parts: &AgentParts,
    request: &TurnRequest,
    incoming: &[Message],
    waiting: Option<WaitingTurn>,
) -> (Option<SessionId>, IdOrigin) {
    let options = &request.options;
    match (&options.session_id, &options.chat, waiting) {
        (Some(id), ..) => (Some(id.clone()), IdOrigin::Client),
        (None, Some(chat), _) => {
            let id = parts
                .sessions
                .of_chat(&request.caller.owner, chat, incoming);
            (Some(id), IdOrigin::Chat)
        }
        (None, None, Some(WaitingTurn::Stored(id))) => (Some(id), IdOrigin::Client),
        // It lives as long as one that the client named, but can be deleted to make space.
        (None, None, _) if options.keep => (None, IdOrigin::Chat),
        (None, None, _) => (None, IdOrigin::Nameless),
    }
}

/// The session in which the turn follows the answer of the run `previous`: the session itself where that is its last answer,
/// else a fork. A turn without an answer that comes after it is left behind, too, unless the request repeats it. Of a turn
/// that is not stored only the history is cut.
async fn after(
    parts: &AgentParts,
    session: LeasedSession,
    previous: &RunId,
    incoming: &[Message],
    is_ephemeral: bool,
) -> Result<LeasedSession, AgentError> {
    let Some(stored) = &session.found else {
        return Err(AgentError::NoPosition);
    };
    let is_last_run = stored.last_run.as_ref() == Some(previous);
    let is_answer = |stored: &StoredMessage| stored.view.is_some();
    let is_of_run = |stored: &StoredMessage| {
        let view = stored.view.as_ref();
        view.is_some_and(|view| view.run.as_deref() == Some(previous.as_str()))
    };
    let place = stored.messages.iter().position(is_of_run);
    let last = stored.messages.iter().rposition(is_answer);
    let place = match place {
        Some(place) => place,
        // An answer of another dialect can only be followed while it is the last one.
        None if is_last_run => return Ok(session),
        None => return Err(AgentError::NoPosition),
    };
    if last == Some(place)
        && (is_last_run
            || place + 1 == stored.messages.len()
            || merge::repeats(&stored.messages, incoming))
    {
        return Ok(session);
    }
    if is_ephemeral {
        let mut found = session.found.unwrap_or_default();
        found.messages.truncate(place + 1);
        return Ok(LeasedSession {
            found: Some(found),
            ..session
        });
    }
    let before = stored.instructions.len() + place + 1;
    let id = SessionId::fresh();
    let store = &parts.sessions.store;
    store.fork(session.lease.fence(), Some(before), &id).await?;
    let owner = session.lease.owner();
    Ok(LeasedSession {
        is_fork: true,
        ..LeasedSession::load(parts, owner, id, IdOrigin::Client).await?
    })
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
