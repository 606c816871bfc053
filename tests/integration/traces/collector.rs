//! An OTLP/HTTP collector that keeps what it receives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Wrapped, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span as WireSpan, Status};
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};

use crate::support::app::{Builder, TestApp};
use crate::support::eventually;
use crate::support::server::{Arrived, Handler, HttpReply, Outgoing, Part, Server};

/// A collector.
pub(crate) struct Collector {
    server: Server,
    seen: Arc<Mutex<Vec<Export>>>,
}

/// A request of an exporter.
#[derive(Debug, Clone)]
pub(crate) struct Export {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
    pub(crate) resource: BTreeMap<String, Value>,
    pub(crate) spans: Vec<Span>,
}

/// A span as a collector gets it.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) attributes: BTreeMap<String, Value>,
    pub(crate) failed: bool,
    /// The trace and the span of each link.
    pub(crate) links: Vec<(String, String)>,
}

/// How a collector answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Takes,
    Fails,
    Hangs,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::with(Manner::Takes).await
    }

    /// One where another was.
    pub(super) async fn at(url: &str) -> Self {
        let addr = url.trim_start_matches("http://").parse().unwrap();
        Self::started(addr, Manner::Takes).await
    }

    pub(super) async fn with(manner: Manner) -> Self {
        Self::started(([127, 0, 0, 1], 0).into(), manner).await
    }

    async fn started(addr: SocketAddr, manner: Manner) -> Self {
        let seen: Arc<Mutex<Vec<Export>>> = Arc::default();
        let noted = seen.clone();
        let handler: Handler = Arc::new(move |arrived| {
            let noted = noted.clone();
            Box::pin(async move { answer(arrived, &noted, manner).await })
        });
        Self {
            server: Server::start_at(addr, handler).await,
            seen,
        }
    }

    /// Its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// The line of the settings that names it.
    pub(crate) fn toml(&self) -> String {
        format!("otlp_endpoint = \"{}\"\n", self.url())
    }

    /// A server whose spans come here soon.
    pub(super) fn app(&self) -> Builder {
        soon(TestApp::builder()).toml(&self.toml())
    }

    pub(crate) fn exports(&self) -> Vec<Export> {
        self.seen.lock().clone()
    }

    /// All spans, once there are so many.
    pub(crate) async fn spans(&self, count: usize) -> Vec<Span> {
        let spans = || {
            let exports = self.exports().into_iter();
            exports.flat_map(|export| export.spans).collect::<Vec<_>>()
        };
        let found = eventually("spans", || async {
            let spans = spans();
            (spans.len() >= count).then_some(spans)
        });
        let found = found.await;
        assert_eq!(found.len(), count, "{:#?}", names(&found));
        found
    }

    /// Everything that was received, as text.
    pub(super) fn text(&self) -> String {
        let exports = self.exports();
        let texts = exports.iter().map(|export| {
            let bytes = String::from_utf8_lossy(&export.bytes);
            format!("{:?}\n{bytes}\n", export.headers)
        });
        texts.collect()
    }
}

/// With short pauses between exports.
pub(super) fn soon(builder: Builder) -> Builder {
    builder.env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

pub(super) fn names(spans: &[Span]) -> Vec<&str> {
    let mut names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    names
}

/// The only span with this name.
pub(crate) fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let first = found.next();
    let first = first.unwrap_or_else(|| panic!("no `{name}` among {:?}", names(spans)));
    assert!(found.next().is_none(), "two of `{name}`");
    first
}

impl Span {
    /// The attribute with this key; null if there is none.
    pub(crate) fn get(&self, key: &str) -> Value {
        self.attributes.get(key).cloned().unwrap_or_default()
    }

    /// The `traceparent` that names it.
    pub(crate) fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }

    pub(super) fn assert_has<const N: usize>(&self, expected: [(&str, Value); N]) {
        for (key, value) in expected {
            assert_eq!(self.get(key), value, "{key} of {self:#?}");
        }
    }
}

async fn answer(arrived: Arrived, seen: &Mutex<Vec<Export>>, manner: Manner) -> Outgoing {
    let (head, body) = arrived.request.into_parts();
    let Ok(body) = body.collect().await else {
        return Outgoing::Scripted(HttpReply::default());
    };
    let bytes = body.to_bytes();
    let media = head.headers["content-type"].to_str().unwrap().to_owned();
    let request: ExportTraceServiceRequest = match media.as_str() {
        "application/x-protobuf" => Message::decode(bytes.clone()).unwrap(),
        "application/json" => serde_json::from_slice(&bytes).unwrap(),
        other => panic!("{other}"),
    };
    let mut export = Export {
        path: head.uri.path().to_owned(),
        headers: head.headers,
        bytes,
        resource: BTreeMap::new(),
        spans: Vec::new(),
    };
    for of_resource in request.resource_spans {
        let resource = of_resource.resource.unwrap();
        export.resource.extend(map(resource.attributes));
        let scopes = of_resource.scope_spans.into_iter();
        let spans = scopes.flat_map(|scope| scope.spans);
        export.spans.extend(spans.map(span));
    }
    seen.lock().push(export);
    Outgoing::Scripted(match (manner, media.as_str()) {
        (Manner::Takes, "application/json") => HttpReply::whole(200, &media, "{}"),
        (Manner::Takes, _) => {
            let taken = ExportTraceServiceResponse::default().encode_to_vec();
            HttpReply::whole(200, &media, taken)
        }
        (Manner::Fails, _) => HttpReply::whole(500, "text/plain", "out of disk"),
        (Manner::Hangs, _) => HttpReply {
            before_head: vec![Part::Hang],
            ..HttpReply::default()
        },
    })
}

fn span(span: WireSpan) -> Span {
    let status = span.status.as_ref().map(Status::code);
    let links = span.links.iter();
    let attributes = span.attributes.len();
    let found = Span {
        kind: span.kind(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        failed: status == Some(StatusCode::Error),
        links: links
            .map(|link| (hex(&link.trace_id), hex(&link.span_id)))
            .collect(),
        name: span.name,
        attributes: map(span.attributes),
    };
    assert_eq!(found.attributes.len(), attributes, "twice: {found:#?}");
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    found
}

fn map(attributes: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let attributes = attributes.into_iter();
    attributes.map(|it| (it.key, json_of(it.value))).collect()
}

fn json_of(value: Option<Wrapped>) -> Value {
    match value.and_then(|value| value.value) {
        Some(AnyValue::StringValue(text)) => json!(text),
        Some(AnyValue::IntValue(number)) => json!(number),
        Some(AnyValue::BoolValue(flag)) => json!(flag),
        Some(AnyValue::DoubleValue(number)) => json!(number),
        Some(AnyValue::ArrayValue(list)) => {
            let values = list.values.into_iter();
            values.map(|value| json_of(Some(value))).collect()
        }
        _ => Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
