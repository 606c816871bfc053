//! Decisions about calls: by rules and hooks, and by people.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{Label, Metrics, Page};

#[derive(Debug)]
pub(super) struct DecisionMetrics {
    made: Family<[(&'static str, &'static str); 2], Counter>,
    by_people: Family<Label, Counter>,
    waiting: Gauge,
}

impl DecisionMetrics {
    pub(super) fn new(page: &mut Page) -> Self {
        Self {
            made: page.metric(
                "permission_decisions",
                "Calls that a rule, a level's word or a hook has decided about; no series before the first one",
            ),
            by_people: page.metric(
                "approvals_decided",
                "Calls that a person has decided about; no series before the first one",
            ),
            waiting: page.metric(
                "approvals_waiting",
                "Calls that wait for a person's decision, seen every 30 seconds",
            ),
        }
    }
}

impl Metrics {
    /// Records what was decided about a call, and by which level.
    pub fn call_decided(&self, effect: &'static str, level: &'static str) {
        let labels = [("effect", effect), ("level", level)];
        self.0.decisions.made.get_or_create(&labels).inc();
    }

    /// Records that a person has decided about a call.
    pub(crate) fn person_decided(&self, decision: &'static str) {
        let labels = [("decision", decision)];
        self.0.decisions.by_people.get_or_create(&labels).inc();
    }

    /// Sets how many calls wait for a person's decision.
    pub fn approvals_waiting(&self, waiting: u64) {
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        self.0.decisions.waiting.set(waiting);
    }
}
