//! The supervisor of an interpreter: starts it, reaps orphans, and ends everything it started.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, kill_process, kill_process_group, wait,
    waitpid,
};

use super::raw::{self, Forked};
use super::root::{self, PrivateRoot};
use super::server_socket::ServerSocket;
use super::spec::{CONTROL_FD, INNER_ID, Isolation, LauncherCommand, LauncherMessage, Spec};
use super::{
    AtStep, Descriptors, StepError, StepResult, filter, identity, limits, report_failure, rules,
};
use crate::monitor;

/// Most rounds of killing. Each ends one generation, and the number of processes is limited. Processes that are left
/// after them are given up.
const MAX_KILL_ROUNDS: usize = 1000;
/// Longest time of a command. After it the command ends where it is. It is shorter than the server's wait for the end
/// of an interpreter, because the socket is not read meanwhile.
const COMMAND_LIMIT: Duration = Duration::from_secs(1);

/// Starts the interpreter and runs until it has exited or the server has closed the socket.
pub(super) fn run(spec: &Spec, server: &mut ServerSocket) -> StepResult<()> {
    let landlock = raw::landlock_version();
    let root = prepare(spec)?;
    if landlock == 0 {
        // Without Landlock nothing else keeps the interpreter, which has the same user id, from tracing this process,
        // which has no seccomp filter.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .at("making the first process undumpable")?;
    }
    let signals = raw::child_signals().at("watching for ended processes")?;
    let kind = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, kind, None)
        .at("making the control socket")?;
    let mut for_child = server.duplicate().at("copying the server's socket")?;
    let child = match raw::fork().at("starting the interpreter")? {
        Forked::Child => {
            let Err(failure) = become_interpreter(spec, landlock, theirs.as_fd());
            report_failure(&mut for_child, &failure);
            raw::exit(1)
        }
        Forked::Parent(child) => child,
    };
    drop((theirs, for_child));
    if spec.isolation.has_namespaces() {
        identity::drop_capabilities()?;
    }
    let process =
        rustix::process::pidfd_open(child, PidfdFlags::empty()).at("watching the interpreter")?;
    let descriptors = Descriptors {
        control: ours,
        process,
        directories: root.directories,
    };
    let started = LauncherMessage::Started {
        landlock,
        proc: root.proc,
    };
    started_message(server, &started, &descriptors).at("answering the server")?;
    drop(descriptors);
    supervise(spec, server, child, &signals)
}

/// Sets up the file system of the interpreter and gives up rights that later steps do not need.
fn prepare(spec: &Spec) -> StepResult<PrivateRoot> {
    match spec.isolation {
        Isolation::RootNamespaces { uid } => {
            let root = root::enter(spec, uid)?;
            name_host()?;
            identity::empty_bounding_set()?;
            identity::become_user(uid)?;
            identity::die_with_parent()?;
            Ok(root)
        }
        Isolation::UserNamespaces { .. } => {
            let root = root::enter(spec, INNER_ID)?;
            name_host()?;
            identity::empty_bounding_set()?;
            Ok(root)
        }
        Isolation::PrivateUser { .. } | Isolation::SameUser => {
            let directory = spec.directory.as_deref().unwrap_or_else(|| Path::new("/"));
            let directories = ["data", "tmp"]
                .into_iter()
                .map(|name| root::open_directory(directory.join(name)))
                .collect::<io::Result<_>>()
                .at("opening the working directory")?;
            std::env::set_current_dir(directory.join("data"))
                .at("entering the working directory")?;
            Ok(PrivateRoot {
                proc: true,
                directories,
            })
        }
    }
}

fn name_host() -> StepResult<()> {
    rustix::system::sethostname(b"sandbox").at("naming the host")
}

/// Gives up rights, in the order in which that is still possible, and executes Python; returns only if that fails.
fn become_interpreter(
    spec: &Spec,
    landlock: i32,
    control: BorrowedFd<'_>,
) -> Result<Infallible, StepError> {
    identity::die_with_parent()?;
    raw::place_at(control, CONTROL_FD).at("placing the control socket")?;
    raw::unblock_signals().at("unblocking signals")?;
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    limits::apply(
        &spec.limits,
        spec.slot,
        spec.isolation == Isolation::SameUser,
    )?;
    if let Isolation::PrivateUser { uid } = spec.isolation {
        identity::empty_bounding_set()?;
        identity::become_user(uid)?;
        identity::die_with_parent()?;
    }
    identity::drop_capabilities()?;
    rules::restrict(spec, landlock)?;
    filter::install(spec)?;
    let error = Command::new(&spec.python)
        .args(&spec.arguments)
        .env_clear()
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(StepError {
        step: "executing Python",
        source: error,
    })
}

fn started_message(
    server: &mut ServerSocket,
    message: &LauncherMessage,
    descriptors: &Descriptors,
) -> io::Result<()> {
    let mut borrowed: Vec<BorrowedFd<'_>> =
        vec![descriptors.control.as_fd(), descriptors.process.as_fd()];
    borrowed.extend(descriptors.directories.iter().map(AsFd::as_fd));
    server.send(message, &borrowed)
}

/// Reaps processes and follows commands until the interpreter has exited; reports how and ends the remaining processes.
fn supervise(
    spec: &Spec,
    server: &mut ServerSocket,
    child: Pid,
    signals: &OwnedFd,
) -> StepResult<()> {
    let ended = loop {
        let mut watched = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(server.as_fd(), PollFlags::IN | PollFlags::RDHUP),
        ];
        match poll(&mut watched, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other.at("watching the interpreter")?,
        };
        let [_, of_link] = watched.map(|fd| fd.revents());
        drain(signals);
        let link_closed = match of_link {
            PollFlags::IN => match server.receive() {
                Ok(command) => {
                    execute_command(spec, command);
                    false
                }
                Err(_) => true,
            },
            others => !others.is_empty(),
        };
        let ended = reap(child);
        if ended.is_some() || link_closed {
            break ended;
        }
    };
    if !spec.isolation.has_namespaces() {
        kill_descendants(spec);
    }
    if let Some(ended) = ended {
        let _server_may_be_gone = server.send(&ended, &[]);
    }
    Ok(())
}

fn drain(signals: &OwnedFd) {
    let mut buffer = [0_u8; 1024];
    while rustix::io::read(signals, &mut buffer).is_ok_and(|read| read > 0) {}
}

/// Reaps ended processes; returns the exit of the interpreter if it was among them.
fn reap(interpreter: Pid) -> Option<LauncherMessage> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == interpreter {
            ended = Some(LauncherMessage::Ended {
                code: status.exit_status(),
                signal: status.terminating_signal(),
            });
        }
    }
    ended
}

/// Ends every descendant. Orphans are reparented to this process.
fn kill_descendants(spec: &Spec) {
    for _ in 0..MAX_KILL_ROUNDS {
        signal_user(spec, Signal::KILL);
        // A process with a pending signal cannot fork. Each is signalled as soon as it is found, because some live
        // only until they have started the next.
        let found = monitor::walk_tree(rustix::process::getpid(), |pid| {
            let _may_have_ended = kill_process(pid, Signal::KILL);
        });
        if found.len() <= 1 {
            return;
        }
        // Blocks until at least one has ended, then reaps all others that have.
        let _none_left = wait(WaitOptions::empty());
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

/// Signals all processes of the interpreter's user at once, if it has a user of its own. No chain of processes that
/// fork and exit escapes that, but a process of that user may end the sender first.
fn signal_user(spec: &Spec, signal: Signal) {
    let Isolation::PrivateUser { uid } = spec.isolation else {
        return;
    };
    match raw::fork() {
        Ok(Forked::Child) => {
            if identity::become_user(uid).is_ok() {
                let _may_be_none = kill_process_group(Pid::INIT, signal);
            }
            raw::exit(0)
        }
        Ok(Forked::Parent(sender)) => {
            let _may_be_reaped = waitpid(Some(sender), WaitOptions::empty());
        }
        // The walk through the tree finds most of them too.
        Err(_) => {}
    }
}

/// Stops or resumes everything but this process.
fn execute_command(spec: &Spec, command: LauncherCommand) {
    let signal = match command {
        LauncherCommand::Pause => Signal::STOP,
        LauncherCommand::Resume => Signal::CONT,
    };
    if spec.isolation.has_namespaces() && rustix::process::getpid() == Pid::INIT {
        // For the first process of a PID namespace, -1 addresses all other processes of the namespace at once.
        let _may_be_none = kill_process_group(Pid::INIT, signal);
        return;
    }
    signal_user(spec, signal);
    // A process with a pending stop cannot fork, but one that is exiting may hand over its children between two lists.
    // So all are stopped once two passes have found the same processes in the same states and none of them runs.
    let began = Instant::now();
    let mut signalled = HashSet::new();
    let mut earlier = HashMap::new();
    while began.elapsed() < COMMAND_LIMIT {
        let before = signalled.len();
        let mut states = HashMap::new();
        monitor::walk_tree(rustix::process::getpid(), |pid| {
            if signalled.insert(pid) {
                let _may_have_ended = kill_process(pid, signal);
            }
            states.insert(pid, monitor::state(pid));
        });
        // A resumed process may fork without end. Those that a stopped process has started are stopped too, so one
        // pass suffices.
        if command == LauncherCommand::Resume {
            return;
        }
        let at_rest = states
            .values()
            .all(|state| !matches!(state, None | Some('R')));
        if at_rest && states == earlier {
            return;
        }
        if signalled.len() == before {
            std::thread::yield_now();
        }
        earlier = states;
    }
}
