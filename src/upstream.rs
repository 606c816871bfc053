//! Model servers: the seam, what goes through it and what can go wrong.
//!
//! Owns everything that is particular to one server: its dialect, its quirks, its time-outs. Knows nothing of the
//! loop, of sessions or of who asked.

pub mod assemble;
pub mod decode;
pub mod fail_over;
pub mod headers;
pub mod http;
pub mod models;
pub mod retry;
pub mod router;
pub mod settings;
#[cfg(test)]
mod testing;
pub mod think;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::openai::event::ModelEvent;

/// One model server.
///
/// Implemented by [`http::HttpUpstream`]; called by the loop's driver and by the pass-through route. Dropping a
/// returned future or stream ends the exchange and closes what it held open.
pub trait Upstream: Send + Sync + std::fmt::Debug {
    /// The configured name, for logs and metrics.
    fn name(&self) -> &str;

    /// What is particular to this server.
    fn quirks(&self) -> &settings::Quirks;

    /// What this server calls the model that clients call `model`.
    fn model_name<'a>(&'a self, model: &'a str) -> &'a str;

    /// Calls the model; resolves once the server has answered with a success status.
    ///
    /// The stream yields events until a [`ModelEvent::Finish`] (and what follows it, such as usage) and then ends; it
    /// yields an error when the answer breaks off before the model had finished. The first error ends it.
    fn stream<'a>(
        &'a self,
        call: &'a ModelCall,
    ) -> BoxFuture<'a, Result<ModelStream, UpstreamError>>;

    /// Sends a request on as it is and hands the answer back as it is, whatever its status.
    fn forward(
        &self,
        request: ForwardRequest,
    ) -> BoxFuture<'_, Result<ForwardResponse, UpstreamError>>;
}

/// A model's answer while it arrives.
pub struct ModelStream {
    /// Headers of the answer, for the client (`x-ratelimit-*`).
    pub headers: HeaderMap,
    /// The events.
    pub events: BoxStream<'static, Result<ModelEvent, UpstreamError>>,
}

/// One call of a model, before a server's dialect is applied.
///
/// The request's body is joined from these texts; the parts that grow with the conversation are shared, never copied.
#[derive(Debug, Clone)]
pub struct ModelCall {
    /// The model's name as the client gave it; a server may map it.
    pub model: String,
    /// The members of the request object that loopwright does not act on, `"a":1,"b":2`; may be empty.
    pub fields: Arc<str>,
    /// The `tools` array as JSON text, the same bytes in every round; absent when no tool is offered.
    pub tools: Option<Arc<str>>,
    /// The client's `stream_options` as JSON text, if it gave any.
    pub stream_options: Option<Arc<str>>,
    /// The `tool_choice` value as JSON text, if it is to be sent.
    pub tool_choice: Option<Arc<str>>,
    /// The messages.
    pub transcript: Transcript,
    /// Headers of the client's request that the server should see.
    pub headers: Arc<HeaderMap>,
}

/// What the model calls of a turn have in common besides their messages and tools, in the form in which servers take it.
#[derive(Debug, Clone, Default)]
pub struct CallTemplate {
    /// The members of the request object that loopwright does not act on, `"a":1,"b":2`; may be empty.
    pub fields: Arc<str>,
    /// Those of them that a call without tools may have.
    pub fields_without_tools: Arc<str>,
    /// The client's `stream_options` as JSON text, if it gave any.
    pub stream_options: Option<Arc<str>>,
    /// `tool_choice` of the first round as JSON text.
    pub first_choice: Option<Arc<str>>,
    /// `tool_choice` of the rounds after it.
    pub later_choice: Option<Arc<str>>,
}

/// The messages of a model call as JSON texts, comma-joined in segments; a round appends one segment.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    segments: Vec<Bytes>,
}

/// A request that passes through.
#[derive(Debug)]
pub struct ForwardRequest {
    /// The method.
    pub method: Method,
    /// Path below the base URL and query, such as `/embeddings?x=1`.
    pub path_and_query: String,
    /// The headers, hop-by-hop ones already taken out.
    pub headers: HeaderMap,
    /// The body.
    pub body: ForwardBody,
}

/// The body of a request that passes through.
pub enum ForwardBody {
    /// Held in memory, so that it can be sent again.
    Full(Bytes),
    /// Streamed; can be sent once only.
    Stream {
        /// The pieces.
        stream: BoxStream<'static, Result<Bytes, std::io::Error>>,
        /// The length, if the client said it.
        length: Option<u64>,
    },
}

/// The answer to a request that passed through.
pub struct ForwardResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers, hop-by-hop ones taken out.
    pub headers: HeaderMap,
    /// The body, as it arrives.
    pub body: BoxStream<'static, Result<Bytes, UpstreamError>>,
}

/// Why a model server gave no (whole) answer.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The connection could not be made; nothing was sent.
    #[error("could not connect to upstream {upstream}")]
    Connect {
        /// The server's configured name.
        upstream: Arc<str>,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The server was silent past its time-out.
    #[error("upstream {upstream} was silent for {limit:?} ({phase})")]
    Timeout {
        /// The server's configured name.
        upstream: Arc<str>,
        /// What was waited for: `connect`, `first byte` or `next chunk`.
        phase: &'static str,
        /// The time-out.
        limit: Duration,
    },
    /// The server answered with an error status.
    #[error("upstream {upstream} answered {status}")]
    Status {
        /// The server's configured name.
        upstream: Arc<str>,
        /// The status.
        status: StatusCode,
        /// The answer's headers, hop-by-hop ones taken out.
        headers: Box<HeaderMap>,
        /// The answer's body, cut at [`MAX_ERROR_BODY_BYTES`].
        body: Bytes,
    },
    /// The server reported an error inside a stream that had begun well.
    #[error("upstream {upstream} reported an error in its stream")]
    InStream {
        /// The server's configured name.
        upstream: Arc<str>,
        /// The value of the `error` key as JSON text.
        error: Box<str>,
    },
    /// The connection broke, or the stream ended before the model had finished.
    #[error("upstream {upstream} broke off its answer: {reason}")]
    Broken {
        /// The server's configured name.
        upstream: Arc<str>,
        /// What was seen.
        reason: String,
    },
    /// The answer is not what a chat server sends.
    #[error("upstream {upstream} sent what is no chat completion: {reason}")]
    Malformed {
        /// The server's configured name.
        upstream: Arc<str>,
        /// What was seen; never holds content.
        reason: String,
        /// The same server may do better when it is asked again.
        again: bool,
    },
    /// A request body that the client streamed broke off.
    #[error("the request body broke off")]
    RequestBody,
}

/// A cause of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Most of an error answer's body that is kept, in bytes.
pub const MAX_ERROR_BODY_BYTES: usize = 256 * 1024;

impl Transcript {
    /// Appends messages as one segment.
    pub fn push<'a>(&mut self, messages: impl IntoIterator<Item = &'a Bytes>) {
        let mut segment = Vec::new();
        for message in messages {
            if !(self.segments.is_empty() && segment.is_empty()) {
                segment.push(b',');
            }
            segment.extend_from_slice(message);
        }
        if !segment.is_empty() {
            self.segments.push(segment.into());
        }
    }

    /// The segments; concatenated they are the inside of a JSON array.
    pub fn segments(&self) -> &[Bytes] {
        &self.segments
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
