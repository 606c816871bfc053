//! The settings of sessions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use blobs::settings::{BlobLocation, BucketSettings, BucketUrl};
pub use store::{PostgresUrl, SessionLimits, StoreUrl};

/// The settings of sessions and their files.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The store of the sessions.
    pub store: StoreUrl,
    /// Sessions that were not written for this time are deleted; `None` keeps them.
    pub ttl: Option<Duration>,
    /// As `ttl`, for sessions whose client gave no id.
    pub nameless_ttl: Option<Duration>,
    /// Longest wait for another turn of the same session.
    pub wait: Duration,
    /// Most messages that a session may hold.
    pub max_messages: usize,
    /// The limits on the bytes of sessions.
    pub limits: SessionLimits,
    /// Where the contents of files are; `None` is [`default_files_dir`]. With a store in memory, they are in a new
    /// subdirectory of it, or of the system's directory for temporary files, and are deleted on exit.
    pub files_dir: Option<BlobLocation>,
    /// Largest file, in bytes.
    pub max_file_bytes: u64,
    /// Most bytes over all files; the least recently used files are deleted first.
    pub max_total_file_bytes: u64,
}

/// The default directory for files beside a database that is not a file. The processes that share the database have to
/// share it too.
pub(crate) const SHARED_FILES_DIR: &str = "loopwright-files";

/// The default directory for files: next to the database file, with the suffix `-files`.
pub fn default_files_dir(database: &Path) -> PathBuf {
    let mut name = OsString::from(database.file_stem().unwrap_or_default());
    name.push("-files");
    database.with_file_name(name)
}
