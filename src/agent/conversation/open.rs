//! Opening the conversation of a run.

use std::collections::HashSet;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::super::AgentError;
use super::super::approvals::known;
use super::super::call::Call;
use super::super::contents::named_in;
use super::super::inputs::{InputFiles, has_files};
use super::super::parked::ParkedTurn;
use super::super::turn::TurnRequest;
use super::decide::{decide, no_position, nothing_waits};
use super::join::{going_on, join, open_results, planned, sources, take_parked, without_told};
use super::{Conversation, RunSession, delete_fork};
use crate::session::{
    Change, IdOrigin, Lease, Sessions, StoredMessage, StoredSession, WaitingTurn, merge,
};
use protocol::ids::{FileId, Owner, RunId, SessionId};
use protocol::openai::citation::CitedSource;
use protocol::openai::message::{Message, Role};

/// What conversations are opened with.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct OpenContext<'a> {
    pub(in super::super) sessions: &'a Sessions,
    /// Owns the tasks of session writes.
    pub(in super::super) tasks: &'a TaskTracker,
    /// The files of the request's messages.
    pub(in super::super) inputs: InputFiles<'a>,
}

/// A conversation that was opened.
#[derive(Debug)]
pub(in super::super) struct OpenedTurn {
    /// None without a session.
    pub(in super::super) conversation: Option<Conversation>,
    /// The messages of the next model call.
    pub(in super::super) history: Vec<Message>,
    /// The turn that goes on. Its batch follows the history.
    pub(in super::super) parked: Option<ParkedTurn>,
    /// Messages of the request that follow that batch.
    pub(in super::super) follow: Vec<Message>,
}

impl OpenedTurn {
    fn new(conversation: Option<Conversation>, history: Vec<Message>) -> Self {
        Self {
            conversation,
            history,
            parked: None,
            follow: Vec::new(),
        }
    }
}

/// A session that a run has leased.
struct LeasedSession {
    id: SessionId,
    lease: Arc<Lease>,
    found: Option<StoredSession>,
    id_origin: IdOrigin,
    /// It was made for this request.
    is_fork: bool,
}

impl LeasedSession {
    /// A session that nothing is stored of.
    async fn new(
        sessions: &Sessions,
        owner: &Owner,
        id: SessionId,
        id_origin: IdOrigin,
    ) -> Result<Self, AgentError> {
        Ok(Self {
            lease: Arc::new(sessions.lease(owner, &id).await?),
            id,
            found: None,
            id_origin,
            is_fork: false,
        })
    }

    /// A session with what is stored of it.
    async fn load(
        sessions: &Sessions,
        owner: &Owner,
        id: SessionId,
        id_origin: IdOrigin,
    ) -> Result<Self, AgentError> {
        let leased = Self::new(sessions, owner, id, id_origin).await?;
        Ok(Self {
            found: sessions.store.load(owner, &leased.id).await?,
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
    /// Without a session there is no conversation, and the history is the request's messages.
    ///
    /// # Errors
    /// When a file of the messages cannot be used, the session is busy or the store fails.
    pub(in super::super) async fn open(
        context: OpenContext<'_>,
        request: &mut TurnRequest,
        run: &RunId,
    ) -> Result<OpenedTurn, AgentError> {
        let mut opened = Self::open_session(context, request).await?;
        if let Some(conversation) = &mut opened.conversation {
            conversation.run = Some(run.clone());
        }
        Ok(opened)
    }

    async fn open_session(
        context: OpenContext<'_>,
        request: &mut TurnRequest,
    ) -> Result<OpenedTurn, AgentError> {
        let (sessions, inputs) = (context.sessions, context.inputs);
        let owner = request.caller.owner.clone();
        let incoming = std::mem::take(&mut request.messages);
        let pending_call = pending_call(&incoming).map(str::to_owned);
        let waiting = match (request.waiting.take(), &pending_call) {
            (None, Some(call)) => sessions.waiting_turn(&owner, call).await,
            (found, _) => found,
        };
        if let Some(WaitingTurn::Unstored(waiting)) = waiting {
            // The waiting turn of an unstored session continues unstored, whatever this request says of `store`.
            let incoming = inputs.accept(incoming).await?;
            let (mut conversation, history) =
                Self::unstored(context, request, waiting.session, incoming);
            conversation.attachment = waiting.attached;
            conversation.answered_call = pending_call;
            return Ok(OpenedTurn::new(Some(conversation), history));
        }
        let answers = std::mem::take(&mut request.answered_calls);
        let (named, id_origin) = named_session(sessions, request, &incoming, waiting);
        let has_tools = request.tools.has_server_tools();
        let session = match named {
            None if request.options.ephemeral || !(has_tools || request.options.keep) => None,
            None => {
                let id = SessionId::fresh();
                Some(LeasedSession::new(sessions, &owner, id, id_origin).await?)
            }
            Some(id) => Some(LeasedSession::load(sessions, &owner, id, id_origin).await?),
        };
        let decided_in = session.as_ref().map(|session| &session.id);
        decide(sessions, &owner, decided_in, &request.decisions).await?;
        let session = match (session, &request.options.previous) {
            (Some(session), Some(previous)) => {
                let is_ephemeral = request.options.ephemeral;
                let session = after(sessions, session, previous, &incoming, is_ephemeral);
                let session = session.await;
                Some(session.map_err(|error| no_position(&request.decisions, error))?)
            }
            (session, _) => session,
        };
        if let Some(session) = &session
            && let Err(error) = holds_calls(session, answers)
        {
            if session.is_fork {
                delete_fork(sessions, &session.lease).await;
            }
            return Err(error);
        }
        if request.options.ephemeral {
            if incoming.is_empty() {
                return Err(AgentError::NothingWaits);
            }
            let mut stored = session
                .and_then(|session| session.found)
                .unwrap_or_default();
            if let Some(parked) = take_parked(&mut stored) {
                let results = open_results(&stored, request, Some(parked));
                stored.messages.extend(results);
            }
            let incoming = inputs.accept(incoming).await?;
            let (conversation, history) = Self::unstored(context, request, stored, incoming);
            return Ok(OpenedTurn::new(Some(conversation), history));
        }
        let keeps = has_tools || request.options.keep;
        let is_kept = |session: &LeasedSession| keeps || !session.is_new();
        let Some(session) = session.filter(is_kept) else {
            return Ok(OpenedTurn::new(None, inputs.accept(incoming).await?));
        };
        let fork = session.is_fork.then(|| session.lease.clone());
        let opened = Self::stored(context, request, session, incoming).await;
        if opened.is_err()
            && let Some(lease) = fork
        {
            delete_fork(sessions, &lease).await;
        }
        opened
    }

    /// The conversation of a stored session, or of one that will be stored.
    async fn stored(
        context: OpenContext<'_>,
        request: &TurnRequest,
        session: LeasedSession,
        incoming: Vec<Message>,
    ) -> Result<OpenedTurn, AgentError> {
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
        let has_files = has_files(&incoming);
        let shows_answer = shows_answer(request, &stored, &incoming);
        let incoming = context.inputs.of_session(&id).accept(incoming).await?;
        let mode = request.options.session_mode;
        let (incoming, mode) = without_told(&stored, incoming, mode);
        let used: Vec<FileId> = incoming.iter().flat_map(named_in).collect();
        // Inline files are stored for the session.
        let deferred = is_new && !has_files && !request.options.keep;
        let keeps_turn = stored.turn.is_some();
        let mut parked = take_parked(&mut stored);
        if let Some(parked) = &mut parked {
            let asked = context.sessions.store.approvals(&owner, &id).await?;
            parked.state.approvals = Arc::new(known(asked));
        } else if incoming.is_empty() {
            return Err(nothing_waits(request));
        }
        let before = stored.messages.len();
        let going_on = parked
            .as_mut()
            .and_then(|parked| going_on(&mut stored, mode, parked, &incoming, shows_answer));
        let mut follow = Vec::new();
        let (parked, (mut unsaved, mut history)) = match going_on {
            Some(mut plan) => {
                follow = std::mem::take(&mut plan.new);
                (parked, planned(&stored, plan))
            }
            None => {
                stored
                    .messages
                    .extend(open_results(&stored, request, parked));
                (None, join(&stored, mode, incoming))
            }
        };
        if !deferred {
            let existing = exists.then_some(&stored);
            let size = context.sessions.check_size(&owner, &id, existing, &unsaved);
            size.await?;
        }
        let session = RunSession::Stored {
            id,
            lease,
            deferred,
        };
        let mut sources = sources(&stored, &unsaved);
        let written_ahead = parked.as_ref().map(|turn| {
            // The batch brings the message again, with the results.
            let _asks_for_the_calls = history.pop();
            let answers = turn.batch.calls.iter().filter_map(Call::answer);
            sources.extend(answers.flat_map(|answer| answer.sources.clone()));
            turn.batch.stored_message()
        });
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
            written_ahead,
            keeps_turn,
            ..Self::new(context, owner, session, unsaved, sources)
        };
        Ok(OpenedTurn {
            parked,
            follow,
            ..OpenedTurn::new(Some(conversation), history)
        })
    }

    fn unstored(
        context: OpenContext<'_>,
        request: &TurnRequest,
        stored: StoredSession,
        incoming: Vec<Message>,
    ) -> (Self, Vec<Message>) {
        let (unsaved, history) = join(&stored, request.options.session_mode, incoming);
        let owner = request.caller.owner.clone();
        let sources = sources(&stored, &unsaved);
        let session = RunSession::Unstored(stored);
        let conversation = Self::new(context, owner, session, unsaved, sources);
        (conversation, history)
    }

    fn new(
        context: OpenContext<'_>,
        owner: Owner,
        session: RunSession,
        unsaved: Change,
        sources: Vec<CitedSource>,
    ) -> Self {
        Self {
            sessions: context.sessions.clone(),
            tasks: context.tasks.clone(),
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
            keeps_turn: false,
            is_unused_fork: false,
        }
    }
}

/// Whether a request shows that its client has what a turn that waits has told: its messages end with an answer, or it follows
/// the response that told of the wait, which is the only one without an answer in the session.
fn shows_answer(request: &TurnRequest, stored: &StoredSession, incoming: &[Message]) -> bool {
    let is_answered = |run: &RunId| {
        let mut views = stored.messages.iter().filter_map(|one| one.view.as_ref());
        views.any(|view| view.is_of(run))
    };
    let previous = request.options.previous.as_ref();
    let mut newest = incoming.iter().rev();
    previous.is_some_and(|run| !is_answered(run))
        || newest
            .find(|message| !message.is_instruction())
            .is_some_and(|message| *message.role() == Role::Assistant)
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
    sessions: &Sessions,
    request: &TurnRequest,
    incoming: &[Message],
    waiting: Option<WaitingTurn>,
) -> (Option<SessionId>, IdOrigin) {
    let options = &request.options;
    match (&options.session_id, &options.chat, waiting) {
        (Some(id), ..) => (Some(id.clone()), IdOrigin::Client),
        (None, Some(chat), _) => {
            let id = sessions.of_chat(&request.caller.owner, chat, incoming);
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
    sessions: &Sessions,
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
        // And one that waits for a decision, while nothing comes after it.
        None if is_last_run || stored.turn.is_some() => return Ok(session),
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
    let store = &sessions.store;
    store.fork(session.lease.fence(), Some(before), &id).await?;
    let owner = session.lease.owner();
    Ok(LeasedSession {
        is_fork: true,
        ..LeasedSession::load(sessions, owner, id, IdOrigin::Client).await?
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
