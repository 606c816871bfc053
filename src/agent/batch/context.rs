//! The context that a turn gives to a batch.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::ToolServices;
use super::super::options::ToolExecution;
use super::super::suspended_turn::TurnState;
use super::super::turn::TurnRequest;
use super::super::turn_bytes::TurnBytes;
use super::super::turn_env::TurnEnv;
use policy::hooks::HookRecord;
use protocol::ids::{RunId, SessionId};
use tools::batch::BatchLimits;
use tools::{CallContext, IncomingResults};

/// How far a batch has come before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum BatchStage {
    /// It begins.
    New,
    /// It is stored with the session, and the reader has no event of it.
    Suspended,
    /// It is stored with the session, and the reader has the events with which its calls begin. Questions are reported
    /// again.
    Begun,
    /// It is stored with the session, and the reader has the events of its calls and questions.
    Shown,
}

/// The context that a turn gives to a batch.
#[derive(Debug)]
pub(in super::super) struct BatchContext {
    pub(in super::super) services: Arc<ToolServices>,
    /// The context of each call.
    pub(in super::super) call: Arc<CallContext>,
    /// When running tools are cancelled.
    pub(in super::super) deadline: Option<Instant>,
    pub(in super::super) execution: ToolExecution,
    /// The model is shown the images of results.
    pub(in super::super) shows_images: bool,
    /// Bytes that the turn may still keep.
    pub(in super::super) turn_bytes: TurnBytes,
    /// The batch is stored with the session. A call starts only after its start is stored.
    pub(in super::super) was_suspended: bool,
    /// Reports the start of a call with effects before it runs, because the batch is or may be stored.
    pub(super) asks_to_start: bool,
    /// The reader has the events with which its calls begin.
    pub(super) calls_shown: bool,
    /// The reader has the events of its calls and questions.
    pub(super) was_shown: bool,
}

/// The run that a batch belongs to.
#[derive(Debug)]
pub(in super::super) struct BatchRun {
    pub(in super::super) id: RunId,
    /// The session, if it is stored.
    pub(in super::super) session_id: Option<SessionId>,
    pub(in super::super) hook_record: HookRecord,
}

impl BatchContext {
    pub(in super::super) fn new(
        services: &Arc<ToolServices>,
        request: &TurnRequest,
        run: BatchRun,
        turn_env: &TurnEnv,
        turn: &TurnState,
    ) -> Self {
        let call = CallContext {
            session_id: run.session_id,
            request_id: request.caller.request_id.clone(),
            run_id: run.id,
            round: turn.machine.round(),
            model: request.model.clone(),
            user: request.user.clone(),
            trace: request.caller.trace.clone(),
            workspace: turn_env.workspace().clone(),
            files: turn_env.files().clone(),
            earlier_code: turn_env.earlier_code(),
            owner: request.caller.owner.clone(),
            sources: turn_env.sources().clone(),
            permissions: turn.permissions.clone(),
            approvals: turn.approvals.clone(),
            hook_record: run.hook_record,
            incoming: IncomingResults::default(),
        };
        Self {
            services: services.clone(),
            call: Arc::new(call),
            deadline: None,
            execution: request.options.tool_execution,
            shows_images: request.route.quirks.images,
            turn_bytes: TurnBytes::default(),
            was_suspended: false,
            asks_to_start: services.gate.may_wait(&turn.permissions),
            calls_shown: false,
            was_shown: false,
        }
    }

    /// The context of one call outside of a turn. Its start is announced if it may have an effect.
    pub(in super::super) fn of_one_call(services: &Arc<ToolServices>, call: CallContext) -> Self {
        Self {
            services: services.clone(),
            call: Arc::new(call),
            deadline: None,
            execution: ToolExecution::Sequential,
            shows_images: true,
            turn_bytes: TurnBytes::default(),
            was_suspended: false,
            asks_to_start: true,
            calls_shown: false,
            was_shown: false,
        }
    }

    /// The same for a batch that has come so far.
    pub(in super::super) fn after(mut self, stage: BatchStage) -> Self {
        self.was_suspended = stage != BatchStage::New;
        self.asks_to_start |= self.was_suspended;
        self.calls_shown = matches!(stage, BatchStage::Begun | BatchStage::Shown);
        self.was_shown = stage == BatchStage::Shown;
        self
    }

    /// The same with these bytes that the turn may still keep.
    pub(in super::super) fn with_turn_bytes(mut self, turn_bytes: TurnBytes) -> Self {
        self.turn_bytes = turn_bytes;
        self
    }

    /// The same with a deadline: running tools are cancelled once this time has passed.
    pub(in super::super) fn within(mut self, left: Option<Duration>) -> Self {
        self.deadline = left.and_then(|left| Instant::now().checked_add(left));
        self
    }

    /// The limits of the calls that run.
    pub(super) fn limits(&self) -> BatchLimits {
        BatchLimits {
            max_parallel: match self.execution {
                ToolExecution::Parallel => self.services.max_parallel_tools,
                ToolExecution::Sequential => 1,
            },
            deadline: self.deadline,
        }
    }
}
