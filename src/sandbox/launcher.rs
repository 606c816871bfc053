//! The process that builds isolation around one interpreter: this binary, run again under a hidden name.
//!
//! Reads its [`Spec`] from descriptor 0, a socket to the server ([`server_socket`]), makes namespaces and a root of
//! its own where the form asks for them, starts Python with its rights taken away, hands the server the descriptors that
//! it works with, and stays as supervisor: when the interpreter ends or the server closes the link, everything that the
//! interpreter started is ended too. Has one thread from beginning to end, so forking is safe in it.

mod filter;
pub(super) mod identity;
mod init;
mod limits;
mod namespaces;
pub(super) mod raw;
mod root;
mod rules;
mod server_socket;
pub(super) mod spec;
mod worker;

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use server_socket::ServerSocket;
use spec::{LauncherMessage, Spec};

/// The hidden name under which the binary is a launcher: its first argument.
pub const ARGUMENT: &str = "sandbox-launcher";

/// A step that failed.
#[derive(Debug)]
pub(super) struct StepError {
    pub(super) step: &'static str,
    pub(super) source: io::Error,
}

/// A shorthand for the steps of a launch.
pub(super) type StepResult<T> = Result<T, StepError>;

/// Says which step an error belongs to.
pub(super) trait AtStep<T> {
    fn at(self, step: &'static str) -> StepResult<T>;
}

impl<T, E: Into<io::Error>> AtStep<T> for Result<T, E> {
    fn at(self, step: &'static str) -> StepResult<T> {
        self.map_err(|error| StepError {
            step,
            source: error.into(),
        })
    }
}

/// The descriptors that the server gets.
#[derive(Debug)]
struct Descriptors {
    /// Its end of the worker's control socket.
    control: OwnedFd,
    /// The interpreter, as a process to signal.
    process: OwnedFd,
    /// The working directory, then other writable directories whose use counts as memory.
    directories: Vec<OwnedFd>,
}

/// Runs as launcher until the interpreter has ended.
pub fn main() -> ExitCode {
    let Ok(mut server) = ServerSocket::from_stdin() else {
        // Nobody to tell: this was not started by a server.
        return ExitCode::FAILURE;
    };
    let outcome = server.receive().at("reading the launch order");
    match outcome.and_then(|spec| launch(&spec, &mut server)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&mut server, &failure);
            ExitCode::FAILURE
        }
    }
}

fn launch(spec: &Spec, server: &mut ServerSocket) -> StepResult<()> {
    raw::close_all_but(server).at("closing descriptors")?;
    rustix::process::setsid().at("starting a session")?;
    // Not all memory that the kernel spends on a process can be measured: where it runs out, interpreters go first.
    let _without_proc_nothing_changes = std::fs::write("/proc/self/oom_score_adj", "1000");
    if spec.isolation.has_namespaces() {
        namespaces::enter(spec)?;
        namespaces::run_as_first(server, |server| init::run(spec, server))
    } else {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .at("becoming the reaper of orphans")?;
        init::run(spec, server)
    }
}

/// Tells the server what failed; a server that is gone need not know.
fn tell(server: &mut ServerSocket, failure: &StepError) {
    let message = LauncherMessage::Failed {
        step: failure.step.to_owned(),
        errno: failure.source.raw_os_error().unwrap_or(0),
    };
    let _server_may_be_gone = server.send(&message, &[]);
}
