//! Settings of code execution.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of code execution.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The Python interpreter: a path, or a name that is looked up in `search_path` at start-up.
    pub python: PathBuf,
    /// The `PATH` in which `python` is looked up.
    pub search_path: String,
    /// Time limit of one call.
    pub timeout: Duration,
    /// The weakest tier that is accepted.
    pub require: Tier,
    /// Network access of the code.
    pub network: Network,
    /// A command that runs its appended arguments in an isolation of its own, instead of the launcher.
    pub command: Vec<String>,
    /// Limits of one interpreter.
    pub limits: InterpreterLimits,
    /// Modules that are imported before the first cell.
    pub preload: Vec<String>,
    /// Number of spare interpreters.
    pub spares: usize,
    /// Most interpreters at the same time, including spares.
    pub max_workers: usize,
    /// Most calls that wait for an interpreter.
    pub max_waiting: usize,
    /// Idle time after which an interpreter is ended; its files are saved.
    pub idle_ttl: Duration,
    /// Age after which an interpreter is ended between two calls.
    pub max_age: Duration,
    /// Directory for saved working files, and for working directories if there is no private root.
    pub work_dir: PathBuf,
    /// Whether `work_dir` is deleted at shutdown, as sessions in memory are.
    pub temporary: bool,
    /// How long saved working files are kept; `None` for ever.
    pub saved_ttl: Option<Duration>,
    /// Most bytes of saved working files; the oldest are deleted first.
    pub saved_size: u64,
    /// First and last user id for interpreters, if the server runs as root.
    pub uids: (u32, u32),
    /// The executable that is run again as the launcher.
    pub launcher: PathBuf,
}

/// Limits of one interpreter and all its processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InterpreterLimits {
    /// Memory of all processes, including files in memory, in bytes.
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
    /// Output of one cell, in bytes; beyond it the interpreter is ended.
    pub output: u64,
    /// Bytes that are kept of stdout and of stderr each: three quarters from the beginning, the rest from the end.
    pub output_kept: usize,
    /// The text of a value, in bytes.
    pub value: usize,
    /// Images of one cell.
    pub images: usize,
    /// The largest image, in bytes.
    pub image_bytes: usize,
    /// Files returned from one cell.
    pub files: usize,
    /// The largest file returned, in bytes.
    pub captured_file: u64,
    /// All files returned from one cell, in bytes.
    pub captured_total: u64,
}

/// How strong the isolation is, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Weaker than `Basic`; the operator has accepted it.
    Weak,
    /// The server's own user id, Landlock, seccomp, limits.
    Basic,
    /// A separate user id, Landlock, seccomp, limits.
    Medium,
    /// Namespaces, a private root, a separate user id, Landlock, seccomp, limits.
    Strong,
    /// A command configured by the operator; its strength is not rated.
    External,
}

/// Network access of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing.
    #[default]
    None,
    /// Everything that the server can reach, including the server itself.
    Full,
}

impl Default for InterpreterLimits {
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            address_space: 4 << 30,
            processes: 64,
            cpus: 1,
            disk: 256 << 20,
            tmp: 64 << 20,
            inodes: 4096,
            file_size: 64 << 20,
            open_files: 256,
            output: 64 << 20,
            output_kept: 32 * 1024,
            value: 16 * 1024,
            images: 10,
            image_bytes: 4 * 1024 * 1024,
            files: 20,
            captured_file: 32 << 20,
            captured_total: 64 << 20,
        }
    }
}

impl Tier {
    /// The name in logs, settings and metrics.
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
