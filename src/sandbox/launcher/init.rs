//! The process above an interpreter: starts it, reaps what it leaves, and ends it with everything it started.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, kill_process, kill_process_group, wait,
};

use super::super::monitor;
use super::raw::{self, Forked};
use super::root::{self, PrivateRoot};
use super::server_socket::ServerSocket;
use super::spec::{INNER_ID, Isolation, LauncherCommand, LauncherMessage, Spec};
use super::{AtStep, Descriptors, StepResult, identity, tell, worker};

/// Rounds of killing; each ends a generation, and the number of processes is limited.
const SWEEPS: usize = 1000;
/// Longest time for an order, below what the server waits for the end of a tree: the link is not heard meanwhile.
const OBEY_LIMIT: Duration = Duration::from_secs(1);

/// Starts the interpreter and stays until it has ended or the server has closed the link.
pub(super) fn run(spec: &Spec, server: &mut ServerSocket) -> StepResult<()> {
    let landlock = raw::landlock_version();
    let root = prepare(spec)?;
    if landlock == 0 {
        // Nothing else keeps the interpreter, of the same user, out of this process, which has no filter of calls.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .at("closing the first process")?;
    }
    let signals = raw::child_signals().at("watching for ended processes")?;
    let kind = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, kind, None)
        .at("making the control socket")?;
    let mut for_child = server.duplicate().at("copying the link")?;
    let child = match raw::fork().at("starting the interpreter")? {
        Forked::Child => {
            let Err(failure) = worker::start(spec, landlock, theirs.as_fd());
            tell(&mut for_child, &failure);
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

/// Builds what the interpreter will see and takes the rights that the rest does not need.
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

/// Reaps and obeys until the interpreter has ended, tells how, and ends what is left.
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
                Ok(order) => {
                    obey(spec, order);
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
        sweep();
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

/// Reaps whoever has ended; says how the interpreter did if it was among them.
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

/// Ends every descendant: all are stopped first, so that none can escape by forking; orphans come to this process.
fn sweep() {
    for _ in 0..SWEEPS {
        let found = descendants();
        if found.is_empty() {
            return;
        }
        for signal in [Signal::STOP, Signal::KILL] {
            for &pid in &found {
                let _may_have_ended = kill_process(pid, signal);
            }
        }
        // Blocks until at least one of them has ended, then takes all others that have.
        let _none_left = wait(WaitOptions::empty());
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

/// Stops everything but this process, or has it go on.
fn obey(spec: &Spec, order: LauncherCommand) {
    let signal = match order {
        LauncherCommand::Pause => Signal::STOP,
        LauncherCommand::Resume => Signal::CONT,
    };
    if spec.isolation.has_namespaces() && rustix::process::getpid() == Pid::INIT {
        // To the first process of a namespace its number stands for all the others: they get it at one moment.
        let _may_be_none = kill_process_group(Pid::INIT, signal);
        return;
    }
    // Whoever is stopped cannot fork: once nobody new is found, all are. Each is told at once, as there are processes
    // that live only until they have started the next.
    let began = Instant::now();
    let mut told = HashSet::new();
    while began.elapsed() < OBEY_LIMIT {
        let before = told.len();
        monitor::tree_telling(rustix::process::getpid(), |pid| {
            if told.insert(pid) {
                let _may_have_ended = kill_process(pid, signal);
            }
        });
        // Who goes on may start others without end; what stood still is found in the first round.
        if told.len() == before || order == LauncherCommand::Resume {
            return;
        }
    }
}

/// Everything below this process.
fn descendants() -> Vec<Pid> {
    let mut tree = monitor::tree(rustix::process::getpid());
    tree.remove(0);
    tree
}
