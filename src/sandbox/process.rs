//! The process of an interpreter, however it is isolated: events, commands, exit.

pub(super) mod launched;
pub(super) mod relayed;

use std::io;
use std::os::fd::AsFd;

use bytes::BytesMut;

use self::launched::LaunchedProcess;
use self::relayed::RelayedProcess;
use super::OutputStream;
use super::launcher::spec::LauncherCommand;

/// Most bytes that are taken from a pipe without waiting: all that a pipe can hold.
const MAX_PIPE: usize = 1024 * 1024;
/// Size of a read from a channel, in bytes.
const READ_SIZE: usize = 64 * 1024;

/// An interpreter and its processes. Dropping it ends all of them without waiting.
#[derive(Debug)]
pub(super) enum Process {
    /// Isolated by the launcher; its channels are descriptors.
    Launched(Box<LaunchedProcess>),
    /// Isolated by the operator's command; its channels are frames on the command's stdin and stdout.
    Relayed(Box<RelayedProcess>),
}

/// An event of an interpreter.
#[derive(Debug)]
pub(super) enum ProcessEvent {
    /// Bytes of the control socket.
    Control(BytesMut),
    Output(OutputStream, BytesMut),
    /// The control socket was closed.
    Closed,
    /// A protocol violation by the relay; the connection is lost.
    Violation,
    /// The interpreter has exited by itself.
    Ended(ProcessExit),
}

/// How an interpreter exited by itself.
#[derive(Debug)]
pub(super) enum ProcessExit {
    /// A launch step failed: its name and cause.
    Failed(String, io::Error),
    /// With an exit status.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// The isolating command ended.
    Command,
    /// Unknown, because its launcher has ended.
    Unknown,
}

impl Process {
    /// Queues bytes for the control socket; they are written while [`Process::next`] waits.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Launched(process) => process.send(bytes),
            Self::Relayed(process) => process.send(bytes),
        }
    }

    /// Waits for the next event.
    ///
    /// # Cancel safety
    /// A dropped future loses no event.
    pub(super) async fn next(&mut self) -> ProcessEvent {
        match self {
            Self::Launched(process) => process.next().await,
            Self::Relayed(process) => process.next().await,
        }
    }

    /// Waits until the interpreter has exited by itself.
    ///
    /// # Cancel safety
    /// A dropped future loses no event.
    pub(super) async fn ended(&mut self) -> ProcessExit {
        match self {
            Self::Launched(process) => process.ended().await,
            Self::Relayed(process) => process.ended().await,
        }
    }

    /// Takes the output that is available, without waiting for more.
    pub(super) fn take_output(&mut self, take: impl FnMut(OutputStream, &[u8])) {
        match self {
            Self::Launched(process) => process.take_output(take),
            Self::Relayed(process) => process.take_output(take),
        }
    }

    /// Raises `KeyboardInterrupt` in the running code.
    pub(super) fn interrupt(&mut self) -> io::Result<()> {
        match self {
            Self::Launched(process) => process.interrupt(),
            Self::Relayed(process) => {
                process.interrupt();
                Ok(())
            }
        }
    }

    /// Suspends the interpreter and its processes. Processes behind a command cannot be suspended; they continue.
    pub(super) fn pause(&self) {
        match self {
            Self::Launched(process) => process.send_command(LauncherCommand::Pause),
            Self::Relayed(_) => {}
        }
    }

    /// Resumes suspended processes.
    pub(super) fn resume(&self) {
        match self {
            Self::Launched(process) => process.send_command(LauncherCommand::Resume),
            Self::Relayed(_) => {}
        }
    }

    /// Ends the code and its processes. The files stay accessible.
    pub(super) async fn stop(&mut self) {
        match self {
            Self::Launched(process) => process.kill().await,
            Self::Relayed(process) => process.stop().await,
        }
    }

    /// Ends everything and waits for that.
    pub(super) async fn kill(&mut self) {
        match self {
            Self::Launched(process) => process.kill().await,
            Self::Relayed(process) => process.kill().await,
        }
    }

    /// Takes what the isolating command itself wrote to stderr, for the operator.
    pub(super) fn command_stderr(&mut self) -> String {
        match self {
            Self::Launched(_) => String::new(),
            Self::Relayed(process) => process.command_stderr(),
        }
    }
}

impl std::fmt::Display for ProcessExit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(step, _) => write!(formatter, "{step} failed"),
            Self::Code(code) => write!(formatter, "the interpreter exited with status {code}"),
            Self::Signal(11) => formatter.write_str("the interpreter crashed: segmentation fault"),
            Self::Signal(9) => formatter.write_str("the interpreter was killed"),
            Self::Signal(signal) => {
                write!(formatter, "the interpreter was ended by signal {signal}")
            }
            Self::Command => formatter.write_str("the interpreter ended with its isolation"),
            Self::Unknown => formatter.write_str("the interpreter ended"),
        }
    }
}

/// Reads what a pipe holds, without waiting for more. `most` bounds it, because processes may write faster than this
/// reads.
fn drain(pipe: impl AsFd, most: usize, mut take: impl FnMut(&[u8])) {
    let mut buffer = [0_u8; 16 * 1024];
    let mut taken = 0;
    while taken < most {
        match rustix::io::read(&pipe, &mut buffer) {
            Ok(0) => return,
            Ok(read) => {
                taken += read;
                take(buffer.get(..read).unwrap_or_default());
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
