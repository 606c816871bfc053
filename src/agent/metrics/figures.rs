//! Counts that code execution and web search keep themselves: copied into metrics for each page.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{Label, Metrics, NameLabel, Page, Total};
use sandbox::Stats;
use sandbox::settings::Tier;
use tools::source::{Health, Source};
use web::{Outcomes, WebStats};

#[derive(Debug)]
pub(super) struct CodeMetrics {
    isolation: Family<Label, Gauge>,
    workers: Gauge,
    busy: Gauge,
    spares: Gauge,
    waiting: Gauge,
    started: Total,
    evicted: Total,
    killed: Total,
}

#[derive(Debug)]
pub(super) struct WebMetrics {
    searches: Family<[(&'static str, &'static str); 2], Total>,
    pages: Family<Label, Total>,
}

impl CodeMetrics {
    pub(super) fn new(page: &mut Page) -> Self {
        Self {
            isolation: page.metric(
                "code_isolation",
                "1 for the isolation that interpreters get; no series where code execution is off",
            ),
            workers: page.metric("code_workers", "Live interpreters"),
            busy: page.metric("code_workers_busy", "Interpreters that run code"),
            spares: page.metric(
                "code_workers_spare",
                "Interpreters that wait for a conversation",
            ),
            waiting: page.metric("code_calls_waiting", "Calls that wait for an interpreter"),
            started: page.metric("code_workers_started", "Interpreters started"),
            evicted: page.metric(
                "code_workers_evicted",
                "Interpreters ended to make room or because they were idle",
            ),
            killed: page.metric(
                "code_workers_killed",
                "Interpreters that crashed or had to be killed",
            ),
        }
    }
}

impl WebMetrics {
    pub(super) fn new(page: &mut Page) -> Self {
        Self {
            searches: page.metric(
                "web_searches",
                "Searches that a provider was asked for; no series where web search is off",
            ),
            pages: page.metric(
                "web_pages",
                "Pages that were to be fetched and read; no series where web search is off",
            ),
        }
    }
}

/// The figures of MCP servers.
#[derive(Debug)]
pub(super) struct McpMetrics {
    up: Family<NameLabel, Gauge>,
    restarts: Family<NameLabel, Total>,
    requested: Family<Label, Total>,
    connections: Gauge,
}

impl McpMetrics {
    pub(super) fn new(page: &mut Page) -> Self {
        Self {
            up: page.metric("mcp_server_up", "Whether an MCP server runs"),
            restarts: page.metric(
                "mcp_server_restarts",
                "Starts of an MCP server after the first",
            ),
            requested: page.metric(
                "mcp_request_servers",
                "MCP servers that requests declared, by whether their tools could be listed; no series where none may be declared",
            ),
            connections: page.metric(
                "mcp_request_connections",
                "Connections that are kept to MCP servers that requests declared",
            ),
        }
    }
}

impl Metrics {
    /// Records how strong the isolation of code is.
    pub fn code_isolation(&self, level: Tier) {
        let labels = [("level", level.as_str())];
        self.0.code.isolation.get_or_create(&labels).set(1);
    }

    /// Brings the figures of a source of tools up to date.
    pub fn source(&self, source: &Source) {
        if let Source::Python(code) = source {
            self.code_stats(&code.stats());
        } else if let Source::Web(web) = source {
            self.web_stats(&web.stats());
        } else if let Source::Mcp(mcp) = source {
            let labels = [("server", Arc::clone(&mcp.server))];
            let up = i64::from(mcp.health == Health::Ready);
            self.0.mcp.up.get_or_create(&labels).set(up);
            raise(&self.0.mcp.restarts.get_or_create(&labels), mcp.restarts);
        } else if let Source::McpRequests(servers) = source {
            for (outcome, total) in by_outcome(servers.outcomes()) {
                let labels = [("outcome", outcome)];
                raise(&self.0.mcp.requested.get_or_create(&labels), total);
            }
            let connections = i64::try_from(servers.connections()).unwrap_or(i64::MAX);
            self.0.mcp.connections.set(connections);
        }
    }

    /// Copies the counts of code execution.
    fn code_stats(&self, stats: &Stats) {
        let code = &self.0.code;
        for (gauge, value) in [
            (&code.workers, stats.workers),
            (&code.busy, stats.busy),
            (&code.spares, stats.spares),
            (&code.waiting, stats.waiting),
        ] {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        raise(&code.started, stats.started);
        raise(&code.evicted, stats.evicted);
        raise(&code.killed, stats.killed);
    }

    /// Copies the counts of web search.
    fn web_stats(&self, stats: &WebStats) {
        let web = &self.0.web;
        for (provider, outcomes) in &stats.searches {
            for (outcome, total) in by_outcome(*outcomes) {
                let labels = [("provider", *provider), ("outcome", outcome)];
                raise(&web.searches.get_or_create(&labels), total);
            }
        }
        for (outcome, total) in by_outcome(stats.pages) {
            raise(&web.pages.get_or_create(&[("outcome", outcome)]), total);
        }
    }
}

fn by_outcome(outcomes: Outcomes) -> [(&'static str, u64); 2] {
    [("ok", outcomes.ok), ("error", outcomes.error)]
}

/// Sets a counter to a total. Two pages may be made at the same time, and a counter must not go back.
fn raise(counter: &Total, total: u64) {
    counter.inner().fetch_max(total, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(metrics: &Metrics, lines: &[&str]) {
        let page = metrics.encode();
        for line in lines {
            assert!(page.lines().any(|found| found == *line), "{line}\n{page}");
        }
    }

    #[test]
    fn the_page_shows_the_interpreters_and_no_counter_goes_back() {
        let metrics = Metrics::new([], [], []);
        assert!(!metrics.encode().contains("code_isolation{"));
        metrics.code_isolation(Tier::Strong);
        let stats = Stats {
            workers: 3,
            busy: 2,
            spares: 1,
            waiting: 4,
            started: 9,
            evicted: 5,
            killed: 1,
        };
        metrics.code_stats(&stats);
        metrics.code_stats(&Stats {
            busy: 0,
            started: 8,
            ..stats
        });
        check(
            &metrics,
            &[
                "loopwright_code_isolation{level=\"strong\"} 1",
                "loopwright_code_workers 3",
                "loopwright_code_workers_busy 0",
                "loopwright_code_workers_spare 1",
                "loopwright_code_calls_waiting 4",
                "loopwright_code_workers_started_total 9",
                "loopwright_code_workers_evicted_total 5",
                "loopwright_code_workers_killed_total 1",
            ],
        );
    }

    #[test]
    fn the_page_shows_searches_and_pages_and_no_counter_goes_back() {
        let metrics = Metrics::new([], [], []);
        assert!(!metrics.encode().contains("loopwright_web_searches_total{"));
        let (none, few) = (Outcomes::default(), Outcomes { ok: 2, error: 1 });
        for brave in [Outcomes { ok: 3, error: 1 }, few] {
            metrics.web_stats(&WebStats {
                searches: vec![("brave", brave), ("searxng", none)],
                pages: Outcomes { ok: 9, error: 4 },
            });
        }
        check(
            &metrics,
            &[
                "loopwright_web_searches_total{provider=\"brave\",outcome=\"ok\"} 3",
                "loopwright_web_searches_total{provider=\"brave\",outcome=\"error\"} 1",
                "loopwright_web_searches_total{provider=\"searxng\",outcome=\"ok\"} 0",
                "loopwright_web_pages_total{outcome=\"ok\"} 9",
                "loopwright_web_pages_total{outcome=\"error\"} 4",
            ],
        );
    }
}
