//! Counters and histograms, as `GET /metrics` shows them.
//!
//! Owns the names, labels and buckets. Label values come from the configuration or from fixed lists, never from a
//! request, so that no caller can make the page grow. Knows nothing of what is measured beyond names and durations.

mod code;
mod labels;
mod web;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ::http::StatusCode;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use code::CodeFigures;
use code::CodeMetrics;
use labels::{
    KindLabel, ModelCallLabels, RequestLabels, RouteLabel, StopLabel, ToolCallLabels,
    ToolNameLabel, UpstreamLabel,
};
pub use labels::{ModelOutcome, Route, ToolLabel};
pub use web::OutcomeFigures;
use web::WebMetrics;

/// The `content-type` of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Statuses of tool calls, so that their counters exist from the start.
const TOOL_STATUSES: [&str; 6] = [
    "ok",
    "error",
    "denied",
    "timeout",
    "cancelled",
    "suppressed",
];

/// Reasons why a turn ended, so that their counters exist from the start.
const STOP_REASONS: [&str; 11] = [
    "completed",
    "client_tools",
    "max_tool_rounds",
    "max_tool_calls",
    "max_seconds",
    "max_total_tokens",
    "repeated_calls",
    "terminated_by_tool",
    "cancelled",
    "content_filter",
    "length",
];

/// Every counter and histogram; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

/// One open stream; dropping it closes the books on it.
#[derive(Debug)]
#[must_use = "the stream counts as closed once this is dropped"]
pub struct StreamGuard(Gauge);

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histograms<RouteLabel>,
    turns: Family<StopLabel, Counter>,
    turn_rounds: Histogram,
    overhead_seconds: Histogram,
    first_token_seconds: Histogram,
    tool_calls: Family<ToolCallLabels, Counter>,
    tool_seconds: Histograms<ToolNameLabel>,
    model_calls: Family<ModelCallLabels, Counter>,
    model_seconds: Histograms<UpstreamLabel>,
    retries: Family<UpstreamLabel, Counter>,
    prompt_tokens: Counter<u64, AtomicU64>,
    completion_tokens: Counter<u64, AtomicU64>,
    open_streams: Gauge,
    store_errors: Counter,
    code: CodeMetrics,
    web: WebMetrics,
    tools: HashMap<String, Arc<String>>,
    upstreams: HashMap<String, Arc<String>>,
    dispatch: Arc<String>,
    unknown: Arc<String>,
}

impl Metrics {
    /// Makes all metrics; the configured names of tools and upstreams become label values.
    pub fn new<'a>(
        tools: impl IntoIterator<Item = &'a str>,
        upstreams: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut inner = Inner::new(names(tools), names(upstreams));
        inner.register();
        inner.create();
        Self(Arc::new(inner))
    }

    /// Counts a request that has been answered to its end.
    pub fn request_finished(&self, route: Route, status: StatusCode, duration: Duration) {
        let route = route.as_str();
        let status = labels::status_class(status);
        let labels = RequestLabels { route, status };
        self.0.requests.get_or_create(&labels).inc();
        let histogram = self.0.request_seconds.get_or_create(&RouteLabel { route });
        histogram.observe(duration.as_secs_f64());
    }

    /// Counts a turn of the loop: how many rounds it had, why it ended and how much time of it was loopwright's own.
    pub fn turn_finished(&self, rounds: u32, stop_reason: &'static str, overhead: Duration) {
        self.0.turns.get_or_create(&StopLabel { stop_reason }).inc();
        self.0.turn_rounds.observe(f64::from(rounds));
        self.0.overhead_seconds.observe(overhead.as_secs_f64());
    }

    /// Notes how long the first text of an answer took, from the request's arrival.
    pub fn first_token(&self, after: Duration) {
        self.0.first_token_seconds.observe(after.as_secs_f64());
    }

    /// Counts a tool call; `status` is the wire's word for how it ended.
    pub fn tool_finished(&self, tool: ToolLabel<'_>, status: &'static str, duration: Duration) {
        let tool = match tool {
            ToolLabel::Configured(name) => self.0.tools.get(name).unwrap_or(&self.0.unknown),
            ToolLabel::Dispatch => &self.0.dispatch,
            ToolLabel::Unknown => &self.0.unknown,
        };
        let labels = ToolCallLabels {
            tool: Arc::clone(tool),
            status,
        };
        self.0.tool_calls.get_or_create(&labels).inc();
        let name = ToolNameLabel {
            tool: Arc::clone(tool),
        };
        let histogram = self.0.tool_seconds.get_or_create(&name);
        histogram.observe(duration.as_secs_f64());
    }

    /// Counts one call of a model.
    pub fn model_call_finished(&self, upstream: &str, outcome: ModelOutcome, duration: Duration) {
        let upstream = self.upstream(upstream);
        let labels = ModelCallLabels {
            upstream: Arc::clone(&upstream),
            outcome: outcome.as_str(),
        };
        self.0.model_calls.get_or_create(&labels).inc();
        let labels = UpstreamLabel { upstream };
        let histogram = self.0.model_seconds.get_or_create(&labels);
        histogram.observe(duration.as_secs_f64());
    }

    /// Counts a call that is made again because `upstream` failed.
    pub fn upstream_retried(&self, upstream: &str) {
        let labels = UpstreamLabel {
            upstream: self.upstream(upstream),
        };
        self.0.retries.get_or_create(&labels).inc();
    }

    /// Counts tokens as a model server reported them.
    pub fn tokens(&self, prompt: u64, completion: u64) {
        self.0.prompt_tokens.inc_by(prompt);
        self.0.completion_tokens.inc_by(completion);
    }

    /// Counts a stream as open until the guard is dropped.
    pub fn stream_opened(&self) -> StreamGuard {
        self.0.open_streams.inc();
        StreamGuard(self.0.open_streams.clone())
    }

    /// Counts a failure of the session store.
    pub fn session_store_failed(&self) {
        self.0.store_errors.inc();
    }

    /// The page for `GET /metrics`, of type [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut page = String::new();
        if let Err(error) = text::encode(&mut page, &self.0.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        page
    }

    fn upstream(&self, name: &str) -> Arc<String> {
        Arc::clone(self.0.upstreams.get(name).unwrap_or(&self.0.unknown))
    }
}

impl Inner {
    fn new(tools: HashMap<String, Arc<String>>, upstreams: HashMap<String, Arc<String>>) -> Self {
        Self {
            registry: Registry::with_prefix("loopwright"),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(coarse),
            turns: Family::default(),
            turn_rounds: Histogram::new([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 50.0, 100.0]),
            overhead_seconds: Histogram::new(exponential_buckets(0.000_01, 2.0, 16)),
            first_token_seconds: coarse(),
            tool_calls: Family::default(),
            tool_seconds: Family::new_with_constructor(coarse),
            model_calls: Family::default(),
            model_seconds: Family::new_with_constructor(coarse),
            retries: Family::default(),
            prompt_tokens: Counter::default(),
            completion_tokens: Counter::default(),
            open_streams: Gauge::default(),
            store_errors: Counter::default(),
            code: CodeMetrics::new(),
            web: WebMetrics::default(),
            tools,
            upstreams,
            dispatch: Arc::new("dispatch".to_owned()),
            unknown: Arc::new("unknown".to_owned()),
        }
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The running version", build);
        let requests = self.requests.clone();
        registry.register("requests", "Requests answered", requests);
        let seconds = self.request_seconds.clone();
        registry.register(
            "request_duration_seconds",
            "Time from a request's head to its answer's end",
            seconds,
        );
        registry.register(
            "turns",
            "Turns of the loop by how they ended",
            self.turns.clone(),
        );
        let rounds = self.turn_rounds.clone();
        registry.register(
            "turn_rounds",
            "Rounds with server-side tools in one turn",
            rounds,
        );
        let overhead = self.overhead_seconds.clone();
        registry.register(
            "overhead_seconds",
            "Time of one turn spent neither in a model nor in a tool",
            overhead,
        );
        let first = self.first_token_seconds.clone();
        registry.register(
            "time_to_first_token_seconds",
            "Time from a request to its first text",
            first,
        );
        registry.register(
            "tool_calls",
            "Server-side tool calls",
            self.tool_calls.clone(),
        );
        let seconds = self.tool_seconds.clone();
        registry.register(
            "tool_duration_seconds",
            "Time of one tool call, retries included",
            seconds,
        );
        registry.register(
            "model_calls",
            "Calls of model servers",
            self.model_calls.clone(),
        );
        let seconds = self.model_seconds.clone();
        registry.register(
            "model_call_duration_seconds",
            "Time of one call of a model server",
            seconds,
        );
        let retries = self.retries.clone();
        registry.register(
            "upstream_retries",
            "Calls made again after a failure of this upstream",
            retries,
        );
        let tokens = Family::<KindLabel, Counter<u64, AtomicU64>>::default();
        self.prompt_tokens = tokens.get_or_create_owned(&KindLabel { kind: "prompt" });
        self.completion_tokens = tokens.get_or_create_owned(&KindLabel { kind: "completion" });
        registry.register("tokens", "Tokens as model servers reported them", tokens);
        registry.register(
            "open_streams",
            "Streams now open",
            self.open_streams.clone(),
        );
        let errors = self.store_errors.clone();
        registry.register(
            "session_store_errors",
            "Failures of the session store",
            errors,
        );
        self.code.register(registry);
        self.web.register(registry);
    }

    /// Makes every label set that is known beforehand, so that counting needs no exclusive lock.
    fn create(&self) {
        for route in Route::ALL.map(Route::as_str) {
            for status in labels::STATUS_CLASSES {
                drop(
                    self.requests
                        .get_or_create(&RequestLabels { route, status }),
                );
            }
            drop(self.request_seconds.get_or_create(&RouteLabel { route }));
        }
        for stop_reason in STOP_REASONS {
            drop(self.turns.get_or_create(&StopLabel { stop_reason }));
        }
        for tool in self.tools.values().chain([&self.dispatch, &self.unknown]) {
            for status in TOOL_STATUSES {
                let tool = Arc::clone(tool);
                drop(
                    self.tool_calls
                        .get_or_create(&ToolCallLabels { tool, status }),
                );
            }
            let tool = Arc::clone(tool);
            drop(self.tool_seconds.get_or_create(&ToolNameLabel { tool }));
        }
        for upstream in self.upstreams.values() {
            for outcome in ModelOutcome::ALL.map(ModelOutcome::as_str) {
                let upstream = Arc::clone(upstream);
                drop(
                    self.model_calls
                        .get_or_create(&ModelCallLabels { upstream, outcome }),
                );
            }
            let labels = UpstreamLabel {
                upstream: Arc::clone(upstream),
            };
            drop(self.model_seconds.get_or_create(&labels));
            drop(self.retries.get_or_create(&labels));
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Buckets from 1 ms to about 17 minutes: models and tools take anything between.
fn coarse() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 21))
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> HashMap<String, Arc<String>> {
    let entry = |name: &str| (name.to_owned(), Arc::new(name.to_owned()));
    names.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(["get_ticket"], ["gpu-1"])
    }

    fn value(page: &str, series: &str) -> Option<f64> {
        page.lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
            .and_then(|number| number.parse().ok())
    }

    #[test]
    fn everything_counted_is_on_the_page() {
        let metrics = metrics();
        metrics.request_finished(Route::ChatLoop, StatusCode::OK, Duration::from_millis(20));
        metrics.request_finished(
            Route::ChatLoop,
            StatusCode::CREATED,
            Duration::from_millis(20),
        );
        metrics.request_finished(Route::Other, StatusCode::NOT_FOUND, Duration::ZERO);
        metrics.turn_finished(3, "completed", Duration::from_micros(40));
        metrics.first_token(Duration::from_millis(300));
        let tool = ToolLabel::Configured("get_ticket");
        metrics.tool_finished(tool, "ok", Duration::from_millis(1));
        metrics.tool_finished(ToolLabel::Dispatch, "timeout", Duration::from_secs(30));
        metrics.model_call_finished("gpu-1", ModelOutcome::Completed, Duration::from_secs(2));
        metrics.upstream_retried("gpu-1");
        metrics.tokens(100, 7);
        metrics.session_store_failed();

        let page = metrics.encode();
        for (series, expected) in [
            (
                r#"loopwright_requests_total{route="chat_loop",status="2xx"}"#,
                2.0,
            ),
            (
                r#"loopwright_requests_total{route="other",status="4xx"}"#,
                1.0,
            ),
            (
                r#"loopwright_requests_total{route="models",status="5xx"}"#,
                0.0,
            ),
            (
                r#"loopwright_request_duration_seconds_count{route="chat_loop"}"#,
                2.0,
            ),
            (r#"loopwright_turns_total{stop_reason="completed"}"#, 1.0),
            ("loopwright_turn_rounds_sum", 3.0),
            (r#"loopwright_overhead_seconds_bucket{le="0.00004"}"#, 1.0),
            ("loopwright_time_to_first_token_seconds_count", 1.0),
            (
                r#"loopwright_tool_calls_total{tool="get_ticket",status="ok"}"#,
                1.0,
            ),
            (
                r#"loopwright_tool_calls_total{tool="dispatch",status="timeout"}"#,
                1.0,
            ),
            (
                r#"loopwright_tool_duration_seconds_sum{tool="dispatch"}"#,
                30.0,
            ),
            (
                r#"loopwright_model_calls_total{upstream="gpu-1",outcome="completed"}"#,
                1.0,
            ),
            (
                r#"loopwright_upstream_retries_total{upstream="gpu-1"}"#,
                1.0,
            ),
            (r#"loopwright_tokens_total{kind="prompt"}"#, 100.0),
            (r#"loopwright_tokens_total{kind="completion"}"#, 7.0),
            ("loopwright_session_store_errors_total", 1.0),
        ] {
            assert_eq!(value(&page, series), Some(expected), "{series}\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn a_stream_counts_as_open_until_its_guard_is_dropped() {
        let metrics = metrics();
        let first = metrics.stream_opened();
        let second = metrics.clone().stream_opened();
        assert_eq!(
            value(&metrics.encode(), "loopwright_open_streams"),
            Some(2.0)
        );
        drop(first);
        assert_eq!(
            value(&metrics.encode(), "loopwright_open_streams"),
            Some(1.0)
        );
        drop(second);
        assert_eq!(
            value(&metrics.encode(), "loopwright_open_streams"),
            Some(0.0)
        );
    }

    #[test]
    fn names_that_nobody_configured_add_no_series() {
        let metrics = metrics();
        let before = metrics.encode().lines().count();
        for name in ["a", "b", "c\" d"] {
            metrics.tool_finished(ToolLabel::Configured(name), "ok", Duration::ZERO);
        }
        assert_eq!(metrics.encode().lines().count(), before);
        let series = r#"loopwright_tool_calls_total{tool="unknown",status="ok"}"#;
        assert_eq!(value(&metrics.encode(), series), Some(3.0));
    }
}
