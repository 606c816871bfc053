//! A call of a server-side tool outside of a turn: a batch of one call, without a model and without a history.
//!
//! The call takes the path of every call: repair, validation, hooks, permissions, redaction, the cap of its result. A
//! call that needs a person's decision is refused, because no turn can wait for it. In a session it has the session's
//! working files, interpreter, grants and lease; nothing of it is written to the history.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::Span;

use super::approvals::known;
use super::batch::{Batch, BatchContext, BatchStep};
use super::call::Call;
use super::control::{AbortReason, TurnControl};
use super::event::AgentEvent;
use super::inputs::Inputs;
use super::open_batch::OpenBatch;
use super::transcript::text_answer;
use super::turn::{Caller, Permissions, ToolSet};
use super::turn_bytes::TurnBytes;
use super::turn_env::TurnEnv;
use super::{Agent, AgentError, AgentParts, RunError};
use crate::session::Lease;
use policy::hooks::HookRecord;
use protocol::ids::SessionId;
use tools::gate::{Approvals, TurnPermissions};
use tools::refusal::CallRefusal;
use tools::{CallContext, IncomingResults};

/// A tool call that a client requests directly.
#[derive(Debug)]
pub struct CallRequest {
    /// Who asks.
    pub caller: Caller,
    /// The name of the tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
    /// The session in which it runs; without one it has files and an interpreter of its own.
    pub session_id: Option<SessionId>,
}

/// Why a call cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CallRequestError {
    /// The caller is offered no tool of this name.
    #[error("there is no such tool")]
    UnknownTool {
        /// The names of the tools that there are.
        known: Vec<String>,
    },
    /// The arguments do not fit the tool's schema; holds the text that a model would get.
    #[error("{0}")]
    Arguments(String),
}

/// A call whose tool exists and takes its arguments, unless the rules deny every call of it.
#[derive(Debug)]
pub struct CheckedCall {
    pub(super) caller: Caller,
    pub(super) session_id: Option<SessionId>,
    pub(super) tools: ToolSet,
    pub(super) permissions: Permissions,
    pub(super) call: Call,
}

impl CheckedCall {
    /// The session in which it runs.
    pub fn session_id(&self) -> Option<&SessionId> {
        self.session_id.as_ref()
    }

    /// Whether it may have an effect that a second call repeats.
    pub fn may_change(&self) -> bool {
        self.call.may_change()
    }
}

/// A call outside of a turn while it runs. Dropping it cancels the tool.
#[derive(Debug)]
pub struct DirectCall {
    batch: Batch,
    control: TurnControl,
    aborted: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Events for the next calls of [`Self::next`].
    ready: VecDeque<AgentEvent>,
    over: bool,
    span: Span,
    _env: TurnEnv,
    _lease: Option<Lease>,
}

impl Agent {
    /// Starts a call, which `control` can end.
    ///
    /// # Errors
    /// When its session is busy, does not exist or cannot be read.
    pub async fn call_tool(
        &self,
        call: CheckedCall,
        control: TurnControl,
    ) -> Result<DirectCall, AgentError> {
        DirectCall::start(self.parts.clone(), call, control).await
    }
}

impl DirectCall {
    async fn start(
        parts: Arc<AgentParts>,
        prepared: CheckedCall,
        control: TurnControl,
    ) -> Result<Self, AgentError> {
        let CheckedCall {
            caller,
            session_id,
            tools,
            permissions,
            call,
        } = prepared;
        let permissions = TurnPermissions::new(permissions);
        let services = &parts.tools;
        let owner = &caller.owner;
        let (mut lease, mut inputs, mut approvals) =
            (None, Inputs::default(), Approvals::default());
        if let Some(session) = &session_id {
            lease = Some(parts.sessions.lease(owner, session).await?);
            inputs = files_of(&parts, &caller, session, tools.runs_code()).await?;
            if services.gate.may_wait(&permissions) {
                approvals = known(parts.sessions.store.approvals(owner, session).await?);
            }
        }
        let env = TurnEnv::new(&services.sources, owner, None, session_id.as_ref(), inputs);
        let span = tracing::info_span!(
            "call",
            request_id = %caller.request_id,
            session_id = session_id.as_ref().map(tracing::field::display)
        );
        let context = CallContext {
            session_id,
            request_id: caller.request_id,
            run_id: control.run().clone(),
            round: 0,
            model: String::new(),
            user: None,
            trace: caller.trace,
            workspace: env.workspace().clone(),
            files: env.files().clone(),
            earlier_code: env.earlier_code(),
            owner: caller.owner,
            sources: env.sources().clone(),
            permissions,
            approvals: Arc::new(approvals),
            hook_record: HookRecord::default(),
            incoming: IncomingResults::default(),
        };
        let context = BatchContext::of_one_call(services, context)
            .with_turn_bytes(TurnBytes::new(parts.settings.max_turn_bytes))
            .within(parts.settings.max_duration);
        let open = OpenBatch {
            message: text_answer("").with_tool_calls(std::slice::from_ref(&call.call)),
            calls: vec![call],
        };
        Ok(Self {
            batch: Batch::start(context, Vec::new(), open, &tools),
            aborted: Box::pin(control.aborted()),
            control,
            ready: VecDeque::new(),
            over: false,
            span,
            _env: env,
            _lease: lease,
        })
    }

    /// Adds the ids of the call to log lines. [`Self::next`] is called within it.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The next event; `None` when the call is over. The last one is [`AgentEvent::Complete`].
    ///
    /// # Errors
    /// When a person would have to decide about the call, or the process is stopping. The call is over then.
    ///
    /// # Cancel safety
    /// Not cancel safe: after the future is dropped, the call has to be dropped too.
    pub async fn next(&mut self) -> Result<Option<AgentEvent>, RunError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.over {
                return Ok(None);
            }
            match self.batch.step(&mut self.aborted).await {
                BatchStep::Event(event) => return Ok(Some(event)),
                BatchStep::Starting { start, .. } => {
                    self.control.note_calls(true);
                    start.allow();
                }
                BatchStep::Waiting(_) => return Err(self.needs_approval()),
                BatchStep::Ended => self.over = true,
                BatchStep::Aborted => {
                    self.over = true;
                    self.batch.cancel();
                    self.ready.extend(self.batch.take_events());
                    if self.control.abort_reason() == Some(AbortReason::Shutdown) {
                        return Err(self.failed(AgentError::Stopping));
                    }
                }
            }
        }
    }

    /// Refuses the call, about which a person would have to decide.
    fn needs_approval(&mut self) -> RunError {
        /// Number of the only call in its batch.
        const ONLY: usize = 0;
        self.over = true;
        let waiting = self.batch.waiting(ONLY);
        self.batch.refuse(ONLY, &CallRefusal::undecided());
        let error = waiting.map_or(AgentError::Stopping, |waiting| AgentError::NeedsApproval {
            tool: waiting.of.name,
            reason: waiting.wait.reason,
            rule: waiting.wait.rule,
        });
        self.failed(error)
    }

    fn failed(&self, error: AgentError) -> RunError {
        RunError {
            error,
            side_effects: self.control.side_effects(),
            waited: Duration::ZERO,
        }
    }
}

/// The working files of a session, for code.
///
/// # Errors
/// When the session does not exist, or the store fails.
async fn files_of(
    parts: &AgentParts,
    caller: &Caller,
    session: &SessionId,
    runs_code: bool,
) -> Result<Inputs, AgentError> {
    let (owner, store) = (&caller.owner, &parts.sessions.store);
    if !runs_code {
        let head = store.head(owner, session).await?;
        return head.map(|_| Inputs::default()).ok_or(AgentError::NoSession);
    }
    let stored = store.load(owner, session).await?;
    let stored = stored.ok_or(AgentError::NoSession)?;
    let messages = stored.messages.into_iter();
    let history = messages.map(|stored| stored.message).collect();
    let files = parts.input_files(owner).of_session(session);
    let (_, inputs) = files.resolve(history, &[], runs_code).await?;
    Ok(inputs)
}
