//! The loop: runs a turn and yields its events.
//!
//! [`machine`] decides by the rules of [`policy`]. [`driver`] carries the decisions out and awaits. This module has no
//! code for HTTP responses, configuration files, or the transport to an upstream or a tool.
//!
//! Beside the loop: [`session`] has conversations, [`runs`] running turns; [`metrics`] and [`traces`] are what operators
//! see.

pub mod admit;
mod approvals;
mod batch;
mod call;
mod citations;
mod contents;
pub mod control;
mod conversation;
pub mod direct;
pub mod draft;
pub mod driver;
pub mod event;
mod hooked_prompt;
mod images;
pub mod inputs;
pub(crate) mod limits;
pub(crate) mod machine;
pub mod metrics;
mod model_call;
mod open_batch;
pub mod options;
pub(crate) mod policy;
mod prompt;
pub mod runs;
mod said;
pub mod session;
pub mod settings;
pub mod stop;
mod suspended;
mod suspended_turn;
mod token_estimate;
mod traced;
pub mod traces;
mod transcript;
mod truncation;
pub mod turn;
mod turn_bytes;
mod turn_env;
mod unstored;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_util::task::TaskTracker;

use crate::metrics::Metrics;
use crate::session::files::{FileError, FileStore};
use crate::session::{Approval, Sessions, StoreError};
use crate::traces::Traces;
use ::policy::hooks::Hooks;
use ::policy::redact::Redactor;
use ::policy::rules::{Level, RuleRef};
use control::TurnControl;
use driver::Run;
use inputs::{InputFileError, InputFiles};
use protocol::ids::{Owner, RunId, SessionId};
use stop::StopReason;
use tools::gate::Gate;
use tools::source::Sources;
use turn::TurnRequest;
pub(crate) use unstored::UnstoredApprovals;
use upstream::UpstreamError;
use upstream::router::Router;
use web::FileDownloads;

/// Runs turns; cheap to clone.
#[derive(Debug, Clone)]
pub struct Agent {
    parts: Arc<AgentParts>,
}

/// The services and settings that turns use.
#[derive(Debug)]
pub struct AgentParts {
    /// Chooses the upstreams.
    pub router: Arc<Router>,
    /// The caps of the server.
    pub settings: settings::Settings,
    /// The sessions and their files.
    pub sessions: Sessions,
    /// Downloads the files that requests name by their URLs.
    pub downloads: FileDownloads,
    /// What batches use.
    pub tools: Arc<ToolServices>,
    /// Asked before model calls and before the end of a turn.
    pub hooks: Hooks,
    /// What is asked about calls of turns that are not stored.
    pub unstored: Arc<UnstoredApprovals>,
    /// The metrics.
    pub metrics: Metrics,
    /// Owns the tasks of session writes, which continue when a run is dropped.
    pub tasks: TaskTracker,
}

/// The services and limits that the batches of turns use.
#[derive(Debug)]
pub struct ToolServices {
    /// The sources of server-side tools.
    pub sources: Arc<Sources>,
    /// Checks every call before it runs.
    pub gate: Arc<Gate>,
    /// Where the files of results are stored.
    pub files: FileStore,
    /// Most calls of one batch that run at the same time.
    pub max_parallel_tools: usize,
    /// Most characters of one tool result in the messages for the model.
    pub max_result_chars: usize,
    /// Most bytes of images, files and full results that one turn keeps; images and files count as base64.
    pub max_turn_bytes: u64,
    /// Hides secrets in results; `None` hides nothing.
    pub redactor: Option<Redactor>,
    /// The metrics.
    pub metrics: Metrics,
    /// Starts the spans of turns and calls.
    pub traces: Traces,
}

impl AgentParts {
    /// The files of an owner's requests, as long as they belong to no stored session.
    fn input_files<'a>(&'a self, owner: &'a Owner) -> InputFiles<'a> {
        InputFiles {
            files: &self.sessions.files,
            sources: &self.tools.sources,
            downloads: &self.downloads,
            owner,
            session: None,
        }
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No upstream gave a complete response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The session is busy or cannot be read.
    #[error(transparent)]
    Session(#[from] StoreError),
    /// The session has no answer of the run that the turn is to follow.
    #[error("the session has no such answer")]
    NoPosition,
    /// The request has no message, and its session has no suspended turn.
    #[error("there is nothing to go on with")]
    NothingWaits,
    /// The request answers a call that the session does not hold.
    #[error("the session has no such call")]
    UnknownCall {
        /// The id of the call.
        call: String,
    },
    /// A decision of the request cannot be made: its session has no such question, or it was decided before.
    #[error("the decision cannot be made")]
    Approval {
        /// The field that names the question.
        param: String,
        /// The session has it.
        is_known: bool,
    },
    /// The session of a call outside of a turn does not exist.
    #[error("there is no such session")]
    NoSession,
    /// A person would have to decide about a call outside of a turn.
    #[error("the call needs an approval")]
    NeedsApproval {
        /// The tool.
        tool: String,
        /// Why a person is to be asked.
        reason: Option<String>,
        /// The rule that asks; `None` for the word of a level, and for a hook.
        rule: Option<RuleRef>,
    },
    /// A limit was reached, and the request asks for an error in this case (`on_limit: "error"`).
    #[error("the limit {} is reached", .0.as_str())]
    Limit(StopReason),
    /// A file of the request cannot be used.
    #[error(transparent)]
    InputFile(#[from] InputFileError),
    /// The file store failed for a file of the request.
    #[error("a file of the request could not be stored or read")]
    Files(#[source] FileError),
    /// A hook failed without which no model may be called.
    #[error("a hook has to agree to the model call, and it could not be asked")]
    Hook,
    /// The process is stopping.
    #[error("the process is stopping")]
    Stopping,
}

/// A failed run.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RunError {
    /// The cause.
    #[source]
    pub error: AgentError,
    /// A tool that is not idempotent has run, so that a client must not resend the request on its own.
    pub side_effects: bool,
    /// The time spent waiting for models and tools.
    pub waited: Duration,
}

/// The error of a turn that failed before its first model call.
impl From<AgentError> for RunError {
    fn from(error: AgentError) -> Self {
        Self {
            error,
            side_effects: false,
            waited: Duration::ZERO,
        }
    }
}

/// The tokens of the input of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputTokens {
    /// Their number.
    pub tokens: u64,
    /// The number is an estimate: no upstream has counted.
    pub estimated: bool,
}

impl Agent {
    /// An agent with these parts.
    pub fn new(parts: AgentParts) -> Self {
        Self {
            parts: Arc::new(parts),
        }
    }

    /// Logs a person's decision about a call, and notifies the turns that wait. A call of a turn that is not stored has
    /// no session.
    pub fn decided(&self, by: &Owner, approval: &Approval, session: Option<&SessionId>) {
        approvals::audit(by, approval, session);
        self.parts.metrics.person_decided(approvals::word(approval));
        self.recheck_approvals();
    }

    /// Makes all waiting turns read the decisions again.
    pub fn recheck_approvals(&self) {
        self.parts.tools.gate.decisions().notify_waiters();
    }

    /// What is asked about calls of turns that are not stored.
    pub fn unstored(&self) -> &UnstoredApprovals {
        &self.parts.unstored
    }

    /// What decides about calls.
    pub fn gate(&self) -> &Gate {
        &self.parts.tools.gate
    }

    /// The server's rules for its tools.
    pub fn permissions(&self) -> &Level {
        &self.parts.settings.permissions
    }

    /// Whether a turn of this owner waits for the result of the call with this id.
    pub async fn waits_for(&self, owner: &Owner, call: &str) -> bool {
        let waiting = self.parts.sessions.waiting_turn(owner, call);
        waiting.await.is_some()
    }

    /// The tokens that the first model call of a turn would send, with the history that the request refers to. No model is
    /// called, and nothing is stored.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn input_tokens(&self, mut request: TurnRequest) -> Result<InputTokens, AgentError> {
        request.options.ephemeral = true;
        request.options.keep = false;
        request.decisions.clear();
        let control = TurnControl::new(RunId::fresh());
        let run = Run::start(self.parts.clone(), request, control).await?;
        Ok(run.input_tokens().await)
    }

    /// Starts a turn, which `control` can end. Dropping the run ends it without storing what is unfinished.
    ///
    /// # Errors
    /// When the session is busy or cannot be read, or when a file of the request cannot be used.
    pub async fn run(
        &self,
        mut request: TurnRequest,
        control: TurnControl,
    ) -> Result<Run, AgentError> {
        let span = traced::begin_turn(&self.parts.tools.traces, &mut request, control.run());
        match (Run::start(self.parts.clone(), request, control).await, span) {
            (Ok(run), span) => Ok(run.traced(span)),
            (Err(error), Some(span)) => {
                span.fail(error.class());
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }
}

/// The current time in seconds since 1970.
pub fn unix_seconds() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
