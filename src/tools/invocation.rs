//! One call of a tool: its arguments, what it belongs to, and its live output.

use std::sync::Arc;

use ::http::HeaderMap;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::cited_sources::CitedSources;
use super::gate::{Approvals, TurnPermissions};
use super::incoming::IncomingResults;
use super::python::EarlierCode;
use policy::hooks::{HookRecord, HookedTurn};
use protocol::ids::{Owner, RequestId, RunId, SessionId, WorkspaceId};
use sandbox::WorkFile;

/// One call, ready to run.
#[derive(Debug, Clone)]
pub struct ToolInvocation {
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The id that the result answers.
    pub call_id: String,
    /// `traceparent` and `tracestate` of the call, if it has a span of its own.
    pub trace: Option<HeaderMap>,
    /// Where live output goes.
    pub progress: ProgressSender,
    /// What the call has in common with the other calls of its batch.
    pub context: Arc<CallContext>,
}

/// What all calls of a batch have in common.
#[derive(Debug)]
pub struct CallContext {
    /// The conversation, if it is stored.
    pub session_id: Option<SessionId>,
    /// The client's request.
    pub request_id: RequestId,
    /// The run.
    pub run_id: RunId,
    /// The round, from 0.
    pub round: u32,
    /// The model that asked for the call; empty if none did.
    pub model: String,
    /// The request's `user`, if it has one.
    pub user: Option<String>,
    /// `traceparent` and `tracestate` of the turn.
    pub trace: HeaderMap,
    /// Names the interpreter and the working files of the conversation.
    pub workspace: WorkspaceId,
    /// Files of the conversation that belong among the working files.
    pub files: Arc<[WorkFile]>,
    /// What code of earlier turns of the stored conversation has left.
    pub earlier_code: EarlierCode,
    /// The owner of the request.
    pub owner: Owner,
    /// The sources of the conversation and their numbers.
    pub sources: CitedSources,
    /// What the calls of the turn may do.
    pub permissions: TurnPermissions,
    /// The questions of the conversation about which a person decides.
    pub approvals: Arc<Approvals>,
    /// What hooks have done in the turn.
    pub hook_record: HookRecord,
    /// Bounds the large results that the batch receives at the same time.
    pub incoming: IncomingResults,
}

impl ToolInvocation {
    /// `traceparent` and `tracestate` for what the call leads to.
    pub(crate) fn trace(&self) -> &HeaderMap {
        self.trace.as_ref().unwrap_or(&self.context.trace)
    }
}

impl CallContext {
    /// The facts about the turn that hooks get. Hooks have no time after the deadline. A call may have a `trace` of its
    /// own.
    pub(super) fn hooked<'a>(
        &'a self,
        deadline: Option<Instant>,
        trace: Option<&'a HeaderMap>,
    ) -> HookedTurn<'a> {
        HookedTurn {
            session_id: self.session_id.as_ref(),
            owner: &self.owner,
            request_id: &self.request_id,
            run_id: &self.run_id,
            round: self.round,
            model: &self.model,
            deadline,
            trace: trace.unwrap_or(&self.trace),
            record: &self.hook_record,
        }
    }
}

/// Live output of a running tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolProgress {
    /// The text.
    pub text: String,
    /// `stdout`, `stderr` or `progress`.
    pub stream: &'static str,
}

/// The sending half of a running tool's live output; waits while the client is slow.
#[derive(Debug, Clone)]
pub struct ProgressSender(pub(crate) mpsc::Sender<ToolProgress>);

impl ProgressSender {
    /// Sends live output. Waits while the client is slow; does nothing once the receiver is gone.
    pub async fn send(&self, progress: ToolProgress) {
        // A closed channel means that the run is over.
        let _closed = self.0.send(progress).await;
    }

    /// Sends live output if that needs no waiting. Output without a receiver counts as sent.
    ///
    /// # Errors
    /// Returns the output if the client is slow.
    pub fn try_send(&self, progress: ToolProgress) -> Result<(), ToolProgress> {
        match self.0.try_send(progress) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(progress)) => Err(progress),
        }
    }
}

#[cfg(test)]
impl CallContext {
    /// The context of a call in no conversation.
    pub(crate) fn example() -> Self {
        Self {
            session_id: None,
            request_id: RequestId::fresh(),
            run_id: RunId::fresh(),
            round: 0,
            model: "m".to_owned(),
            user: None,
            trace: HeaderMap::new(),
            workspace: WorkspaceId::fresh(),
            files: Arc::default(),
            earlier_code: EarlierCode::None,
            owner: Owner::everybody(),
            sources: CitedSources::default(),
            permissions: TurnPermissions::default(),
            approvals: Arc::default(),
            hook_record: HookRecord::default(),
            incoming: IncomingResults::default(),
        }
    }
}
