//! Opening the conversation of a run.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::super::AgentError;
use super::super::approvals::known;
use super::super::call::Call;
use super::super::contents::named_in;
use super::super::inputs::{InputFiles, has_files};
use super::super::suspended_turn::SuspendedTurn;
use super::super::turn::TurnRequest;
use super::decide::{decide, no_position, nothing_waits};
use super::join::{
    JoinedRequest, join, open_results, resume_or_join, sources, take_suspended, without_sentence,
};
use super::leased::{LeasedSession, named_session};
use super::{Conversation, RunSession, delete_fork};
use crate::session::{Change, IdOrigin, Sessions, StoredSession, WaitingTurn};
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
    /// The suspended turn that this turn resumes. Its batch follows the history.
    pub(in super::super) suspended: Option<SuspendedTurn>,
    /// Messages of the request that follow that batch.
    pub(in super::super) follow: Vec<Message>,
}

impl OpenedTurn {
    fn new(conversation: Option<Conversation>, history: Vec<Message>) -> Self {
        Self {
            conversation,
            history,
            suspended: None,
            follow: Vec::new(),
        }
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
                let session = session.after(sessions, previous, &incoming, is_ephemeral);
                let session = session.await;
                Some(session.map_err(|error| no_position(&request.decisions, error))?)
            }
            (session, _) => session,
        };
        if let Some(session) = &session
            && let Err(error) = session.holds_calls(answers)
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
            if let Some(suspended) = take_suspended(&mut stored) {
                let results = open_results(&stored, request, Some(suspended));
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
        let (incoming, mode) = without_sentence(&stored, incoming, mode);
        let used: Vec<FileId> = incoming.iter().flat_map(named_in).collect();
        // Inline files are stored for the session.
        let deferred = is_new && !has_files && !request.options.keep;
        let has_suspended_turn = stored.turn.is_some();
        let mut suspended = take_suspended(&mut stored);
        if let Some(suspended) = &mut suspended {
            let asked = context.sessions.store.approvals(&owner, &id).await?;
            suspended.state.approvals = Arc::new(known(asked));
        } else if incoming.is_empty() {
            return Err(nothing_waits(request));
        }
        let before = stored.messages.len();
        let incoming = (incoming, mode);
        let joined = resume_or_join(&mut stored, request, suspended, incoming, shows_answer);
        let JoinedRequest {
            suspended,
            follow,
            change: mut unsaved,
            mut history,
        } = joined;
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
        let stored_calls = suspended.as_ref().map(|turn| {
            // The batch adds the message again, with the results.
            let _asks_for_the_calls = history.pop();
            let answers = turn.batch.calls.iter().filter_map(Call::answer);
            sources.extend(answers.flat_map(|answer| answer.sources.clone()));
            turn.batch.stored_message()
        });
        if unsaved.keep > before {
            // The results of interrupted calls are stored with the next messages.
            let results = stored.messages.drain(before..unsaved.keep);
            unsaved.append.splice(0..0, results);
            unsaved.keep = before;
        }
        unsaved.files = used;
        let conversation = Self {
            is_unused_fork: is_fork,
            id_origin,
            stored_calls,
            has_suspended_turn,
            ..Self::new(context, owner, session, unsaved, sources)
        };
        Ok(OpenedTurn {
            suspended,
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
            stored_calls: None,
            has_suspended_turn: false,
            is_unused_fork: false,
        }
    }
}

/// Whether the client has the answer of the suspended turn so far. Its messages then end with an answer, or the request
/// follows the response that reported the wait, which is the only response without a stored answer.
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

/// The id of the last tool call whose result the request has. It identifies the waiting turn.
fn pending_call(messages: &[Message]) -> Option<&str> {
    messages
        .iter()
        .rev()
        .find(|message| *message.role() == Role::Tool)?
        .tool_call_id()
}
