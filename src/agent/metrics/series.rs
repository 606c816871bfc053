//! The series of the page: their names, help texts and buckets, and those that are there from the start.

use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::decisions::DecisionMetrics;
use super::figures::{CodeMetrics, McpMetrics, WebMetrics};
use super::hooks::HookMetrics;
use super::labels::{self, ModelOutcome, RefusedLabel, RouteLabel, ToolLabel};
use super::usage::UsageMetrics;
use super::{Inner, ModelCallLabels, Names, Page, ToolCallLabels, coarse, create};
use tools::ToolStatus;
use tools::repair::Repair;

impl Inner {
    pub(super) fn new(tools: Names, upstreams: Names) -> Self {
        let mut page = Page(Registry::with_prefix("loopwright"));
        let version = [("version", env!("CARGO_PKG_VERSION"))].into_iter();
        let commit = option_env!("LOOPWRIGHT_COMMIT").map(|commit| ("commit", commit));
        let build: Vec<_> = version.chain(commit).collect();
        page.0
            .register("build", "The running version", Info::new(build));
        Self {
            requests: page.metric("requests", "Requests answered"),
            request_seconds: page.times(
                "request_duration_seconds",
                "Time from a request's head to its answer's end",
            ),
            turns: page.metric("turns", "Turns of the loop by how they ended"),
            turn_rounds: page.add(
                "turn_rounds",
                "Rounds with server-side tools in one turn",
                Histogram::new([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 50.0, 100.0]),
            ),
            overhead_seconds: page.add(
                "overhead_seconds",
                "Time of one turn spent neither in a model nor in a tool",
                Histogram::new(exponential_buckets(0.000_01, 2.0, 16)),
            ),
            first_token_seconds: page.add(
                "time_to_first_token_seconds",
                "Time from a request to its first text",
                coarse(),
            ),
            tool_calls: page.metric("tool_calls", "Server-side tool calls"),
            tool_seconds: page.times(
                "tool_duration_seconds",
                "Time of one tool call, retries included",
            ),
            call_repairs: page.metric("call_repairs", "Repairs of tool calls that models wrote"),
            model_calls: page.metric("model_calls", "Calls of model servers"),
            model_seconds: page.times(
                "model_call_duration_seconds",
                "Time of one call of a model server",
            ),
            text_calls: page.metric("text_calls", "Tool calls that a model wrote as text"),
            retries: page.metric(
                "upstream_retries",
                "Calls made again after a failure of this upstream",
            ),
            usage: UsageMetrics::new(&mut page),
            refused: page.metric(
                "refused_requests",
                "Requests refused for their key, host or origin",
            ),
            open_streams: page.metric("open_streams", "Streams now open"),
            runs: page.metric("runs", "Runs that have not ended"),
            store_errors: page.metric("session_store_errors", "Failures of the session store"),
            dropped_spans: page.metric(
                "otlp_dropped_spans",
                "Spans that the OpenTelemetry collector did not get",
            ),
            cell_seconds: page.add(
                "code_cell_duration_seconds",
                "Time that the code of one call ran",
                coarse(),
            ),
            code: CodeMetrics::new(&mut page),
            web: WebMetrics::new(&mut page),
            mcp: McpMetrics::new(&mut page),
            hooks: HookMetrics::new(&mut page),
            decisions: DecisionMetrics::new(&mut page),
            registry: page.0,
            tools,
            learnt_tools: RwLock::default(),
            upstreams,
            dispatch: ToolLabel::Dispatch.as_str().into(),
            mcp_request: ToolLabel::McpRequest.as_str().into(),
            unknown: ToolLabel::Unknown.as_str().into(),
        }
    }

    /// Creates every series that is known beforehand: dashboards see zeros, and counting needs no exclusive lock.
    pub(super) fn create_series(&self, turn_ends: impl IntoIterator<Item = &'static str>) {
        for route in RouteLabel::ALL.map(|route| ("route", route.as_str())) {
            for status in labels::STATUS_CLASSES {
                create(&self.requests, &[route, ("status", status)]);
            }
            create(&self.request_seconds, &[route]);
        }
        for reason in RefusedLabel::ALL.map(RefusedLabel::as_str) {
            create(&self.refused, &[("reason", reason)]);
        }
        for end in turn_ends {
            create(&self.turns, &[("stop_reason", end)]);
        }
        let shared = [&self.dispatch, &self.mcp_request, &self.unknown];
        for tool in self.tools.values().chain(shared) {
            for status in ToolStatus::ALL.map(ToolStatus::as_str) {
                let tool = Arc::clone(tool);
                create(&self.tool_calls, &ToolCallLabels { tool, status });
            }
            create(&self.tool_seconds, &[("tool", Arc::clone(tool))]);
        }
        for repair in Repair::ALL.map(Repair::as_str) {
            create(&self.call_repairs, &[("repair", repair)]);
        }
        for upstream in self.upstreams.values() {
            for outcome in ModelOutcome::ALL.map(ModelOutcome::as_str) {
                let upstream = Arc::clone(upstream);
                create(&self.model_calls, &ModelCallLabels { upstream, outcome });
            }
            create(&self.model_seconds, &[("upstream", Arc::clone(upstream))]);
            create(&self.retries, &[("upstream", Arc::clone(upstream))]);
        }
    }
}
