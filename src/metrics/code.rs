//! Counters and gauges of code execution.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::Metrics;

/// Interpreters at this moment, and what happened to them since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct CodeFigures {
    /// Live interpreters, spares included.
    pub workers: usize,
    /// Those that run code.
    pub busy: usize,
    /// Those that wait for a conversation.
    pub spares: usize,
    /// Calls that wait for an interpreter.
    pub waiting: usize,
    /// Interpreters started.
    pub started: u64,
    /// Interpreters ended to make room or because they were idle.
    pub evicted: u64,
    /// Interpreters that crashed or had to be killed.
    pub killed: u64,
}

#[derive(Debug)]
pub(super) struct CodeMetrics {
    isolation: Family<LevelLabel, Gauge>,
    workers: Gauge,
    busy: Gauge,
    spares: Gauge,
    waiting: Gauge,
    started: Counter<u64, AtomicU64>,
    evicted: Counter<u64, AtomicU64>,
    killed: Counter<u64, AtomicU64>,
    cells: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabel {
    level: &'static str,
}

impl CodeMetrics {
    pub(super) fn new() -> Self {
        Self {
            isolation: Family::default(),
            workers: Gauge::default(),
            busy: Gauge::default(),
            spares: Gauge::default(),
            waiting: Gauge::default(),
            started: Counter::default(),
            evicted: Counter::default(),
            killed: Counter::default(),
            // From 1 ms to about 17 minutes.
            cells: Histogram::new(exponential_buckets(0.001, 2.0, 21)),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "code_isolation",
            "1 for the isolation that interpreters get; no series where code execution is off",
            self.isolation.clone(),
        );
        for (name, help, gauge) in [
            ("code_workers", "Live interpreters", &self.workers),
            (
                "code_workers_busy",
                "Interpreters that run code",
                &self.busy,
            ),
            (
                "code_workers_spare",
                "Interpreters that wait for a conversation",
                &self.spares,
            ),
            (
                "code_calls_waiting",
                "Calls that wait for an interpreter",
                &self.waiting,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            (
                "code_workers_started",
                "Interpreters started",
                &self.started,
            ),
            (
                "code_workers_evicted",
                "Interpreters ended to make room or because they were idle",
                &self.evicted,
            ),
            (
                "code_workers_killed",
                "Interpreters that crashed or had to be killed",
                &self.killed,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "code_cell_duration_seconds",
            "Time that the code of one call ran",
            self.cells.clone(),
        );
    }
}

impl Metrics {
    /// Notes how strong the isolation of code is.
    pub fn code_isolation(&self, level: &'static str) {
        let labels = LevelLabel { level };
        self.0.code.isolation.get_or_create(&labels).set(1);
    }

    /// Notes how many interpreters there are.
    pub fn code_figures(&self, figures: CodeFigures) {
        let code = &self.0.code;
        for (gauge, value) in [
            (&code.workers, figures.workers),
            (&code.busy, figures.busy),
            (&code.spares, figures.spares),
            (&code.waiting, figures.waiting),
        ] {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        for (counter, total) in [
            (&code.started, figures.started),
            (&code.evicted, figures.evicted),
            (&code.killed, figures.killed),
        ] {
            // Two looks may overlap, and a counter must not go back.
            counter.inner().fetch_max(total, Ordering::Relaxed);
        }
    }

    /// Counts a piece of code that has run.
    pub fn cell_finished(&self, duration: Duration) {
        self.0.code.cells.observe(duration.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_interpreters_and_no_counter_goes_back() {
        let metrics = Metrics::new([], []);
        assert!(!metrics.encode().contains("code_isolation{"));
        metrics.code_isolation("strong");
        metrics.cell_finished(Duration::from_millis(3));
        let figures = CodeFigures {
            workers: 3,
            busy: 2,
            spares: 1,
            waiting: 4,
            started: 9,
            evicted: 5,
            killed: 1,
        };
        metrics.code_figures(figures);
        metrics.code_figures(CodeFigures {
            busy: 0,
            started: 8,
            ..figures
        });
        let page = metrics.encode();
        for line in [
            "loopwright_code_isolation{level=\"strong\"} 1",
            "loopwright_code_workers 3",
            "loopwright_code_workers_busy 0",
            "loopwright_code_workers_spare 1",
            "loopwright_code_calls_waiting 4",
            "loopwright_code_workers_started_total 9",
            "loopwright_code_workers_evicted_total 5",
            "loopwright_code_workers_killed_total 1",
            "loopwright_code_cell_duration_seconds_count 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
