//! What can be configured about sessions.

use std::path::PathBuf;
use std::time::Duration;

/// Everything about sessions.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where they are kept.
    pub store: StoreUrl,
    /// Idle sessions are deleted after this long; `None` keeps them.
    pub ttl: Option<Duration>,
    /// Longest wait for another turn of the same session.
    pub wait: Duration,
    /// Most messages that a session may hold.
    pub max_messages: usize,
}

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// Memory; gone when the process ends.
    Memory,
}
