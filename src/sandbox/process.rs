//! An interpreter as a process, whoever isolates it: what it says, what it is told, how it ends.

pub(super) mod launched;
pub(super) mod relayed;

use std::io;
use std::os::fd::AsFd;

use bytes::BytesMut;

use self::launched::Launched;
use self::relayed::Relayed;
use super::OutputStream;
use super::launcher::spec::ToLauncher;

/// The most that a pipe can hold.
const MAX_PIPE: usize = 1024 * 1024;
/// Bytes read from a channel at a time.
const READ_SIZE: usize = 64 * 1024;

/// An interpreter and what it started. Dropping it ends all of that without waiting.
#[derive(Debug)]
pub(super) enum Process {
    /// By loopwright's own launcher; its channels are descriptors.
    Launched(Box<Launched>),
    /// By a command of the operator's; its channels are frames of the command's stdin and stdout.
    Relayed(Box<Relayed>),
}

/// What comes from an interpreter.
#[derive(Debug)]
pub(super) enum Event {
    /// Bytes of the control socket.
    Control(BytesMut),
    /// Output.
    Output(OutputStream, BytesMut),
    /// The control socket was closed.
    Closed,
    /// What no relay of ours sends; nothing can be heard any more.
    Violation,
    /// The interpreter has ended by itself.
    Ended(Ended),
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
    /// With the command that isolates it.
    Command,
    /// Nobody knows: its launcher is gone.
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

    /// What comes next.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(super) async fn next(&mut self) -> Event {
        match self {
            Self::Launched(process) => process.next().await,
            Self::Relayed(process) => process.next().await,
        }
    }

    /// Waits until the interpreter has ended by itself.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(super) async fn ended(&mut self) -> Ended {
        match self {
            Self::Launched(process) => process.ended().await,
            Self::Relayed(process) => process.ended().await,
        }
    }

    /// Takes the output that is there at this moment, without waiting for more.
    pub(super) fn take_output(&mut self, take: impl FnMut(OutputStream, &[u8])) {
        match self {
            Self::Launched(process) => process.take_output(take),
            Self::Relayed(process) => process.take_output(take),
        }
    }

    /// Asks the running code to stop: raises `KeyboardInterrupt` in it.
    pub(super) fn interrupt(&mut self) -> io::Result<()> {
        match self {
            Self::Launched(process) => process.interrupt(),
            Self::Relayed(process) => {
                process.interrupt();
                Ok(())
            }
        }
    }

    /// Stops the interpreter and everything that it started where they are. What a command isolates is not in reach:
    /// there it goes on.
    pub(super) fn pause(&self) {
        match self {
            Self::Launched(process) => process.order(ToLauncher::Pause),
            Self::Relayed(_) => {}
        }
    }

    /// Has what was paused go on.
    pub(super) fn resume(&self) {
        match self {
            Self::Launched(process) => process.order(ToLauncher::Resume),
            Self::Relayed(_) => {}
        }
    }

    /// Ends the code and what it started. The files can be had still.
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

    /// What the isolating command itself wrote to stderr, for the operator.
    pub(super) fn said(&mut self) -> String {
        match self {
            Self::Launched(_) => String::new(),
            Self::Relayed(process) => process.said(),
        }
    }
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
            Self::Command => formatter.write_str("the interpreter ended with its isolation"),
            Self::Unknown => formatter.write_str("the interpreter ended"),
        }
    }
}

/// Takes what a pipe holds at this moment, without waiting for more: not all that comes meanwhile, as processes that
/// write without end would make that endless too.
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
