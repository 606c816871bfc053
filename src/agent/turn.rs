//! The request of a turn, as a draft is admitted.

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;

use super::draft::{DraftTool, TurnDraft};
use super::event::Notice;
use super::options::Options;
use net::polling::block_in_place_if;
use protocol::ids::{Owner, RequestId};
use protocol::openai::message::Message;

// The types of the fields, so that a decoder imports only this module.
pub use super::draft::{ClientDecision, NamedFile};
pub use super::suspended_turn::{RunResumption, StoredResumption, SuspendedTurnError};
pub use crate::session::SessionMode;
pub(crate) use crate::session::WaitingTurn;
pub use policy::rules::{Effect, RuleEntry};
pub(crate) use policy::rules::{Level, LevelName, Permissions, RuleError, RuleSet};
pub use tools::mcp::ConnectedServer;
pub(crate) use tools::mcp_offer::McpServerRequest;
pub(crate) use tools::requested::{Availability, CodeOptions, RequestedTools};
pub use tools::requested::{CODE_INTERPRETER, Capability, ContextSize, WantedFile, WebOptions};
pub(crate) use tools::set::{Globs, ToolFilter, ToolSet};
pub use tools::web::{DomainFilter, Location};
pub(crate) use upstream::CallTemplate;
pub use upstream::router::Route;

/// The caller of a request, with facts from the request's head.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The request's id.
    pub request_id: RequestId,
    /// The name of the API key.
    pub owner: Owner,
    /// Headers that are sent to the upstream.
    pub headers: Arc<HeaderMap>,
    /// `traceparent` and `tracestate` for what the turn leads to.
    pub trace: HeaderMap,
    /// The run resumes by itself: `trace` is the trace of the request that began it.
    pub is_resumed: bool,
    /// The defaults of its key for drafts.
    pub key: KeyDefaults,
    /// What the log says of the turn.
    pub record: TurnRecord,
}

/// The defaults of an API key for the drafts of its callers.
#[derive(Debug, Clone)]
pub struct KeyDefaults {
    /// Its rules for server-side tools.
    pub permissions: Level,
}

impl Default for KeyDefaults {
    fn default() -> Self {
        Self {
            permissions: Level::silent(LevelName::Key),
        }
    }
}

/// What the log says of a turn, up to date while it runs. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct TurnRecord(Arc<Mutex<TurnFigures>>);

/// The figures of a turn for the log; those that are not known are absent.
#[derive(Debug, Clone, Default)]
pub struct TurnFigures {
    /// The upstream that answered last.
    pub upstream: Option<Arc<str>>,
    /// Tokens of the prompts of all model calls.
    pub input_tokens: Option<u64>,
    /// Tokens that the model has written.
    pub output_tokens: Option<u64>,
    /// Rounds of tools.
    pub rounds: Option<u32>,
    /// How the turn ended.
    pub stop_reason: Option<&'static str>,
}

impl TurnRecord {
    /// The figures as they are now.
    pub fn figures(&self) -> TurnFigures {
        self.0.lock().clone()
    }

    /// An upstream has answered.
    pub fn answered_by(&self, upstream: &str) {
        let mut figures = self.0.lock();
        if figures.upstream.as_deref() != Some(upstream) {
            figures.upstream = Some(upstream.into());
        }
    }

    /// Changes the figures.
    pub fn update(&self, change: impl FnOnce(&mut TurnFigures)) {
        change(&mut self.0.lock());
    }
}

/// Compiles the rules of a request.
///
/// # Errors
/// When a rule cannot be used.
pub(crate) fn compiled(rules: Vec<RuleEntry>) -> Result<Arc<RuleSet>, RuleError> {
    let long = rules.iter().any(|rule| !rule.patterns.is_empty());
    block_in_place_if(long, || RuleSet::compile(rules)).map(Arc::new)
}

/// The request of a turn.
#[derive(Debug)]
pub struct TurnRequest {
    /// The caller.
    pub caller: Caller,
    /// The model as the client named it.
    pub model: String,
    /// The end user as the client names it (`user`).
    pub user: Option<String>,
    /// The options for the loop.
    pub options: Options,
    /// What server-side tools may do.
    pub permissions: Permissions,
    /// Leading instructions of this turn alone, which are not stored.
    pub instructions: Option<String>,
    /// Calls whose results the request has without the calls. If one is not in the session, the turn fails.
    pub answered_calls: Vec<String>,
    /// Decisions about waiting calls of the session. They are stored before the turn resumes.
    pub decisions: Vec<ClientDecision>,
    /// The labels of MCP servers whose waiting calls end the turn: its answer asks the client about them.
    pub(crate) asking_servers: Vec<String>,
    /// How the run resumes by itself once all its questions are decided. Without it, only another request resumes the
    /// turn.
    pub resumption: Option<RunResumption>,
    /// The turn that waits for a result in the request, if it was looked up already.
    pub waiting: Option<WaitingTurn>,
    /// The draft is the stored draft of the suspended turn that is resumed.
    pub is_resumed: bool,
    /// The MCP servers of the suspended turn of its session.
    pub(crate) kept_servers: Option<Vec<DraftTool>>,
    /// The draft that the turn was made of, without its input. It is stored with a turn that is suspended.
    pub draft: Option<Box<TurnDraft>>,
    /// The messages.
    pub messages: Vec<Message>,
    /// The tools of this request.
    pub tools: ToolSet,
    /// Stored files for the working directory.
    pub files: Vec<NamedFile>,
    /// Paths of the files that the tools are asked to make.
    pub wanted: Vec<String>,
    /// What the model calls have in common.
    pub call: CallTemplate,
    /// The upstreams that may answer.
    pub route: Arc<Route>,
    /// Notices for the client before the first model call.
    pub notices: Vec<Notice>,
}
