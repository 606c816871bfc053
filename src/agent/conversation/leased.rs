//! The session that a run leases: which one a request names, and which answer in it the turn follows.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::AgentError;
use super::super::turn::TurnRequest;
use crate::session::{IdOrigin, Lease, Sessions, StoredMessage, StoredSession, WaitingTurn, merge};
use protocol::ids::{Owner, RunId, SessionId};
use protocol::openai::message::Message;

/// A session that a run has leased.
pub(super) struct LeasedSession {
    pub(super) id: SessionId,
    pub(super) lease: Arc<Lease>,
    pub(super) found: Option<StoredSession>,
    pub(super) id_origin: IdOrigin,
    /// It was made for this request.
    pub(super) is_fork: bool,
}

impl LeasedSession {
    /// A session that is not stored yet.
    pub(super) async fn new(
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

    /// Loads the session, if it is stored.
    pub(super) async fn load(
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

    /// Whether the session is new and the client did not choose its id.
    pub(super) fn is_new(&self) -> bool {
        self.id_origin != IdOrigin::Client && self.found.is_none()
    }

    /// Checks that it holds these calls.
    pub(super) fn holds_calls(&self, calls: Vec<String>) -> Result<(), AgentError> {
        let stored = self.found.iter().flat_map(|found| &found.messages);
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

    /// The session in which the turn follows the answer of the run `previous`: the session itself if that is its last
    /// answer, else a fork. A later turn without an answer is left out, unless the request repeats it. For a turn that
    /// is not stored, only the history is cut.
    pub(super) async fn after(
        self,
        sessions: &Sessions,
        previous: &RunId,
        incoming: &[Message],
        is_ephemeral: bool,
    ) -> Result<Self, AgentError> {
        let Some(stored) = &self.found else {
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
            // An answer of another dialect can only be followed while it is the last one, and the answer of a suspended
            // turn only while the turn is suspended.
            None if is_last_run || stored.turn.is_some() => return Ok(self),
            None => return Err(AgentError::NoPosition),
        };
        if last == Some(place)
            && (is_last_run
                || place + 1 == stored.messages.len()
                || merge::repeats(&stored.messages, incoming))
        {
            return Ok(self);
        }
        if is_ephemeral {
            let mut found = self.found.unwrap_or_default();
            found.messages.truncate(place + 1);
            return Ok(Self {
                found: Some(found),
                ..self
            });
        }
        let before = stored.instructions.len() + place + 1;
        let id = SessionId::fresh();
        let store = &sessions.store;
        store.fork(self.lease.fence(), Some(before), &id).await?;
        let owner = self.lease.owner();
        Ok(Self {
            is_fork: true,
            ..Self::load(sessions, owner, id, IdOrigin::Client).await?
        })
    }
}

/// The session that a request names or continues, and who chose its id.
pub(super) fn named_session(
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
        // It is kept as long as a session whose id the client chose, but can be evicted.
        (None, None, _) if options.keep => (None, IdOrigin::Chat),
        (None, None, _) => (None, IdOrigin::Nameless),
    }
}
