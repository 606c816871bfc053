//! Counters and histograms, as `GET /metrics` shows them.
//!
//! Owns the names, labels and buckets. Every label value comes from the configuration, from an enum or from the tools
//! that MCP servers list, whose number is bounded. Names of models come from requests: only models that have answered
//! become label values, up to a bound. Reads the counts and enums of other modules, which do not depend on this one.

mod decisions;
mod figures;
mod gauge;
mod hooks;
mod labels;
mod series;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ::http::StatusCode;
use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use decisions::DecisionMetrics;
use figures::{CodeMetrics, McpMetrics, WebMetrics};
pub use gauge::GaugeGuard;
use hooks::HookMetrics;
pub(crate) use labels::{ModelOutcome, ToolLabel};
pub use labels::{RefusedLabel, RouteLabel};
use tools::ToolStatus;
use tools::repair::Repair;
pub use usage::ModelUse;
use usage::UsageMetrics;

/// Most names of tools that are learnt after the start. Calls of others are counted together.
const MAX_LEARNT_TOOLS: usize = 1000;

/// The `content-type` of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Every counter and histogram; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

/// One label, its value from an enum.
type Label = [(&'static str, &'static str); 1];
/// One label, its value from the configuration.
type NameLabel = [(&'static str, Arc<str>); 1];
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
type Names = HashMap<String, Arc<str>>;
type Total = Counter<u64, AtomicU64>;

/// The page while metrics are added to it.
struct Page(Registry);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<[(&'static str, &'static str); 2], Counter>,
    request_seconds: Histograms<Label>,
    turns: Family<Label, Counter>,
    turn_rounds: Histogram,
    overhead_seconds: Histogram,
    first_token_seconds: Histogram,
    tool_calls: Family<ToolCallLabels, Counter>,
    tool_seconds: Histograms<NameLabel>,
    call_repairs: Family<Label, Counter>,
    model_calls: Family<ModelCallLabels, Counter>,
    model_seconds: Histograms<NameLabel>,
    retries: Family<NameLabel, Counter>,
    text_calls: Family<TextCallLabels, Counter>,
    usage: UsageMetrics,
    refused: Family<Label, Counter>,
    open_streams: Gauge,
    runs: Gauge,
    store_errors: Counter,
    dropped_spans: Total,
    cell_seconds: Histogram,
    code: CodeMetrics,
    web: WebMetrics,
    mcp: McpMetrics,
    hooks: HookMetrics,
    decisions: DecisionMetrics,
    tools: Names,
    /// Tools that did not exist at the start: tools of MCP servers that connected later or whose list has changed.
    learnt_tools: RwLock<Names>,
    upstreams: Names,
    dispatch: Arc<str>,
    mcp_request: Arc<str>,
    unknown: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolCallLabels {
    tool: Arc<str>,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelCallLabels {
    upstream: Arc<str>,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TextCallLabels {
    upstream: Arc<str>,
    form: &'static str,
}

impl Metrics {
    /// Creates all metrics. The names of tools and upstreams and the ends that a turn can have become label values.
    pub fn new<'a>(
        tools: impl IntoIterator<Item = &'a str>,
        upstreams: impl IntoIterator<Item = &'a str>,
        turn_ends: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let inner = Inner::new(names(tools), names(upstreams));
        inner.create_series(turn_ends);
        Self(Arc::new(inner))
    }

    /// Counts a request whose answer has ended.
    pub fn request_finished(&self, route: RouteLabel, status: StatusCode, duration: Duration) {
        let route = ("route", route.as_str());
        let labels = [route, ("status", labels::status_class(status))];
        self.0.requests.get_or_create(&labels).inc();
        let histogram = self.0.request_seconds.get_or_create(&[route]);
        histogram.observe(duration.as_secs_f64());
    }

    /// Counts a turn: its rounds and one of the ends given to [`Metrics::new`].
    pub(crate) fn turn_ended(&self, rounds: u32, end: &'static str) {
        self.0.turns.get_or_create(&[("stop_reason", end)]).inc();
        self.0.turn_rounds.observe(f64::from(rounds));
    }

    /// Records the time of a turn that loopwright itself took.
    pub(crate) fn turn_overhead(&self, overhead: Duration) {
        self.0.overhead_seconds.observe(overhead.as_secs_f64());
    }

    /// Records the time from a request's arrival to the first text of its answer.
    pub fn first_token(&self, after: Duration) {
        self.0.first_token_seconds.observe(after.as_secs_f64());
    }

    /// Counts a tool call.
    pub(crate) fn tool_finished(
        &self,
        tool: ToolLabel<'_>,
        status: ToolStatus,
        duration: Duration,
    ) {
        let tool = match tool {
            ToolLabel::Configured(name) => self.0.tool(name),
            ToolLabel::Dispatch => Arc::clone(&self.0.dispatch),
            ToolLabel::McpRequest => Arc::clone(&self.0.mcp_request),
            ToolLabel::Unknown => Arc::clone(&self.0.unknown),
        };
        let labels = ToolCallLabels {
            tool: Arc::clone(&tool),
            status: status.as_str(),
        };
        self.0.tool_calls.get_or_create(&labels).inc();
        let histogram = self.0.tool_seconds.get_or_create(&[("tool", tool)]);
        histogram.observe(duration.as_secs_f64());
    }

    /// Counts a repair of a call as a model wrote it.
    pub(crate) fn call_repaired(&self, repair: Repair) {
        let labels = [("repair", repair.as_str())];
        self.0.call_repairs.get_or_create(&labels).inc();
    }

    /// Records the time that the code of one call ran.
    pub(crate) fn cell_finished(&self, duration: Duration) {
        self.0.cell_seconds.observe(duration.as_secs_f64());
    }

    /// Counts one call of a model.
    pub(crate) fn model_call_finished(
        &self,
        upstream: &str,
        outcome: ModelOutcome,
        duration: Duration,
    ) {
        let upstream = self.upstream(upstream);
        let labels = ModelCallLabels {
            upstream: Arc::clone(&upstream),
            outcome: outcome.as_str(),
        };
        self.0.model_calls.get_or_create(&labels).inc();
        let labels = [("upstream", upstream)];
        let histogram = self.0.model_seconds.get_or_create(&labels);
        histogram.observe(duration.as_secs_f64());
    }

    /// Counts a call that is made again because `upstream` failed.
    pub fn upstream_retried(&self, upstream: &str) {
        let labels = [("upstream", self.upstream(upstream))];
        self.0.retries.get_or_create(&labels).inc();
    }

    /// Counts a call that a model of `upstream` wrote as text.
    pub(crate) fn text_call(&self, upstream: &str, form: &'static str) {
        let labels = TextCallLabels {
            upstream: self.upstream(upstream),
            form,
        };
        self.0.text_calls.get_or_create(&labels).inc();
    }

    /// Counts a request that was refused before it was read.
    pub fn request_refused(&self, why: RefusedLabel) {
        let labels = [("reason", why.as_str())];
        self.0.refused.get_or_create(&labels).inc();
    }

    /// Counts a stream as open until the guard is dropped.
    pub fn stream_opened(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.open_streams)
    }

    /// Counts a run until the guard is dropped.
    pub(crate) fn run_started(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.runs)
    }

    /// Counts a failure of the session store.
    pub(crate) fn session_store_failed(&self) {
        self.0.store_errors.inc();
    }

    /// Counts spans that their collector does not get.
    pub fn spans_dropped(&self, count: u64) {
        self.0.dropped_spans.inc_by(count);
    }

    /// The page for `GET /metrics`, of type [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut page = String::new();
        if let Err(error) = text::encode(&mut page, &self.0.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        page
    }

    fn upstream(&self, name: &str) -> Arc<str> {
        Arc::clone(self.0.upstreams.get(name).unwrap_or(&self.0.unknown))
    }
}

impl Inner {
    /// The label value of a tool.
    fn tool(&self, name: &str) -> Arc<str> {
        if let Some(known) = self.tools.get(name) {
            return Arc::clone(known);
        }
        if let Some(known) = self.learnt_tools.read().get(name) {
            return Arc::clone(known);
        }
        let mut learnt = self.learnt_tools.write();
        if learnt.len() >= MAX_LEARNT_TOOLS {
            return Arc::clone(&self.unknown);
        }
        let label = learnt.entry(name.to_owned()).or_insert_with(|| name.into());
        Arc::clone(label)
    }
}

impl Page {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn metric<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.add(name, help, M::default())
    }

    fn times<L: Clone + Hash + Eq>(&mut self, name: &str, help: &str) -> Histograms<L>
    where
        Histograms<L>: Metric,
    {
        self.add(name, help, Family::new_with_constructor(coarse))
    }
}

fn create<L, M, C>(family: &Family<L, M, C>, labels: &L)
where
    L: Clone + Hash + Eq,
    C: MetricConstructor<M>,
{
    drop(family.get_or_create(labels));
}

/// Buckets from 1 ms to about 17 minutes, for times of models and tools.
fn coarse() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 21))
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
    let names = names.into_iter();
    names.map(|name| (name.to_owned(), name.into())).collect()
}
