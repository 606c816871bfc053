//! Upstreams: the trait, its requests and responses, its errors.
//!
//! Everything that is specific to one upstream is here: encoding, quirks, time-outs. This module does not depend on the
//! loop, on sessions or on clients.

pub mod assemble;
pub(crate) mod decode;
pub mod fail_over;
pub mod headers;
pub(crate) mod http;
pub mod learned;
pub mod memory;
pub mod messages;
pub mod models;
pub mod probe;
mod recognise;
mod refusal;
mod reply;
pub mod retry;
mod route;
pub mod router;
pub mod settings;
mod state;
#[cfg(test)]
mod testing;
pub(crate) mod text_calls;
pub(crate) mod think;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use self::assemble::IncompleteReply;
use blobs::segments::{SegmentedText, SegmentedWriter};
use protocol::ids::WorkspaceId;
use protocol::openai::event::ModelEvent;

/// One upstream.
///
/// Implemented by [`http::HttpUpstream`]; called by the loop's driver and by the pass-through route. Dropping a
/// returned future or stream cancels the exchange.
pub trait Upstream: Send + Sync + std::fmt::Debug {
    /// The configured name, for logs and metrics.
    fn name(&self) -> &str;

    /// What the server is, if it is known.
    fn kind(&self) -> Option<settings::ServerKind> {
        None
    }

    /// The provider of its models, as traces name it: by default the provider whose API the server has.
    fn provider(&self) -> &'static str {
        self.kind().map_or("openai", settings::ServerKind::provider)
    }

    /// Records what the server is, unless that is known.
    fn recognise(&self, kind: settings::ServerKind) {
        let _not_noted = kind;
    }

    /// The base URL, for logs; it holds no credentials.
    fn address(&self) -> &str {
        ""
    }

    /// The origin of the key that it is sent.
    fn key_source(&self) -> &settings::KeySource {
        &settings::KeySource::None
    }

    /// The known deviations of this upstream.
    fn quirks(&self) -> &settings::Quirks;

    /// The upstream's name of the model that clients call `model`.
    fn model_name<'a>(&'a self, model: &'a str) -> &'a str;

    /// Calls the model. Resolves when the upstream has responded with a success status.
    ///
    /// The stream yields events up to a [`ModelEvent::Finish`] and those that follow it, such as the usage. If the response
    /// breaks off before the finish, the stream yields one error and ends.
    fn stream<'a>(
        &'a self,
        call: &'a ModelCall,
    ) -> BoxFuture<'a, Result<ModelStream, UpstreamError>>;

    /// The tokens that a call sends, as this upstream counts them. `None` if it does not count, or fails.
    fn count_tokens<'a>(&'a self, call: &'a ModelCall) -> BoxFuture<'a, Option<u64>> {
        let _not_counted = call;
        Box::pin(std::future::ready(None))
    }

    /// Forwards a request unchanged and returns the response unchanged, whatever its status.
    fn forward(
        &self,
        request: ForwardRequest,
    ) -> BoxFuture<'_, Result<ForwardResponse, UpstreamError>>;
}

/// A model's response while it arrives.
pub struct ModelStream {
    /// Response headers for the client: `x-ratelimit-*`, `x-request-id` and `request-id`.
    pub headers: HeaderMap,
    /// The id that the upstream gives its answer.
    pub answer_id: AnswerId,
    /// The events.
    pub events: BoxStream<'static, Result<ModelEvent, UpstreamError>>,
}

/// The id of a model's answer, once it has come; clones are of the same answer.
#[derive(Debug, Clone, Default)]
pub struct AnswerId(Arc<OnceLock<String>>);

/// One model call, before it is encoded for an upstream.
///
/// The request body is assembled from these texts. Texts that grow with the conversation are shared and not copied.
#[derive(Debug, Clone)]
pub struct ModelCall {
    /// The model's name as the client gave it; an upstream may map it.
    pub model: String,
    /// The members of the request object on which loopwright does not act, `"a":1,"b":2`; may be empty.
    pub fields: Arc<str>,
    /// The `tools` array as JSON text, the same bytes in every round; absent when no tool is offered.
    pub tools: Option<Arc<str>>,
    /// The client's `stream_options` as JSON text, if it gave any.
    pub stream_options: Option<Arc<str>>,
    /// The `tool_choice` value as JSON text, if it is to be sent.
    pub tool_choice: Option<Arc<str>>,
    /// Most tokens that the model may write, if that is limited apart from `fields`.
    pub max_output_tokens: Option<u64>,
    /// The messages.
    pub transcript: Transcript,
    /// Headers of the client's request for the upstream.
    pub headers: Arc<HeaderMap>,
    /// Whether the upstream may be asked for a stream.
    pub streams: bool,
    /// Whether it may be sent `stream_options`.
    pub sends_stream_options: bool,
    /// The session's value in the affinity header of an upstream. It does not reveal the caller's id.
    pub session: WorkspaceId,
}

/// The parts that all model calls of a turn have in common, besides messages and tools, as JSON for the upstream.
#[derive(Debug, Clone, Default)]
pub struct CallTemplate {
    /// The members of the request object on which loopwright does not act, `"a":1,"b":2`; may be empty.
    pub fields: Arc<str>,
    /// The members among `fields` that a call without tools may have.
    pub fields_without_tools: Arc<str>,
    /// The client's `stream_options` as JSON text, if it gave any.
    pub stream_options: Option<Arc<str>>,
    /// `tool_choice` of the first round as JSON text.
    pub first_choice: Option<Arc<str>>,
    /// `tool_choice` of the rounds after it.
    pub later_choice: Option<Arc<str>>,
}

/// The messages of a model call as JSON text in segments that include the commas.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    text: SegmentedText,
}

/// A forwarded request.
#[derive(Debug)]
pub struct ForwardRequest {
    /// The method.
    pub method: Method,
    /// Path below the base URL and query, such as `/embeddings?x=1`.
    pub path_and_query: String,
    /// The headers. Those about the connection are not sent.
    pub headers: HeaderMap,
    /// The body.
    pub body: ForwardBody,
}

/// The body of a forwarded request.
pub enum ForwardBody {
    /// In memory; can be sent several times.
    Full(Bytes),
    /// Streamed; can be sent only once.
    Stream {
        /// The chunks.
        stream: BoxStream<'static, Result<Bytes, std::io::Error>>,
        /// The length, if the client sent it.
        length: Option<u64>,
    },
}

/// The response to a forwarded request.
pub struct ForwardResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers, without hop-by-hop ones.
    pub headers: HeaderMap,
    /// The body, as it arrives.
    pub body: BoxStream<'static, Result<Bytes, UpstreamError>>,
}

/// Why an upstream gave no complete response.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The connection could not be made; nothing was sent.
    #[error("could not connect to upstream {upstream}")]
    Connect {
        /// The upstream's configured name.
        upstream: Arc<str>,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The upstream sent nothing within its time-out.
    #[error("upstream {upstream} sent nothing for {limit:?} ({phase})")]
    Timeout {
        /// The upstream's configured name.
        upstream: Arc<str>,
        /// The phase: `connect`, `first byte` or `next chunk`.
        phase: &'static str,
        /// The time-out.
        limit: Duration,
    },
    /// The upstream responded with an error status.
    #[error("upstream {upstream} answered with status {status}")]
    Status {
        /// The upstream's configured name.
        upstream: Arc<str>,
        /// The status.
        status: StatusCode,
        /// The response headers, without hop-by-hop ones.
        headers: Box<HeaderMap>,
        /// The response body, cut at [`MAX_ERROR_BODY_BYTES`].
        body: Bytes,
    },
    /// The upstream reported an error within a successful stream.
    #[error("upstream {upstream} reported an error in its stream")]
    InStream {
        /// The upstream's configured name.
        upstream: Arc<str>,
        /// The value of the `error` key as JSON text.
        error: Box<str>,
    },
    /// The connection broke, or the stream ended before the model had finished.
    #[error("the response of upstream {upstream} broke off: {reason}")]
    Broken {
        /// The upstream's configured name.
        upstream: Arc<str>,
        /// The cause.
        reason: String,
    },
    /// The response is not a chat completion.
    #[error("the response of upstream {upstream} is not a chat completion: {reason}")]
    Malformed {
        /// The upstream's configured name.
        upstream: Arc<str>,
        /// The cause; never contains content.
        reason: String,
        /// A retry of the same upstream may succeed.
        retryable: bool,
    },
    /// The upstream ended the response, but not as a complete one.
    #[error("the response of upstream {upstream} is not complete: {reason}")]
    Incomplete {
        /// The upstream's configured name.
        upstream: Arc<str>,
        /// The cause, for the client.
        reason: IncompleteReply,
    },
    /// The request body that the client streams broke off.
    #[error("the request body broke off")]
    RequestBody,
}

impl UpstreamError {
    /// The class of the error, for traces: the status of an answer, or a word.
    pub fn class(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Connect { .. } => "connection",
            Self::Timeout { .. } => "timeout",
            Self::Status { status, .. } => return status.as_u16().to_string().into(),
            Self::InStream { .. } => "error_in_stream",
            Self::Broken { .. } => "broken",
            Self::Malformed { .. } => "malformed",
            Self::Incomplete { .. } => "incomplete",
            Self::RequestBody => "request_body",
        })
    }
}

impl AnswerId {
    /// The id, if it has come.
    pub fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Takes the id of the first chunk that has one.
    fn note(&self, id: impl FnOnce() -> Option<String>) {
        if self.0.get().is_none()
            && let Some(id) = id()
        {
            let _only_the_first_counts = self.0.set(id);
        }
    }
}

/// An error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Path of the list of models below the base URL.
const MODELS_PATH: &str = "/models";
/// Longest wait for the list of models of one upstream, which is left out then, and for the body of an error response,
/// of which the rest is left out then.
const SHORT_WAIT: Duration = Duration::from_secs(5);
/// Most bytes of an error response's body that are read; the rest is left out.
pub const MAX_ERROR_BODY_BYTES: usize = 256 * 1024;

impl CallTemplate {
    /// Whether a call is sent a `tool_choice` that forces the model to call a tool. Only the first round has such a one.
    pub fn forces(&self, call: &ModelCall) -> bool {
        let choice = call.tools.as_ref().and(call.tool_choice.as_ref());
        choice.is_some()
            && choice == self.first_choice.as_ref()
            && choice != self.later_choice.as_ref()
    }
}

impl Transcript {
    /// Appends messages. Short texts are joined; long ones are shared.
    pub fn push(&mut self, messages: impl IntoIterator<Item = SegmentedText>) {
        let mut is_first = self.text.is_empty();
        let mut writer = SegmentedWriter::resume(std::mem::take(&mut self.text));
        for message in messages {
            if !std::mem::replace(&mut is_first, false) {
                writer.text(",");
            }
            writer.push_segmented(message);
        }
        self.text = writer.finish();
    }

    /// The content of a JSON array.
    pub fn text(&self) -> &SegmentedText {
        &self.text
    }
}

impl std::fmt::Debug for ModelStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ModelStream")
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ForwardBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(bytes) => formatter.debug_tuple("Full").field(&bytes.len()).finish(),
            Self::Stream { length, .. } => formatter
                .debug_struct("Stream")
                .field("length", length)
                .finish_non_exhaustive(),
        }
    }
}

impl std::fmt::Debug for ForwardResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ForwardResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
