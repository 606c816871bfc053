//! Spans by the SDK of OpenTelemetry: sampling, the bounded queue, and batches that a thread of the SDK sends with the HTTP
//! client of this program.

mod client;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Array, Context, InstrumentationScope, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{
    Protocol, SpanExporter as OtlpExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span as SdkSpan,
    SpanData, SpanExporter, SpanProcessor,
};
use parking_lot::Mutex;

use self::client::CollectorClient;
pub(super) use self::client::check;
use super::settings::{Sampling, Settings, SpanEncoding};
use super::{Kind, LossCounter, Start, TRACEPARENT, TRACESTATE, TracesError, Value};

/// Most spans that wait to be sent; others are lost, and counted.
/// Tried by `traces::outages::spans_beyond_the_queue_of_a_silent_collector_are_counted`.
const MAX_QUEUED_SPANS: usize = 2048;

/// What sends spans.
#[derive(Debug)]
pub(super) struct Exporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// A span that has started. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct OpenSpan(SdkSpan);

/// The state that the queue and its sender share.
#[derive(Debug)]
struct ExportState {
    /// Spans that wait.
    queued: AtomicUsize,
    /// The last batch was lost.
    is_out: AtomicBool,
    /// Why the last request had no answer. The exporter itself does not report it.
    cause: Mutex<Option<String>>,
    lost: LossCounter,
}

/// The queue of the SDK. It does not report the spans that it drops, so they are counted here.
#[derive(Debug)]
struct Queue {
    batches: BatchSpanProcessor,
    export: Arc<ExportState>,
}

/// Sends batches, and notes how that goes.
#[derive(Debug)]
struct Sender {
    otlp: OtlpExporter,
    export: Arc<ExportState>,
}

impl Exporter {
    pub(super) fn start(settings: &Settings, lost: LossCounter) -> Result<Self, TracesError> {
        let headers = settings.headers.iter().filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        });
        let export = Arc::new(ExportState {
            queued: AtomicUsize::new(0),
            is_out: AtomicBool::new(false),
            cause: Mutex::default(),
            lost,
        });
        let otlp = OtlpExporter::builder()
            .with_http()
            .with_http_client(CollectorClient::new(settings, export.clone())?)
            .with_endpoint(settings.endpoint.as_str())
            .with_protocol(match settings.encoding {
                SpanEncoding::Protobuf => Protocol::HttpBinary,
                SpanEncoding::Json => Protocol::HttpJson,
            })
            .with_timeout(settings.timeout)
            .with_headers(headers.collect::<HashMap<_, _>>())
            .build();
        let sender = Sender {
            otlp: otlp.map_err(|error| TracesError::Exporter(error.into()))?,
            export: export.clone(),
        };
        let config = BatchConfigBuilder::default().with_max_queue_size(MAX_QUEUED_SPANS);
        let batches = BatchSpanProcessor::builder(sender).with_batch_config(config.build());
        let attributes = settings.resource.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let resource = Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_attributes(attributes);
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler(settings.sampling))
            .with_resource(resource.build())
            .with_span_processor(Queue {
                batches: batches.build(),
                export,
            })
            .build();
        let scope = InstrumentationScope::builder("loopwright");
        let scope = scope.with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Self {
            tracer: provider.tracer_with_scope(scope),
            provider,
        })
    }

    pub(super) fn begin(&self, start: Start<'_>) -> OpenSpan {
        let attributes = start.attributes.into_iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, sdk_value(value)));
        let mut builder = (self.tracer.span_builder(start.name))
            .with_kind(match start.kind {
                Kind::Server => SpanKind::Server,
                Kind::Client => SpanKind::Client,
                Kind::Internal => SpanKind::Internal,
            })
            .with_attributes(attributes);
        let parent = parent(start.parent, start.kind != Kind::Server);
        let context = match parent {
            Some(first) if start.is_linked => {
                builder = builder.with_links(vec![Link::with_context(first)]);
                Context::new()
            }
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        OpenSpan(self.tracer.build_with_context(builder, &context))
    }

    /// Exports the queued spans; returns whether that was done in time.
    pub(super) fn close(&self, limit: Duration) -> bool {
        self.provider.shutdown_with_timeout(limit).is_ok()
    }
}

impl OpenSpan {
    pub(super) fn is_recorded(&self) -> bool {
        self.0.is_recording()
    }

    pub(super) fn put(&self, headers: &mut HeaderMap) {
        let context = self.0.span_context();
        // No span begins after the exporter has ended.
        if !context.is_valid() {
            return;
        }
        let (trace, span) = (context.trace_id(), context.span_id());
        let flags = u8::from(context.is_sampled());
        if let Ok(parent) = HeaderValue::try_from(format!("00-{trace}-{span}-{flags:02x}")) {
            headers.insert(TRACEPARENT, parent);
        }
        let state = context.trace_state().header();
        if !state.is_empty()
            && let Ok(state) = HeaderValue::try_from(state)
        {
            headers.insert(TRACESTATE, state);
        }
    }

    pub(super) fn set(&mut self, key: &'static str, value: Value) {
        self.0.set_attribute(KeyValue::new(key, sdk_value(value)));
    }

    pub(super) fn fail(&mut self, class: Cow<'static, str>) {
        self.0.set_attribute(KeyValue::new("error.type", class));
        self.0.set_status(Status::error(""));
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut SdkSpan, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        let queued = &self.export.queued;
        if queued.fetch_add(1, Ordering::Relaxed) < MAX_QUEUED_SPANS {
            self.batches.on_end(span);
        } else {
            queued.fetch_sub(1, Ordering::Relaxed);
            (self.export.lost.0)(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

impl SpanExporter for Sender {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (count, export) = (batch.len(), &self.export);
        export.queued.fetch_sub(count, Ordering::Relaxed);
        let sent = self.otlp.export(batch).await;
        if sent.is_err() {
            (export.lost.0)(u64::try_from(count).unwrap_or(u64::MAX));
        }
        let was_out = export.is_out.swap(sent.is_err(), Ordering::Relaxed);
        match &sent {
            Err(error) if !was_out => {
                let cause = export.cause.lock().take();
                tracing::warn!(%error, cause, "spans cannot be sent to `otlp_endpoint` and are lost until it takes them");
            }
            Ok(()) if was_out => tracing::info!("spans are sent again"),
            Ok(()) | Err(_) => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.otlp.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

/// The span that these headers name.
fn parent(headers: &HeaderMap, is_local: bool) -> Option<SpanContext> {
    let named = TraceContextPropagator::new()
        .extract_with_context(&Context::new(), &HeaderExtractor(headers));
    let span = named.span();
    let context = span.span_context();
    context.is_valid().then(|| {
        SpanContext::new(
            context.trace_id(),
            context.span_id(),
            context.trace_flags(),
            !is_local,
            context.trace_state().clone(),
        )
    })
}

fn sampler(sampling: Sampling) -> Sampler {
    let own = match sampling.share {
        share if share >= 1.0 => Sampler::AlwaysOn,
        share if share <= 0.0 => Sampler::AlwaysOff,
        share => Sampler::TraceIdRatioBased(share),
    };
    match sampling.heeds_parent {
        true => Sampler::ParentBased(Box::new(own)),
        false => own,
    }
}

fn sdk_value(value: Value) -> opentelemetry::Value {
    match value {
        Value::Text(text) => text.into(),
        Value::Number(number) => number.into(),
        Value::Words(words) => {
            let words = words.into_iter().map(Into::into).collect();
            opentelemetry::Value::Array(Array::String(words))
        }
    }
}
