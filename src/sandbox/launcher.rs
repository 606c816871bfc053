//! The launcher process: this binary, run again under a hidden name, which sets up isolation for one interpreter.
//!
//! Reads its [`Spec`] from descriptor 0, a socket to the server ([`server_socket`]), sets up namespaces and a private
//! root if the spec asks for them, starts Python with reduced rights, and sends the server the descriptors it needs.
//! Then it stays as supervisor: when the interpreter exits or the server closes the socket, it ends everything the
//! interpreter started. The launcher has a single thread for its whole life, so forking is safe.

mod filter;
pub(super) mod identity;
mod init;
mod limits;
mod namespaces;
pub(super) mod raw;
mod root;
mod rules;
pub(super) mod server_socket;
pub(super) mod spec;

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use server_socket::ServerSocket;
use spec::{CONTROL_FD, LauncherMessage, Spec};

/// The first argument that makes the binary a launcher.
pub const ARGUMENT: &str = "sandbox-launcher";

/// A step that failed.
#[derive(Debug)]
pub(super) struct StepError {
    pub(super) step: &'static str,
    pub(super) source: io::Error,
}

/// The result of a launch step.
pub(super) type StepResult<T> = Result<T, StepError>;

/// Adds the step's name to an error.
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

/// The descriptors sent to the server.
#[derive(Debug)]
struct Descriptors {
    /// The server's end of the worker's control socket.
    control: OwnedFd,
    /// A pidfd of the interpreter, for signals.
    process: OwnedFd,
    /// The working directory, then other writable directories whose use counts as memory.
    directories: Vec<OwnedFd>,
}

/// Runs as launcher until the interpreter has exited.
pub fn main() -> ExitCode {
    let Ok(mut server) = ServerSocket::from_stdin() else {
        // The process was not started by a server, so the failure cannot be reported.
        return ExitCode::FAILURE;
    };
    let outcome = server.receive().at("reading the launch specification");
    match outcome.and_then(|spec| launch(&spec, &mut server)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report_failure(&mut server, &failure);
            ExitCode::FAILURE
        }
    }
}

fn launch(spec: &Spec, server: &mut ServerSocket) -> StepResult<()> {
    raw::close_all_but(server).at("closing descriptors")?;
    raw::reserve(CONTROL_FD).at("reserving the number of the control socket")?;
    rustix::process::setsid().at("starting a session")?;
    // Some kernel memory of a process cannot be measured. If memory runs out, the kernel ends interpreters first.
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

/// Reports a failure to the server, if that still exists.
fn report_failure(server: &mut ServerSocket, failure: &StepError) {
    let message = LauncherMessage::Failed {
        step: failure.step.to_owned(),
        errno: failure.source.raw_os_error().unwrap_or(0),
    };
    let _server_may_be_gone = server.send(&message, &[]);
}
