//! What a turn is given, whatever the dialect of its request.

use std::sync::Arc;

use http::HeaderMap;

use super::options::Options;
use crate::ids::{Owner, RequestId, SessionId};
use crate::openai::message::Message;

// What a decoder fills in: it needs no other room for it.
pub use crate::session::SessionMode;
pub use crate::tools::requested::{
    Capability, CodeOptions, ContextSize, RequestedTools, WantedFile, WebOptions,
};
pub use crate::tools::set::{Globs, ToolFilter, ToolSet};
pub use crate::tools::web::{DomainFilter, Location};
pub use crate::upstream::CallTemplate;
pub use crate::upstream::router::Route;

/// Who asks, and what came with the request besides its body.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The request's id.
    pub request_id: RequestId,
    /// The key behind the request.
    pub owner: Owner,
    /// The session id that a header carried.
    pub session_header: Option<SessionId>,
    /// Headers that the upstream should see.
    pub headers: Arc<HeaderMap>,
    /// `traceparent` and `tracestate`, for tools.
    pub trace: HeaderMap,
}

/// A request that enters the loop.
#[derive(Debug)]
pub struct TurnRequest {
    /// Who asks.
    pub caller: Caller,
    /// The model as the client named it.
    pub model: String,
    /// The end user, in the client's words.
    pub user: Option<String>,
    /// What is asked of the loop.
    pub options: Options,
    /// Whether the client reads the answer while it grows. Where it does not, a broken model call can be made again.
    pub streamed: bool,
    /// The messages.
    pub messages: Vec<Message>,
    /// The tools of this request.
    pub tools: ToolSet,
    /// Stored files to put among the working files.
    pub files: Vec<NamedFile>,
    /// Paths of the files that the caller wants produced.
    pub wanted: Vec<String>,
    /// What the model calls have in common.
    pub call: CallTemplate,
    /// The upstreams that may answer.
    pub route: Arc<Route>,
}

/// A stored file that the request names besides its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// The field that names it, for errors.
    pub param: String,
    /// The id, unchecked.
    pub id: String,
}
