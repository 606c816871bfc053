//! The loop: from a chat request to a stream of events.
//!
//! [`machine`] decides by the rules of [`policy`], and [`driver`] awaits. Knows nothing of HTTP answers, of configuration
//! files, or of the way to a model server or a tool.

mod batch;
mod calls;
mod citations;
mod conversation;
pub mod driver;
pub mod event;
pub mod inputs;
pub mod machine;
mod model_call;
pub mod offer;
pub mod options;
pub mod policy;
pub mod settings;
pub mod stop;
mod transcript;
pub mod turn;
mod turn_env;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::RuntimeFlavor;
use tokio_util::task::TaskTracker;

use crate::ids::Owner;
use crate::metrics::Metrics;
use crate::session::files::FileError;
use crate::session::{SessionError, Sessions};
use crate::tools::gate::Gate;
use crate::tools::source::Sources;
use crate::upstream::UpstreamError;
use crate::upstream::router::Router;
use driver::Run;
use inputs::InputFileError;
use offer::ServerOffer;
use policy::Policies;
use stop::StopReason;
use turn::TurnRequest;

/// Runs turns; cheap to clone.
#[derive(Debug, Clone)]
pub struct Agent {
    parts: Arc<AgentParts>,
}

/// What turns are run with.
#[derive(Debug)]
pub struct AgentParts {
    /// The model servers.
    pub router: Arc<Router>,
    /// Where server-side tools come from.
    pub sources: Arc<Sources>,
    /// Admits calls of tools.
    pub gate: Arc<Gate>,
    /// The rules of turns.
    pub policies: Policies,
    /// Stored conversations and their files.
    pub sessions: Sessions,
    /// The server's own caps and rules.
    pub settings: settings::Settings,
    /// Most calls of a batch that run at the same time.
    pub max_parallel_tools: usize,
    /// Most characters of a result that the model is given.
    pub max_result_chars: usize,
    /// What is counted.
    pub metrics: Metrics,
    /// Owns the session writes, which outlive a run that is dropped.
    pub tasks: TaskTracker,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The model server gave no answer.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The session could not be opened.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A limit was reached and the request wants an error then.
    #[error("the limit {} is reached", .0.as_str())]
    Limit(StopReason),
    /// A file of the request cannot be used.
    #[error(transparent)]
    InputFile(#[from] InputFileError),
    /// The file store failed for a file of the request.
    #[error("a file of the request could not be stored or read")]
    Files(#[source] FileError),
}

/// A failed run.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RunError {
    /// Why.
    #[source]
    pub error: AgentError,
    /// A tool that must not run twice has run, so the request must not be sent again blindly.
    pub side_effects: bool,
    /// Time that was spent waiting for models and tools.
    pub waited: Duration,
}

impl Agent {
    /// An agent with these parts.
    pub fn new(parts: AgentParts) -> Self {
        Self {
            parts: Arc::new(parts),
        }
    }

    /// Whether the server lets server-side tools run.
    pub fn permission(&self) -> settings::Permission {
        self.parts.settings.permission
    }

    /// What the server has for a request.
    pub fn offer(&self) -> ServerOffer<'_> {
        let parts = &self.parts;
        ServerOffer::new(&parts.router, parts.sources.snapshot(), &parts.settings)
    }

    /// Whether a turn of this owner waits for the result of a call.
    pub async fn waits_for(&self, owner: &Owner, call: &str) -> bool {
        let waiting = self.parts.sessions.waiting_turn(owner, call);
        waiting.await.is_some()
    }

    /// Begins a turn. Dropping the run cancels it.
    ///
    /// # Errors
    /// When the session is busy or cannot be read.
    pub async fn run(&self, request: TurnRequest) -> Result<Run, AgentError> {
        Run::start(self.parts.clone(), request).await
    }
}

/// Runs work that may take long without blocking the other requests of the same worker.
fn block_in_place_if<T>(long: bool, work: impl FnOnce() -> T) -> T {
    let workers = tokio::runtime::Handle::current().runtime_flavor();
    match workers {
        RuntimeFlavor::MultiThread if long => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Now, in seconds since 1970.
pub(crate) fn unix_seconds() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
