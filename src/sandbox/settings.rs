//! What can be configured about code execution.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Everything about code execution.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The Python interpreter: a path, or a name that is looked up in `PATH` at start-up.
    pub python: PathBuf,
    /// Where `python` is looked up.
    pub search_path: String,
    /// Longest time of one call.
    pub timeout: Duration,
    /// What is tried to isolate; a tier below this one is refused.
    pub require: Tier,
    /// What code may reach.
    pub network: Network,
    /// A command that starts `python3` with the appended arguments in an isolation of its own, instead of the launcher.
    pub command: Vec<String>,
    /// Bounds of one interpreter.
    pub limits: Limits,
    /// Modules that an interpreter imports before its first cell.
    pub preload: Vec<String>,
    /// Interpreters that are kept ready.
    pub spares: usize,
    /// Most interpreters at the same time, spares included.
    pub max_workers: usize,
    /// Most calls that wait for an interpreter.
    pub max_waiting: usize,
    /// An interpreter that was not used for so long is ended; its files are kept.
    pub idle_ttl: Duration,
    /// An interpreter of this age is ended at the next moment of rest.
    pub max_age: Duration,
    /// Where working files of ended interpreters are kept, and working directories where there is no private root.
    pub work_dir: PathBuf,
    /// Whether that directory goes with the server, as sessions in memory do.
    pub temporary: bool,
    /// How long working files of ended interpreters are kept; for ever if unset.
    pub saved_ttl: Option<Duration>,
    /// Most bytes of kept working files; what was kept longest ago is deleted first.
    pub saved_size: u64,
    /// First and last user id for interpreters where the server runs as root.
    pub uids: (u32, u32),
    /// The executable that is run again as the launcher.
    pub launcher: PathBuf,
}

/// Bounds of one interpreter and everything it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of the whole tree, files in memory included, in bytes.
    pub memory: u64,
    /// Address space of one process, in bytes.
    pub address_space: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Processor cores; 0 for all.
    pub cpus: usize,
    /// The working directory, in bytes.
    pub disk: u64,
    /// `/tmp`, in bytes.
    pub tmp: u64,
    /// Files and directories in the working directory, and in `/tmp`.
    pub inodes: u64,
    /// The largest file, in bytes.
    pub file_size: u64,
    /// Open descriptors of a process.
    pub open_files: u64,
    /// Output of one cell in bytes before the interpreter is ended.
    pub output: u64,
    /// What is kept of stdout and of stderr, in bytes: three quarters from the beginning, the rest from the end.
    pub output_kept: usize,
    /// The text of a value, in bytes.
    pub value: usize,
    /// Images of one cell.
    pub images: usize,
    /// The largest image, in bytes.
    pub image_bytes: usize,
    /// Files handed back from one cell.
    pub files: usize,
    /// The largest file handed back, in bytes.
    pub captured_file: u64,
    /// All files handed back from one cell, in bytes.
    pub captured_total: u64,
}

/// How strong the isolation is, from none to strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Less than `Basic`, which the operator accepted.
    Weak,
    /// The server's own user id, Landlock, seccomp, limits.
    Basic,
    /// A user id of its own, Landlock, seccomp, limits.
    Medium,
    /// Namespaces, a root of its own, a user id of its own, Landlock, seccomp, limits.
    Strong,
    /// A command of the operator's; not judged here.
    External,
}

/// What code may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// Everything that the server can reach, itself included.
    Full,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            memory: 1024 * MIB,
            address_space: 4096 * MIB,
            processes: 64,
            cpus: 1,
            disk: 256 * MIB,
            tmp: 64 * MIB,
            inodes: 4096,
            file_size: 64 * MIB,
            open_files: 256,
            output: 64 * MIB,
            output_kept: 32 * 1024,
            value: 16 * 1024,
            images: 10,
            image_bytes: 4 * 1024 * 1024,
            files: 20,
            captured_file: 32 * MIB,
            captured_total: 64 * MIB,
        }
    }
}

impl Tier {
    /// The word for logs, settings and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Weak => "weak",
            Self::Basic => "basic",
            Self::Medium => "medium",
            Self::Strong => "strong",
            Self::External => "external",
        }
    }
}
