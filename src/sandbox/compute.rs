//! Processes of this binary that can only compute, for parsing untrusted documents.
//!
//! A [`Computer`] is the server's end. The process at the other end calls [`serve`], which gives up privileges, files,
//! sockets, new processes and threads, and memory beyond a limit before it reads the first byte. One socket remains for
//! requests and answers, each prefixed with its length. If a step of the confinement fails, nothing is parsed.

mod child;
mod confine;
mod filter;
mod probe;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

pub use child::serve;
pub use probe::{ProbeResult, attempts};

/// The first message of a confined process.
const READY: &[u8] = b"ready";
/// The allocator reserves a gibibyte by default, which would defeat the memory limit.
const RESERVE: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "16M");

/// Settings of compute processes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This binary.
    pub program: PathBuf,
    /// The first argument that makes the binary call [`serve`].
    pub argument: &'static str,
    /// Memory limit beyond the size of the program, in bytes.
    pub memory: u64,
    /// Processor time limit for the life of a process, in seconds.
    pub cpu_seconds: u64,
    /// Longest answer, in bytes.
    pub max_answer: usize,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// The process could not be started.
    #[error("a process for parsing cannot be started")]
    Start(#[source] io::Error),
    /// The process could not be confined and refuses to work.
    #[error("a process for parsing cannot be confined: {0}")]
    Confine(String),
    /// The process ended before it answered.
    #[error("the process for parsing ended: {0}")]
    Ended(String),
    /// The answer exceeds the limit.
    #[error("the answer of {0} bytes is too long")]
    TooLong(usize),
}

/// A compute process. Dropping it kills the process.
#[derive(Debug)]
pub struct Computer {
    child: Child,
    socket: UnixStream,
    max_answer: usize,
}

impl Computer {
    /// Starts a process and waits until it is confined.
    ///
    /// # Errors
    /// When it cannot be started or confined.
    ///
    /// # Cancel safety
    /// Dropping the future kills the process.
    pub async fn start(settings: &Settings) -> Result<Self, ComputeError> {
        let (ours, theirs) = StdStream::pair().map_err(ComputeError::Start)?;
        let socket = ours
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(ours))
            .map_err(ComputeError::Start)?;
        let child = Command::new(&settings.program)
            .arg(settings.argument)
            .arg(settings.memory.to_string())
            .arg(settings.cpu_seconds.to_string())
            .env_clear()
            .env(RESERVE.0, RESERVE.1)
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(ComputeError::Start)?;
        let mut computer = Self {
            child,
            socket,
            max_answer: settings.max_answer,
        };
        let greeting = computer.answer().await?;
        if greeting != READY {
            let failed = String::from_utf8_lossy(&greeting).into_owned();
            return Err(ComputeError::Confine(failed));
        }
        Ok(computer)
    }

    /// The process id while the process lives.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Whether the process has not ended yet.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When the process ends or its answer is too long. The process is unusable then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the answer is still pending: the process must be dropped too.
    pub async fn ask(&mut self, request: &[&[u8]]) -> Result<Vec<u8>, ComputeError> {
        let length: usize = request.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).map_err(|_| ComputeError::TooLong(length))?;
        let sent = async {
            self.socket.write_all(&length.to_le_bytes()).await?;
            for part in request {
                self.socket.write_all(part).await?;
            }
            Ok::<(), io::Error>(())
        };
        if sent.await.is_err() {
            return Err(self.ended().await);
        }
        self.answer().await
    }

    /// Kills the process and waits for its end.
    pub async fn kill(mut self) {
        let _may_have_ended = self.child.kill().await;
    }

    async fn answer(&mut self) -> Result<Vec<u8>, ComputeError> {
        let Ok(length) = self.socket.read_u32_le().await else {
            return Err(self.ended().await);
        };
        let length = length as usize;
        if length > self.max_answer {
            return Err(ComputeError::TooLong(length));
        }
        let mut answer = vec![0; length];
        match self.socket.read_exact(&mut answer).await {
            Ok(_) => Ok(answer),
            Err(_) => Err(self.ended().await),
        }
    }

    /// Ends a process whose socket is closed and reports its exit.
    async fn ended(&mut self) -> ComputeError {
        // A process that closed its socket but still runs is unusable, too.
        let _may_have_ended = self.child.start_kill();
        let how = self.child.wait().await;
        ComputeError::Ended(how.map_or_else(|error| error.to_string(), |how| how.to_string()))
    }
}
