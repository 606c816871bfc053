//! The process of an MCP server: started through a guard, its standard error logged, ended for good.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::guard::{MCP_GUARD, NOT_STARTED};
use super::read_rate::{MESSAGE_BYTES, ReadRate};
use crate::settings::mcp::{McpCommand, OWNER_PLACEHOLDER};
use protocol::ids::Owner;

/// How long a server may take to end once its standard input is closed. After it the guard ends it.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// How long the guard may take to end a server that does not end by itself. After it the log says that the process does
/// not end.
const GUARD_LIMIT: Duration = Duration::from_secs(2);
/// Longest line of standard error that is logged, in bytes; the rest is another line.
/// Tried by `hostile::servers_that_never_stop_printing_harm_no_other_and_take_no_memory`.
const MAX_LINE_BYTES: usize = 1024;
/// Most lines of standard error that are logged per interval; the others are counted.
/// Tried by `hostile::servers_that_never_stop_printing_harm_no_other_and_take_no_memory`.
const MAX_LINES: u32 = 50;
/// How long the interval of lines on standard error lasts.
const LINES_INTERVAL: Duration = Duration::from_secs(10);

/// The process of a server. When this is dropped, the guard ends the process.
#[derive(Debug)]
pub(super) struct GuardedProcess {
    guard: Child,
    /// What it starts, for the reason of an end.
    program: String,
    /// Its end closes standard error, for which the guard ends the process.
    stderr: Option<DropGuard>,
}

/// The owner that a process serves.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProcessUser<'a> {
    Owner(&'a Owner),
    /// All owners.
    All,
    /// No owner: it only lists its tools.
    Nobody,
}

/// The channels of a server's process.
#[derive(Debug)]
pub(super) struct ServerPipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
}

impl ProcessUser<'_> {
    /// Names the files of a process. The names of keys hold no `~` and no `/`.
    fn file_name(self) -> String {
        match self {
            Self::Owner(owner) => match owner.name() {
                // Such a name would be a directory or hidden.
                Some(name) if name.starts_with('.') => format!("~{name}"),
                Some(name) => name.to_owned(),
                None => "~all".to_owned(),
            },
            Self::All => "~all".to_owned(),
            Self::Nobody => "~list".to_owned(),
        }
    }
}

impl GuardedProcess {
    /// Starts a server. Its standard error goes to the log under the server's name.
    ///
    /// # Errors
    /// When the guard cannot be started. A program that does not exist is seen when its output ends.
    pub(super) fn start(
        rate: &ReadRate,
        command: &McpCommand,
        user: ProcessUser<'_>,
        guard: &Path,
        tasks: &TaskTracker,
    ) -> io::Result<(Self, ServerPipes)> {
        let text = |text: &str| text.replace(OWNER_PLACEHOLDER, &user.file_name());
        let args = command.args.iter().map(ExposeSecret::expose_secret);
        let env = command.env.iter();
        let mut start = Command::new(guard);
        start
            .arg(MCP_GUARD)
            .arg(&command.program)
            .args(args.map(text))
            .env_clear()
            .envs(env.map(|(name, value)| (name, text(value.expose_secret()))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal from the terminal is for this process, which drains first.
            .process_group(0);
        if let Some(directory) = &command.cwd {
            start.current_dir(text(&directory.to_string_lossy()));
        }
        let mut guard = start.spawn()?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (guard.stdin.take(), guard.stdout.take(), guard.stderr.take())
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let stop = CancellationToken::new();
        tasks.spawn(
            stop.clone()
                .run_until_cancelled_owned(log(rate.apart(), stderr)),
        );
        let process = Self {
            guard,
            program: command.program.clone(),
            stderr: Some(stop.drop_guard()),
        };
        Ok((process, ServerPipes { stdin, stdout }))
    }

    /// Waits for a process whose standard input is closed, and has the guard end it if it does not end. Returns how it
    /// ended. Cancel safe.
    pub(super) async fn close(&mut self) -> String {
        let ended = timeout(CLOSE_LIMIT, self.guard.wait()).await;
        let ended = match ended {
            Ok(status) => Ok(status),
            Err(_elapsed) => {
                self.stderr = None;
                timeout(GUARD_LIMIT, self.guard.wait()).await
            }
        };
        match ended {
            Ok(status) => self.ending(status.ok().and_then(|status| status.code())),
            Err(_elapsed) => "its process does not end".to_owned(),
        }
    }

    fn ending(&self, code: Option<i32>) -> String {
        match code {
            Some(code) if code == i32::from(NOT_STARTED) => {
                format!("its program `{}` could not be started", self.program)
            }
            Some(code) => format!("its process ended with status {code}"),
            None => "its process was killed".to_owned(),
        }
    }
}

/// Logs lines of standard error, at a rate that an operator can read.
async fn log(rate: ReadRate, stderr: ChildStderr) {
    let server = &**rate.server();
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    let (mut since, mut logged, mut left_out) = (Instant::now(), 0, 0_u64);
    loop {
        rate.ready().await;
        line.clear();
        let most = MAX_LINE_BYTES as u64;
        match (&mut lines).take(most).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(read) => rate.take(read + MESSAGE_BYTES),
        }
        if since.elapsed() >= LINES_INTERVAL {
            if left_out > 0 {
                tracing::info!(
                    server,
                    left_out,
                    "the MCP server wrote more lines than are logged"
                );
            }
            (since, logged, left_out) = (Instant::now(), 0, 0);
        }
        if logged < MAX_LINES {
            logged += 1;
            let text = String::from_utf8_lossy(&line);
            let text: String = text
                .trim_end()
                .chars()
                .filter(|c| !c.is_control())
                .collect();
            if !text.is_empty() {
                tracing::info!(server, text, "MCP server");
            }
        } else {
            left_out += 1;
        }
    }
}
