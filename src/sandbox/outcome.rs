//! What is asked of an interpreter and what comes of it: the vocabulary of code execution.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::settings::Tier;

/// One piece of code to run.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// The Python source.
    pub code: &'a str,
    /// Files of the working directory to hand back even if they did not change: paths relative to it.
    pub outputs: &'a [String],
    /// Files that belong in the working directory.
    pub inputs: &'a [WorkFile],
    /// Longest time.
    pub timeout: Duration,
}

/// A stored file that belongs in the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkFile {
    /// Tells it from others: a file is placed once in the life of a workspace, so that code may change or delete it.
    pub id: String,
    /// The plain file name that it gets; another file of that name is not overwritten, the name gets a number instead.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// Where the content is.
    pub path: PathBuf,
}

/// Hears the output of a cell as it comes.
pub trait Live: Send + Sync {
    /// A piece of output: valid text, cleaned of control sequences. Must not block.
    fn output(&self, stream: OutputStream, text: &str);
}

/// Which stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// What a cell came to.
#[derive(Debug, Clone, PartialEq)]
pub struct CellOutcome {
    /// What was written to stdout: bounded, with a note where something is left out.
    pub stdout: String,
    /// What was written to stderr, likewise.
    pub stderr: String,
    /// The value of the last expression.
    pub value: Option<Value>,
    /// Displayed objects that are text, in their order.
    pub texts: Vec<String>,
    /// The exception that ended the cell.
    pub error: Option<CellError>,
    /// Figures and displayed images, in their order.
    pub images: Vec<Image>,
    /// Frames of animations.
    pub frames: Vec<Image>,
    /// New and changed files of the working directory, and those asked for.
    pub files: Vec<CapturedFile>,
    /// What the model should know besides: output that was cut, files that were not taken and why, variables lost.
    pub notices: Vec<String>,
    /// How the cell ended.
    pub end: CellEnd,
    /// How long the code ran.
    pub elapsed: Duration,
    /// Where the code ran, as the code sees it.
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
    /// The class.
    pub name: String,
    /// The message.
    pub message: String,
    /// The traceback as Python prints it, the cell's own lines only.
    pub traceback: String,
}

/// An image whose header has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png` or `image/jpeg`.
    pub mime_type: &'static str,
    /// The file.
    pub bytes: Bytes,
}

/// A file taken out of the working directory.
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
    /// By itself, with or without an exception.
    Completed,
    /// Out of time and interrupted: variables kept.
    Interrupted,
    /// Out of time and it would not be interrupted: variables lost, files kept.
    TimedOut,
    /// A limit was passed and the interpreter was ended: variables lost, files kept.
    LimitPassed(Limit),
    /// The interpreter ended on its own: variables lost, files kept.
    Crashed,
}

/// A limit whose passing ends the interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Memory of all its processes.
    Memory,
    /// Disk space or number of files.
    Disk,
    /// Processes and threads at the same time.
    Processes,
    /// Output in one cell.
    Output,
    /// Messages that no interpreter of ours sends.
    Protocol,
}

/// A file of the working directory as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkingFile {
    /// The path relative to the working directory.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// When it was last changed, in seconds since 1970.
    pub modified: i64,
}

/// The beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    /// At most as many bytes as were asked for, from the offset on.
    pub bytes: Bytes,
    /// The size of the whole file in bytes.
    pub size: u64,
}

/// What a call came to, and what the model should know besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told<T> {
    /// The result.
    pub value: T,
    /// For the model: variables lost, a file of the user's that got another name.
    pub notices: Vec<String>,
}

impl<T> std::ops::Deref for Told<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Why a call could not be made. The texts are for the model.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Every interpreter is busy and too many calls wait already.
    #[error("too many code calls are waiting; try again later")]
    Overloaded,
    /// No interpreter could be started.
    #[error("the Python interpreter could not be started")]
    Start(#[source] SandboxError),
    /// A file that cannot be read: its name and what is wrong.
    #[error("'{name}' cannot be read: {problem}")]
    File {
        /// The name that was asked for.
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

/// Why isolation could not be built. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The host cannot form what is required.
    #[error("{0}")]
    Unavailable(String),
    /// There is no usable Python where the settings say.
    #[error("{0}")]
    NoPython(String),
    /// A step that a launcher reports failed.
    #[error("{step} failed")]
    Launch {
        /// Which step.
        step: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Python did not come up: what it said.
    #[error("Python did not start: {said}")]
    Python {
        /// The last lines of its stderr.
        said: String,
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

/// What the self-test found: the isolation that every interpreter gets, property by property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The tier.
    pub level: Tier,
    /// Name and state of each property, such as `network` and `none (netns + seccomp)`.
    pub properties: Vec<(&'static str, String)>,
    /// What is missing for a stronger tier, why, and the remedy.
    pub missing: Vec<String>,
    /// What else is not as configured, and the remedy; none of it is about isolation.
    pub problems: Vec<String>,
    /// The interpreter, such as `3.11.7`.
    pub python: String,
    /// Packages worth naming to the model, such as `numpy 2.4.0`.
    pub packages: Vec<String>,
}

/// Interpreters at this moment, and what happened since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Live interpreters, spares included.
    pub workers: usize,
    /// Those that run a cell.
    pub busy: usize,
    /// Those that wait for a workspace.
    pub spares: usize,
    /// Calls that wait for an interpreter.
    pub waiting: usize,
    /// Interpreters started.
    pub started: u64,
    /// Interpreters ended to make room or because they were idle.
    pub evicted: u64,
    /// Interpreters that crashed or had to be killed.
    pub killed: u64,
}

/// Which part of which file.
#[derive(Debug, Clone, Copy)]
pub struct FilePart<'a> {
    /// The path relative to the working directory.
    pub name: &'a str,
    /// The first byte.
    pub offset: u64,
    /// Most bytes.
    pub max_bytes: u64,
}
