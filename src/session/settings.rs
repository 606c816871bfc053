//! What can be configured about sessions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::store::StoreUrl;

/// The settings of sessions and their files.
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
    /// The directory with the bytes of files; `None` is the one beside the SQLite file. Files of sessions in memory
    /// are in a directory of their own inside it, or in the one for temporary files, and go with the process.
    pub files_dir: Option<PathBuf>,
    /// Largest file, in bytes.
    pub max_file_bytes: u64,
    /// Most bytes over all files; those used longest ago give way.
    pub max_total_file_bytes: u64,
}

/// The directory that goes with a database file where none is configured.
pub fn beside(database: &Path) -> PathBuf {
    let mut name = OsString::from(database.file_stem().unwrap_or_default());
    name.push("-files");
    database.with_file_name(name)
}
