//! The session side of a run: whose turn it is, what the history was, what is written when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::inputs::Keeper;
use super::turn::TurnRequest;
use super::{AgentError, AgentParts, block_in_place_if};
use crate::ids::{Owner, SessionId};
use crate::openai::citation::CitedSource;
use crate::openai::message::{Message, Role};
use crate::session::{
    Attachment, Change, Lease, StoredMessage, StoredSession, UnstoredTurn, UnwrittenChange,
    WaitingTurn, splice,
};

/// How long a `store: false` turn waits for the results of the client's tools.
const PARKED_FOR: Duration = Duration::from_secs(600);

/// The conversation of one run. Writes happen beside the run and in order; the session stays locked until the last
/// one has ended, even when the run itself is dropped.
#[derive(Debug)]
pub(super) struct Conversation {
    parts: Arc<AgentParts>,
    owner: Owner,
    kept: Keeping,
    /// What the store does not have yet.
    unsaved: Change,
    writing: Option<JoinHandle<Result<(), Box<UnwrittenChange>>>>,
    /// What goes with the turn where it is not stored.
    held: Option<Attachment>,
    /// The call of an unstored turn that this request answers.
    answers: Option<String>,
    /// What results that are still part of it found.
    sources: Vec<CitedSource>,
}

/// Where the conversation is kept.
#[derive(Debug)]
enum Keeping {
    Stored {
        id: SessionId,
        lease: Arc<Lease>,
    },
    /// `store: false`: in memory, and only while the client runs its tools.
    Parked(StoredSession),
}

impl Conversation {
    /// Finds and locks the conversation of a request, and joins its messages to the history.
    ///
    /// Returns no conversation when nothing is to be stored; the history then is the request's messages.
    pub(super) async fn open(
        parts: &Arc<AgentParts>,
        request: &mut TurnRequest,
    ) -> Result<(Option<Self>, Vec<Message>), AgentError> {
        let owner = request.caller.owner.clone();
        let incoming = std::mem::take(&mut request.messages);
        let unkept = |incoming| {
            let keeper = Keeper {
                parts,
                owner: &owner,
                session: None,
            };
            keeper.take_in(incoming)
        };
        let pending_call = pending_call(&incoming).map(str::to_owned);
        let waiting = match &pending_call {
            Some(call) => parts.sessions.waiting_turn(&owner, call).await,
            None => None,
        };
        if let Some(WaitingTurn::Unstored(waiting)) = waiting {
            // The turn that was not to be stored goes on, whatever this request says.
            let incoming = unkept(incoming).await?;
            let (mut conversation, history) =
                Self::ephemeral(parts, request, waiting.session, incoming);
            conversation.held = waiting.attached;
            conversation.answers = pending_call;
            return Ok((Some(conversation), history));
        }
        let explicit = request.options.session_id.clone();
        let continued = match (&explicit, waiting) {
            (None, Some(WaitingTurn::Stored(id))) => Some(id),
            _ => None,
        };
        if request.options.ephemeral && explicit.is_none() && continued.is_none() {
            let nothing = StoredSession::default();
            let incoming = unkept(incoming).await?;
            let (conversation, history) = Self::ephemeral(parts, request, nothing, incoming);
            return Ok((Some(conversation), history));
        }
        let fresh = explicit.is_none() && continued.is_none();
        if fresh && !request.tools.has_server_tools() {
            return Ok((None, unkept(incoming).await?));
        }
        let id = explicit.or(continued).unwrap_or_else(SessionId::fresh);
        let lease = parts.sessions.lease(&owner, &id).await?;
        let stored = match fresh {
            true => StoredSession::default(),
            false => parts.sessions.load(&owner, &id).await?.unwrap_or_default(),
        };
        if request.options.ephemeral {
            let incoming = unkept(incoming).await?;
            let (conversation, history) = Self::ephemeral(parts, request, stored, incoming);
            return Ok((Some(conversation), history));
        }
        let keeper = Keeper {
            parts,
            owner: &owner,
            session: Some(&id),
        };
        let incoming = keeper.take_in(incoming).await?;
        let kept = Keeping::Stored {
            id,
            lease: Arc::new(lease),
        };
        let (unsaved, history) = join(&stored, request, incoming);
        let sources = sources(&stored, &unsaved);
        let conversation = Self::new(parts, owner, kept, unsaved).knowing(sources);
        Ok((Some(conversation), history))
    }

    fn ephemeral(
        parts: &Arc<AgentParts>,
        request: &TurnRequest,
        stored: StoredSession,
        incoming: Vec<Message>,
    ) -> (Self, Vec<Message>) {
        let (unsaved, history) = join(&stored, request, incoming);
        let owner = request.caller.owner.clone();
        let sources = sources(&stored, &unsaved);
        let conversation =
            Self::new(parts, owner, Keeping::Parked(stored), unsaved).knowing(sources);
        (conversation, history)
    }

    fn new(parts: &Arc<AgentParts>, owner: Owner, kept: Keeping, unsaved: Change) -> Self {
        Self {
            parts: parts.clone(),
            owner,
            kept,
            unsaved,
            writing: None,
            held: None,
            answers: None,
            sources: Vec::new(),
        }
    }

    fn knowing(mut self, sources: Vec<CitedSource>) -> Self {
        self.sources = sources;
        self
    }

    /// What earlier results found, as far as they are still part of the conversation.
    pub(super) fn sources(&self) -> Vec<CitedSource> {
        self.sources.clone()
    }

    /// What was kept for this turn while the client ran its tools.
    pub(super) fn held(&self) -> Option<&Attachment> {
        self.held.as_ref()
    }

    /// Keeps something for as long as the turn lasts, the client's calls included.
    pub(super) fn hold(&mut self, held: Attachment) {
        self.held = Some(held);
    }

    /// The calls that this request answers have led to the end of the turn, or to other calls.
    pub(super) fn release(&self) {
        if let Some(call) = &self.answers {
            self.parts.sessions.detach(&self.owner, call);
        }
    }

    /// The id, if the conversation is stored.
    pub(super) fn session_id(&self) -> Option<&SessionId> {
        match &self.kept {
            Keeping::Stored { id, .. } => Some(id),
            Keeping::Parked(_) => None,
        }
    }

    /// Adds what the model saw.
    pub(super) fn push(&mut self, message: StoredMessage) {
        self.unsaved.append.push(message);
    }

    /// Begins to write what is new. Call [`Self::settle`] before the next one.
    pub(super) fn save(&mut self, client_calls: Vec<String>) {
        self.unsaved.client_calls = client_calls;
        match &mut self.kept {
            Keeping::Stored { lease, .. } => {
                let keep = self.unsaved.keep + self.unsaved.append.len();
                let next = Change {
                    keep,
                    ..Change::default()
                };
                let change = std::mem::replace(&mut self.unsaved, next);
                let (sessions, lease) = (self.parts.sessions.clone(), lease.clone());
                // The task holds the lease, so that the next turn begins only when the change is written.
                self.writing = Some(
                    self.parts
                        .tasks
                        .spawn(async move { sessions.write(&lease, change).await }),
                );
            }
            Keeping::Parked(session) => {
                apply(session, &mut self.unsaved);
                let calls = std::mem::take(&mut self.unsaved.client_calls);
                if !calls.is_empty() {
                    let until = Instant::now() + PARKED_FOR;
                    let turn = UnstoredTurn {
                        session: session.clone(),
                        attached: self.held.clone(),
                    };
                    self.parts.sessions.park(&self.owner, &calls, turn, until);
                }
            }
        }
    }

    /// Waits for the write under way. Says whether it failed; what it held is then part of the next write.
    pub(super) async fn settle(&mut self) -> Result<(), ()> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        match writing.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failed)) => {
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
            Err(join_error) => {
                tracing::error!(error = %join_error, "session write was lost");
                Err(())
            }
        }
    }
}

/// The newest tool call that the request answers, which leads back to its session.
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
        let joined = splice::join(stored, incoming, request.options.session_mode);
        let history = splice::history(stored, &joined);
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

/// What the messages that stay found.
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
