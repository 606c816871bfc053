//! Gauges of current activity.

use prometheus_client::metrics::gauge::Gauge;

/// One more in a gauge, until it is dropped.
#[derive(Debug)]
#[must_use = "it counts no longer once this is dropped"]
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub(super) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
