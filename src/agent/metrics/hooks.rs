//! What hooks were asked.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Histograms, Label, Metrics, Page};
use policy::hooks::HookMeter;

#[derive(Debug)]
pub(super) struct HookMetrics {
    failures: Family<[(&'static str, &'static str); 2], Counter>,
    seconds: Histograms<Label>,
}

impl HookMetrics {
    pub(super) fn new(page: &mut Page) -> Self {
        Self {
            failures: page.metric(
                "hook_failures",
                "Hooks that gave no usable answer; no series before the first one",
            ),
            seconds: page.times(
                "hook_duration_seconds",
                "Time until a hook answered or failed; no series before the first one",
            ),
        }
    }
}

impl HookMeter for Metrics {
    fn hook_asked(&self, event: &'static str, duration: Duration, failure: Option<&'static str>) {
        let event = ("hook_event", event);
        let hooks = &self.0.hooks;
        let histogram = hooks.seconds.get_or_create(&[event]);
        histogram.observe(duration.as_secs_f64());
        drop(histogram);
        if let Some(reason) = failure {
            let labels = [event, ("reason", reason)];
            hooks.failures.get_or_create(&labels).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_event_and_reason() {
        let metrics = Metrics::new([], [], []);
        assert!(!metrics.encode().contains("loopwright_hook"));
        metrics.hook_asked("PreToolUse", Duration::from_millis(2), None);
        metrics.hook_asked("PreToolUse", Duration::from_secs(10), Some("timeout"));
        let page = metrics.encode();
        for line in [
            "loopwright_hook_failures_total{hook_event=\"PreToolUse\",reason=\"timeout\"} 1",
            "loopwright_hook_duration_seconds_count{hook_event=\"PreToolUse\"} 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
