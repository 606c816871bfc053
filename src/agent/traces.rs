//! Traces: spans of requests, turns, model calls and tool calls for an OpenTelemetry collector.
//!
//! Owns the names of spans and attributes, which follow the semantic conventions for HTTP and generative AI, and the
//! transport to the collector. The code that starts a span says what it is about. A span travels as the headers
//! `traceparent` and `tracestate`: its starter reads the headers of the parent, and passes its own to what it calls.
//! Without a collector no span starts, and the client's headers are passed on unchanged.

mod attributes;
#[cfg_attr(not(feature = "otlp"), path = "traces/no_otlp.rs")]
mod otlp;
pub mod settings;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::HeaderName;
use tokio::task::spawn_blocking;

pub use self::attributes::TracedRequest;
pub(crate) use self::attributes::{TracedCall, TracedReply, TracedTurn};
use self::otlp::{Exporter, OpenSpan};
use self::settings::Settings;

/// The header that names a span as the parent of others.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with what tracing systems add to that.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The error of a span that ended before what it is about.
const CANCELLED: &str = "cancelled";

/// Starts spans; cheap to clone. Without a collector it starts none.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Tracing>>);

#[derive(Debug)]
struct Tracing {
    exporter: Exporter,
    contents: bool,
}

/// A span that has started. One that is dropped before its end was cancelled.
#[derive(Debug)]
pub struct Span {
    open: Option<OpenSpan>,
    contents: bool,
}

/// Counts spans that are lost.
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "without the feature no span is started")
)]
#[derive(Clone)]
pub struct LossCounter(Arc<dyn Fn(u64) + Send + Sync>);

/// The kinds of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Server,
    Client,
    Internal,
}

/// How a span begins.
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "without the feature no span is started")
)]
#[derive(Debug)]
struct Start<'a> {
    kind: Kind,
    name: String,
    attributes: Vec<(&'static str, Value)>,
    /// The headers that name its parent; without them it begins a trace.
    parent: &'a HeaderMap,
    /// The parent is only linked to: the span begins a trace of its own.
    is_linked: bool,
}

/// The value of an attribute.
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "without the feature no span is started")
)]
#[derive(Debug)]
enum Value {
    Text(String),
    Number(i64),
    Words(Vec<String>),
}

/// Why spans cannot be sent. The texts contain no header.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The HTTP client cannot be created, most likely because there are no root certificates.
    #[error("the HTTP client for traces cannot be created")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The exporter refuses its settings.
    #[error("traces cannot be sent to `otlp_endpoint`")]
    Exporter(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The program has no exporter.
    #[error("traces are configured, and this program was built without the feature `otlp`")]
    Feature,
}

impl Traces {
    /// Begins to send spans to the collector of the settings, if there is one. No connection is opened. Has to be called
    /// within a runtime.
    ///
    /// # Errors
    /// When the exporter cannot be made with the settings.
    pub fn start(settings: Option<&Settings>, lost: LossCounter) -> Result<Self, TracesError> {
        let Some(settings) = settings else {
            return Ok(Self::default());
        };
        tracing::info!(endpoint = %settings.endpoint, "traces are sent");
        Ok(Self(Some(Arc::new(Tracing {
            exporter: Exporter::start(settings, lost)?,
            contents: settings.contents,
        }))))
    }

    /// Asks the collector of the settings to take no spans.
    ///
    /// # Errors
    /// When it cannot be reached or refuses.
    pub async fn try_collector(settings: &Settings) -> Result<(), String> {
        otlp::check(settings).await
    }

    /// Whether spans are started.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Exports the remaining spans within `limit`. No span should end after it.
    pub async fn close(&self, limit: Duration) {
        let Some(tracing) = self.0.clone() else {
            return;
        };
        let closing = spawn_blocking(move || tracing.exporter.close(limit));
        if !closing.await.unwrap_or(false) {
            tracing::warn!("the last spans were not sent in time");
        }
    }

    fn begin<'a>(&self, start: impl FnOnce() -> Start<'a>) -> Option<Span> {
        let tracing = self.0.as_ref()?;
        let open = tracing.exporter.begin(start());
        Some(Span {
            contents: tracing.contents && open.is_recorded(),
            open: Some(open),
        })
    }
}

impl Span {
    /// Names this span in the headers of a request, as the parent of what the request leads to.
    pub fn put(&self, headers: &mut HeaderMap) {
        if let Some(open) = &self.open {
            headers.remove(TRACESTATE);
            open.put(headers);
        }
    }

    /// The headers that name this span as a parent.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.put(&mut headers);
        headers
    }

    /// Whether the span has messages, arguments and results.
    pub(crate) fn has_contents(&self) -> bool {
        self.contents
    }

    /// Ends the span.
    pub fn end(mut self) {
        self.open = None;
    }

    /// Ends the span with an error of this class.
    pub fn fail(mut self, class: impl Into<Cow<'static, str>>) {
        self.note_failure(class.into());
        self.open = None;
    }

    fn note_failure(&mut self, class: Cow<'static, str>) {
        if let Some(open) = &mut self.open {
            open.fail(class);
        }
    }

    fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.open {
            open.set(key, value.into());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.note_failure(CANCELLED.into());
    }
}

impl LossCounter {
    /// Counts with a function.
    pub fn new(count: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(count))
    }
}

impl fmt::Debug for LossCounter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LossCounter")
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}
