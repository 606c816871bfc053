//! A launcher and its interpreter as processes: started, signalled, ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use super::SandboxError;
use super::launcher::ARGUMENT;
use super::launcher::spec::{FromLauncher, Spec};
use super::link::Link;

/// Longest time for the steps before Python begins.
const LAUNCH_LIMIT: Duration = Duration::from_secs(20);
/// Longest time for a whole tree to be killed and reaped.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The most that a pipe can hold.
const MAX_PIPE: usize = 1024 * 1024;

/// A launcher and what it started. Dropping it ends all of that without waiting.
#[derive(Debug)]
pub(super) struct Process {
    launcher: Child,
    link: Link,
    interpreter: OwnedFd,
    /// The worker's control socket.
    pub(super) control: UnixStream,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    /// The working directory, then other writable directories whose use counts as memory.
    pub(super) directories: Vec<OwnedFd>,
    /// The version of the kernel's Landlock interface.
    pub(super) landlock: i32,
    /// Whether the interpreter has a `/proc`.
    pub(super) proc: bool,
}

/// How an interpreter ended by itself.
#[derive(Debug)]
pub(super) enum Ended {
    /// It never began: which step before it failed, and why.
    Failed(String, io::Error),
    /// With an exit status.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Nobody knows: its launcher is gone.
    Unknown,
}

impl Process {
    /// Starts a launcher and has it start the interpreter.
    pub(super) async fn start(launcher: &Path, spec: &Spec) -> Result<Self, SandboxError> {
        let at = |step| move |source| SandboxError::Step { step, source };
        let (mut link, theirs) = Link::pair().map_err(at("making the launcher's socket"))?;
        let mut launcher = Command::new(launcher)
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(at("starting the launcher"))?;
        let (Some(stdout), Some(stderr)) = (launcher.stdout.take(), launcher.stderr.take()) else {
            return Err(at("making the output pipes")(
                io::ErrorKind::NotFound.into(),
            ));
        };
        let launched = timeout(LAUNCH_LIMIT, async {
            link.send(spec).await?;
            link.receive().await
        });
        let (message, descriptors) = launched
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(at("launching the interpreter"))?;
        let (landlock, proc) = match message {
            FromLauncher::Started { landlock, proc } => (landlock, proc),
            FromLauncher::Failed { step, errno } => {
                let source = io::Error::from_raw_os_error(errno);
                return Err(SandboxError::Launch { step, source });
            }
            FromLauncher::Ended { .. } => {
                let cause = io::ErrorKind::BrokenPipe.into();
                return Err(at("launching the interpreter")(cause));
            }
        };
        let mut descriptors = descriptors.into_iter();
        let (Some(control), Some(interpreter)) = (descriptors.next(), descriptors.next()) else {
            let cause = io::ErrorKind::InvalidData.into();
            return Err(at("launching the interpreter")(cause));
        };
        let control = StdStream::from(control);
        let control = control
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(control))
            .map_err(at("opening the control socket"))?;
        Ok(Self {
            launcher,
            link,
            interpreter,
            control,
            stdout,
            stderr,
            directories: descriptors.collect(),
            landlock,
            proc,
        })
    }

    /// The launcher's process number while it lives.
    pub(super) fn id(&self) -> Option<u32> {
        self.launcher.id()
    }

    /// Asks the running code to stop: raises `KeyboardInterrupt` in it.
    pub(super) fn interrupt(&self) -> io::Result<()> {
        rustix::process::pidfd_send_signal(&self.interpreter, Signal::INT).map_err(Into::into)
    }

    /// Closes the link, upon which the launcher ends everything, and waits for that.
    pub(super) async fn kill(&mut self) {
        self.link.close();
        if timeout(END_LIMIT, self.launcher.wait()).await.is_err() {
            tracing::error!("a code launcher did not end in time and is killed");
            let _may_have_ended = self.launcher.start_kill();
        }
    }
}

/// The parts of a process that a running call works with at the same time.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    pub(super) link: &'a mut Link,
    pub(super) control: &'a mut UnixStream,
    pub(super) stdout: &'a mut ChildStdout,
    pub(super) stderr: &'a mut ChildStderr,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(step, _) => write!(formatter, "{step} failed"),
            Self::Code(code) => write!(formatter, "the interpreter exited with status {code}"),
            Self::Signal(11) => formatter.write_str("the interpreter crashed: segmentation fault"),
            Self::Signal(9) => formatter.write_str("the interpreter was killed"),
            Self::Signal(signal) => {
                write!(formatter, "the interpreter was ended by signal {signal}")
            }
            Self::Unknown => formatter.write_str("the interpreter ended"),
        }
    }
}

impl Process {
    /// The ends of the channels, to wait on all at once.
    pub(super) fn ends(&mut self) -> Ends<'_> {
        Ends {
            link: &mut self.link,
            control: &mut self.control,
            stdout: &mut self.stdout,
            stderr: &mut self.stderr,
        }
    }
}

/// Waits until the interpreter has ended by itself.
///
/// # Cancel safety
/// A dropped future loses nothing.
pub(super) async fn ended(link: &mut Link) -> Ended {
    match link.receive().await {
        Ok((FromLauncher::Failed { step, errno }, _)) => {
            Ended::Failed(step, io::Error::from_raw_os_error(errno))
        }
        Ok((
            FromLauncher::Ended {
                code: Some(code), ..
            },
            _,
        )) => Ended::Code(code),
        Ok((
            FromLauncher::Ended {
                signal: Some(signal),
                ..
            },
            _,
        )) => Ended::Signal(signal),
        Ok(_) | Err(_) => Ended::Unknown,
    }
}

/// Takes what a pipe holds at this moment, without waiting for more: not all that comes meanwhile, as processes that
/// write without end would make that endless too.
pub(super) fn drain(pipe: impl AsFd, mut take: impl FnMut(&[u8])) {
    let mut buffer = [0_u8; 16 * 1024];
    let mut left = MAX_PIPE;
    while left > 0 {
        match rustix::io::read(&pipe, &mut buffer) {
            Ok(0) => return,
            Ok(read) => {
                left = left.saturating_sub(read);
                take(buffer.get(..read).unwrap_or_default());
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
