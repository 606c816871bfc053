//! Counters of searches and pages.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::Metrics;

/// How often something went well and how often not, since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutcomeFigures {
    /// It did.
    pub ok: u64,
    /// It did not.
    pub error: u64,
}

type Counters<L> = Family<L, Counter<u64, AtomicU64>>;

#[derive(Debug, Default)]
pub(super) struct WebMetrics {
    searches: Counters<SearchLabels>,
    pages: Counters<PageLabels>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SearchLabels {
    provider: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PageLabels {
    outcome: &'static str,
}

impl WebMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "web_searches",
            "Searches that a provider was asked for; no series where web search is off",
            self.searches.clone(),
        );
        registry.register(
            "web_pages",
            "Pages that were to be fetched and read; no series where web search is off",
            self.pages.clone(),
        );
    }
}

impl OutcomeFigures {
    fn each(self) -> [(&'static str, u64); 2] {
        [("ok", self.ok), ("error", self.error)]
    }
}

impl Metrics {
    /// Notes how often a provider was asked to search.
    pub fn web_searches(&self, provider: &'static str, figures: OutcomeFigures) {
        for (outcome, total) in figures.each() {
            let labels = SearchLabels { provider, outcome };
            raise(&self.0.web.searches.get_or_create(&labels), total);
        }
    }

    /// Notes how often pages were fetched.
    pub fn web_pages(&self, figures: OutcomeFigures) {
        for (outcome, total) in figures.each() {
            let labels = PageLabels { outcome };
            raise(&self.0.web.pages.get_or_create(&labels), total);
        }
    }
}

/// Two looks may overlap, and a counter must not go back.
fn raise(counter: &Counter<u64, AtomicU64>, total: u64) {
    counter.inner().fetch_max(total, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_searches_and_pages_and_no_counter_goes_back() {
        let metrics = Metrics::new([], []);
        assert!(!metrics.encode().contains("loopwright_web_searches_total{"));
        metrics.web_searches("brave", OutcomeFigures { ok: 3, error: 1 });
        metrics.web_searches("brave", OutcomeFigures { ok: 2, error: 1 });
        metrics.web_searches("searxng", OutcomeFigures::default());
        metrics.web_pages(OutcomeFigures { ok: 9, error: 4 });
        let page = metrics.encode();
        for line in [
            "loopwright_web_searches_total{provider=\"brave\",outcome=\"ok\"} 3",
            "loopwright_web_searches_total{provider=\"brave\",outcome=\"error\"} 1",
            "loopwright_web_searches_total{provider=\"searxng\",outcome=\"ok\"} 0",
            "loopwright_web_pages_total{outcome=\"ok\"} 9",
            "loopwright_web_pages_total{outcome=\"error\"} 4",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
