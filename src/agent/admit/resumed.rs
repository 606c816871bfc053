//! Requests that continue a turn: one that waits for results of the client, or one that was suspended.

use super::super::Agent;
use super::super::draft::{Decoded, Faults, TurnDraft};
use super::super::turn::{Caller, TurnRequest};
use super::{AdmissionError, AdmittedTurn, Admitting};
use crate::session::WaitingTurn;
use protocol::openai::request::RequestError;

impl Agent {
    /// Completes a request that resumes a suspended turn: the fields that it does not name come from the draft of that
    /// turn.
    pub(in super::super) async fn resume_with(
        &self,
        request: &mut TurnRequest,
        mut suspended: TurnDraft,
    ) {
        let Some(draft) = request.draft.clone().filter(|_| !request.is_resumed) else {
            return;
        };
        let declares = !draft.tools.declared.is_empty();
        if !suspended.add_servers(request.kept_servers.take()) && !declares {
            tracing::warn!("a turn resumes without the MCP servers that it has declared");
        }
        let decoded = Decoded {
            draft: draft.over(suspended),
            faults: Faults::default(),
        };
        let admitted = self.resumed(decoded, request.caller.clone()).await;
        match admitted {
            Ok(admitted) => {
                let turn = admitted.turn;
                request.user = turn.user;
                request.permissions = turn.permissions;
                request.instructions = turn.instructions;
                request.asking_servers = turn.asking_servers;
                request.tools = turn.tools;
                request.files = turn.files;
                request.wanted = turn.wanted;
                request.call = turn.call;
                request.draft = turn.draft;
            }
            // The request itself can be run, so the turn resumes with what the request asks for.
            Err(error) => tracing::warn!(%error, "a turn resumes without what it has asked for"),
        }
    }

    async fn resumed(
        &self,
        decoded: Decoded,
        caller: Caller,
    ) -> Result<Box<AdmittedTurn>, RequestError> {
        let admitting = self.admitting(decoded, caller)?;
        if !admitting.asked.servers.is_empty() {
            return Box::pin(admitting.connected()).await;
        }
        let tools = admitting.tools()?;
        admitting.turn(tools, None)
    }

    /// The turn that waits for the result with which a request ends that would pass through.
    pub(super) async fn continued_turn(&self, admitting: &Admitting<'_>) -> Option<WaitingTurn> {
        let call = admitting.draft.input.messages.answered_call()?;
        let sessions = &self.parts.sessions;
        sessions.waiting_turn(&admitting.caller.owner, &call).await
    }

    /// The turn that waits for the results in a request that repeats no calls. `None` for a request with a session: the
    /// turn itself reads the history of that session.
    ///
    /// # Errors
    /// When no turn waits for one of them.
    pub(super) async fn answered_turn(
        &self,
        admitting: &Admitting<'_>,
    ) -> Result<Option<WaitingTurn>, AdmissionError> {
        let draft = &admitting.draft;
        if draft.options.session_id.is_some() {
            return Ok(None);
        }
        let pending = draft.input.messages.last_result();
        let mut found = None;
        for call in &draft.input.answered_calls {
            let sessions = &self.parts.sessions;
            let waiting = sessions.waiting_turn(&admitting.caller.owner, call).await;
            let waiting = waiting.ok_or_else(|| AdmissionError::UnknownCall(call.clone()))?;
            if pending.as_ref() == Some(call) {
                found = Some(waiting);
            }
        }
        Ok(found)
    }
}
