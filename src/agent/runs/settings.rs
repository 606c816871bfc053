//! The settings of the event logs and answers of runs.

use std::time::Duration;

/// The settings of the event logs and answers of runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long the answers of runs are kept.
    pub answer_ttl: Duration,
    /// Most bytes of the stored answers of all owners; the oldest ones are deleted first.
    pub max_total_answer_bytes: u64,
    /// Most bytes that are kept in memory for later readers: the event logs of all owners, and answers that are not stored.
    /// An owner has a quarter of them at most.
    pub max_total_event_bytes: usize,
}
