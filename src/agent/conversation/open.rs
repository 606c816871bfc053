//! Opening the conversation of a run.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::inputs::{InputFiles, has_files};
use super::super::turn::TurnRequest;
use super::super::{AgentError, AgentParts, block_in_place_if};
use super::{Conversation, RunSession, is_long};
use crate::ids::{Owner, RunId, SessionId};
use crate::openai::citation::CitedSource;
use crate::openai::message::{Message, Role};
use crate::session::{
    Change, IdOrigin, Lease, StoredMessage, StoredSession, WaitingTurn, interrupted_results, merge,
};

/// A session that a run has leased.
struct LeasedSession {
    id: SessionId,
    lease: Lease,
    /// What is stored of it.
    found: Option<StoredSession>,
    id_origin: IdOrigin,
}

impl LeasedSession {
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
                Some(LeasedSession {
                    lease: parts.sessions.lease(&owner, &id).await?,
                    id,
                    found: None,
                    id_origin,
                })
            }
            Some(id) => Some(LeasedSession {
                lease: parts.sessions.lease(&owner, &id).await?,
                found: parts.sessions.load(&owner, &id).await?,
                id,
                id_origin,
            }),
        };
        let session = match (session, &request.options.previous) {
            (Some(session), Some(previous)) => {
                let is_ephemeral = request.options.ephemeral;
                Some(after(parts, &owner, session, previous, is_ephemeral).await?)
            }
            (session, _) => session,
        };
        if let Some(session) = &session {
            holds_calls(session, answers)?;
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
        let is_new = session.is_new();
        let LeasedSession {
            id,
            lease,
            found,
            id_origin,
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
        let deferred = is_new && !has_files && !request.options.keep;
        // One write in place of two. After the end of the process in the first model call, nobody knows the session; in a
        // shared store, the record leads other processes to the run.
        let postponed = is_new && !has_files && !parts.sessions.is_shared();
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
            postponed,
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
            only_appends: false,
            postponed: false,
            written_ahead: None,
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
/// else a fork. Of a turn that is not stored only the history is cut.
async fn after(
    parts: &AgentParts,
    owner: &Owner,
    session: LeasedSession,
    previous: &RunId,
    is_ephemeral: bool,
) -> Result<LeasedSession, AgentError> {
    let Some(stored) = &session.found else {
        return Err(AgentError::NoPosition);
    };
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
        None if stored.last_run.as_ref() == Some(previous) => return Ok(session),
        None => return Err(AgentError::NoPosition),
    };
    if last == Some(place) {
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
    let fork = parts.sessions.fork(&session.lease, Some(before), None);
    let id = fork.await?.id;
    Ok(LeasedSession {
        lease: parts.sessions.lease(owner, &id).await?,
        found: parts.sessions.load(owner, &id).await?,
        id,
        id_origin: IdOrigin::Client,
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
