//! Starts the agent in a temporary directory, passes signals on to it, and removes the directory once it has ended.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal as SignalNumber, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::LaunchError;
use super::agents::{AgentSetup, HOME, TEMPORARY};
use crate::config::LaunchConfig;

/// Number that is added to that of a signal in the exit status of a process that it has ended, as shells do.
const SIGNAL_STATUS: i32 = 128;

/// The signals that end a process.
#[derive(Debug)]
struct PassedSignals {
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// Runs the agent to its end; returns its exit status.
pub(super) async fn run(config: &LaunchConfig, setup: &AgentSetup) -> Result<u8, LaunchError> {
    // Before the agent starts, so that no signal ends this process while the directory exists.
    let mut signals = PassedSignals::listen().map_err(LaunchError::Signals)?;
    let directory = prepared(setup).map_err(LaunchError::Directory)?;
    let mut command = Command::new(setup.program);
    command.args(&config.arguments).kill_on_drop(true);
    for name in setup.cleared(config) {
        command.env_remove(name);
    }
    for variable in &setup.variables {
        command.env(variable.name, variable.value.text(directory.path()));
    }
    let mut child = command.spawn().map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => LaunchError::NotInstalled {
            program: setup.program,
            install: setup.install,
        },
        _ => LaunchError::Start {
            program: setup.program,
            cause,
        },
    })?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            passed = signals.next() => pass_on(&child, passed),
        }
    };
    let status = status.map_err(|cause| LaunchError::Start {
        program: setup.program,
        cause,
    })?;
    let path = directory.path().to_owned();
    if let Err(error) = directory.close() {
        // Something that the agent has left behind may still write.
        let path = path.display();
        let _stderr_may_be_closed = writeln!(
            io::stderr(),
            "loopwright: the directory {path} stays and can be removed: {error}"
        );
    }
    Ok(status_number(status))
}

/// The directory with the files of the agent. Only this user can read it.
fn prepared(setup: &AgentSetup) -> io::Result<TempDir> {
    let directory = tempfile::Builder::new()
        .prefix("loopwright-launch-")
        .tempdir()?;
    for name in [HOME, TEMPORARY] {
        fs::create_dir(directory.path().join(name))?;
    }
    for file in &setup.files {
        fs::write(directory.path().join(Path::new(file.path)), &file.content)?;
    }
    Ok(directory)
}

fn pass_on(child: &Child, number: SignalNumber) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        let _it_may_have_ended = kill_process(pid, number);
    }
}

/// The exit status as a shell gives it.
fn status_number(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|number| SIGNAL_STATUS + number);
    let number = status.code().or_else(by_signal);
    number
        .and_then(|number| u8::try_from(number).ok())
        .unwrap_or(u8::MAX)
}

impl PassedSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal that the agent has not got yet. The keys of a terminal reach the agent as well as this process.
    async fn next(&mut self) -> SignalNumber {
        let of_keys = io::stdin().is_terminal();
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => if !of_keys { return SignalNumber::INT },
                _ = self.quit.recv() => if !of_keys { return SignalNumber::QUIT },
                _ = self.terminate.recv() => return SignalNumber::TERM,
                _ = self.hangup.recv() => return SignalNumber::HUP,
            }
        }
    }
}
