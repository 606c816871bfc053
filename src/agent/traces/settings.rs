//! Settings of traces.

use std::time::Duration;

use http::HeaderMap;
use url::Url;

pub(crate) use net::CaCertificates;

/// The collector of spans, and which spans it gets.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The URL that spans are posted to.
    pub endpoint: Url,
    /// The form in which they are sent.
    pub encoding: SpanEncoding,
    /// Headers of every request to the collector.
    pub headers: HeaderMap,
    /// Longest time of a request to the collector.
    pub timeout: Duration,
    /// Attributes of all spans: the service, and what the operator adds.
    pub resource: Vec<(String, String)>,
    /// Which traces are recorded.
    pub sampling: Sampling,
    /// Whether spans have messages, arguments and results.
    pub contents: bool,
    /// Certificate authorities that are trusted in addition to the system's.
    pub certificates: CaCertificates,
}

/// The form in which spans are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpanEncoding {
    /// Protocol Buffers.
    #[default]
    Protobuf,
    /// JSON.
    Json,
}

/// Which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Share of the traces that begin here, from 0 to 1, that is exported.
    pub share: f64,
    /// For other traces the client's `traceparent` decides.
    pub heeds_parent: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            share: 1.0,
            heeds_parent: true,
        }
    }
}
