//! The requests to an interpreter and their results.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::settings::Tier;
use blobs::Blob;

/// One piece of code to run.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// The Python source.
    pub code: &'a str,
    /// Files to return even if they did not change: paths relative to the working directory.
    pub outputs: &'a [String],
    /// Files that belong in the working directory.
    pub inputs: &'a [WorkFile],
    /// Longest time.
    pub timeout: Duration,
}

/// A stored file that belongs in the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkFile {
    /// Unique id: each file is placed once in the life of a workspace, so code may change or delete it.
    pub id: String,
    /// The file name to give it. An existing file is not overwritten; the name gets a number instead.
    pub name: String,
    /// The content.
    pub content: Blob,
    /// Whether code of the workspace made it, so that only an interpreter without the workspace's files lacks it.
    pub is_produced: bool,
}

/// Receives the output of a cell while it runs, piece by piece and without control sequences. Must not block.
pub type OutputListener<'a> = &'a (dyn Fn(OutputStream, &str) + Send + Sync);

/// Which stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// The result of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellOutcome {
    /// Output to stdout, truncated in the middle with a note.
    pub stdout: String,
    /// Output to stderr, likewise.
    pub stderr: String,
    /// The value of the last expression.
    pub value: Option<Value>,
    /// Displayed objects that are text, in order.
    pub texts: Vec<String>,
    /// The exception that ended the cell.
    pub error: Option<CellError>,
    /// Figures and displayed images, in order.
    pub images: Vec<Image>,
    /// Frames of animations.
    pub frames: Vec<Image>,
    /// New and changed files of the working directory, and the requested ones.
    pub files: Vec<CapturedFile>,
    /// Further notices for the model: truncated output, files that were not returned and why, lost variables.
    pub notices: Vec<String>,
    /// How the cell ended.
    pub end: CellEnd,
    /// How long the code ran.
    pub elapsed: Duration,
    /// The working directory as the code sees it.
    pub working_directory: String,
}

/// The value of a cell's last expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Its text.
    pub text: String,
    /// The name of its class.
    pub kind: String,
}

/// An exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellError {
    /// The class of the exception.
    pub name: String,
    /// The message.
    pub message: String,
    /// The traceback as Python prints it, with the cell's own lines only.
    pub traceback: String,
}

/// An image whose format has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png` or `image/jpeg`.
    pub mime_type: &'static str,
    /// The encoded image.
    pub bytes: Bytes,
}

/// A file returned from the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedFile {
    /// The path relative to the working directory.
    pub name: String,
    /// The content.
    pub bytes: Bytes,
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellEnd {
    /// The code ended, with or without an exception.
    Completed,
    /// Time ran out and the code was interrupted: variables are kept.
    Interrupted,
    /// Time ran out and the interrupt was ignored: variables are lost, files are kept.
    TimedOut,
    /// A limit was exceeded and the interpreter was ended: variables are lost, files are kept.
    LimitExceeded(ResourceLimit),
    /// The interpreter exited by itself: variables are lost, files are kept.
    Crashed,
}

/// A limit; exceeding it ends the interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceLimit {
    /// Memory of all its processes.
    Memory,
    /// Disk space or number of files.
    Disk,
    /// Processes and threads at the same time.
    Processes,
    /// Output in one cell.
    Output,
    /// Protocol violations: messages that the worker program never sends.
    Protocol,
}

/// A file of the working directory, as reported to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkingFile {
    /// The path relative to the working directory.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// Time of the last change, in seconds since 1970.
    pub modified: i64,
}

/// Part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    /// The requested bytes, fewer at the end of the file.
    pub bytes: Bytes,
    /// The size of the whole file in bytes.
    pub size: u64,
}

/// A result with notices for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithNotices<T> {
    /// The result.
    pub value: T,
    /// Such as lost variables, or a user's file that got another name.
    pub notices: Vec<String>,
}

impl<T> std::ops::Deref for WithNotices<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Why a call failed. The texts are for the model.
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// Every interpreter is busy and the queue is full.
    #[error("too many code calls are waiting; try again later")]
    Overloaded,
    /// No interpreter could be started.
    #[error("the Python interpreter could not be started")]
    Start(#[source] SandboxError),
    /// A file that cannot be read.
    #[error("'{name}' cannot be read: {problem}")]
    File {
        /// The requested name.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The workspace was deleted while the call waited.
    #[error("the conversation was deleted, and its interpreter with it")]
    Forgotten,
    /// The server is shutting down.
    #[error("code execution is shutting down")]
    Closed,
}

/// Why an interpreter could not be started. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The host does not allow the required isolation.
    #[error("{0}")]
    Unavailable(String),
    /// There is no usable Python at the configured place.
    #[error("{0}")]
    NoPython(String),
    /// A step inside the launcher failed.
    #[error("{step} failed")]
    Launch {
        /// Which step.
        step: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Python did not start.
    #[error("Python did not start: {stderr}")]
    Python {
        /// The last lines of its stderr.
        stderr: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A step of starting an interpreter failed.
    #[error("{step} failed")]
    Step {
        /// Which step.
        step: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// The result of the self-test: the isolation that every interpreter gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IsolationReport {
    /// The tier.
    pub level: Tier,
    /// Name and state of each property, such as `network` and `none (netns + seccomp)`.
    pub properties: Vec<(&'static str, String)>,
    /// What is missing for a stronger tier, with the reason and the remedy.
    pub missing: Vec<String>,
    /// Other deviations from the configuration, with the remedy.
    pub problems: Vec<String>,
    /// The interpreter, such as `3.11.7`.
    pub python: String,
    /// Packages to mention to the model, such as `numpy 2.4.0`.
    pub packages: Vec<String>,
}

/// Current numbers of interpreters, and totals since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Live interpreters, including spares.
    pub workers: usize,
    /// Interpreters that run a cell.
    pub busy: usize,
    /// Interpreters that have no workspace yet.
    pub spares: usize,
    /// Calls that wait for an interpreter.
    pub waiting: usize,
    /// Interpreters started.
    pub started: u64,
    /// Interpreters ended to free capacity or because they were idle.
    pub evicted: u64,
    /// Interpreters that crashed or had to be killed.
    pub killed: u64,
}

/// A range of a file.
#[derive(Debug, Clone, Copy)]
pub struct FileRange<'a> {
    /// The path relative to the working directory.
    pub name: &'a str,
    /// The first byte.
    pub offset: u64,
    /// Most bytes.
    pub max_bytes: u64,
}
