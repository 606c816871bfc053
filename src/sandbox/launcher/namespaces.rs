//! New namespaces, and their first process.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use super::raw::{self, Forked};
use super::server_socket::ServerSocket;
use super::spec::{INNER_ID, Isolation, Spec};
use super::{AtStep, StepError, StepResult, identity, report_failure};
use crate::settings::Network;

/// Enters new namespaces; the next child is the first process in them.
pub(super) fn enter(spec: &Spec) -> StepResult<()> {
    let mut flags = UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    if spec.network == Network::None {
        flags |= UnshareFlags::NEWNET;
    }
    let Isolation::UserNamespaces { uid } = spec.isolation else {
        return raw::unshare(flags).at("making namespaces");
    };
    if let Some(uid) = uid {
        identity::become_user(uid)?;
        // The change of the user id made root own the process's `/proc` files, but the id maps are written there.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
            .at("becoming dumpable")?;
    }
    let (outer_uid, outer_gid) = (rustix::process::geteuid(), rustix::process::getegid());
    raw::unshare(flags | UnshareFlags::NEWUSER).at("making namespaces")?;
    let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text);
    write("setgroups", "deny".to_owned()).at("giving up groups")?;
    write("uid_map", format!("{INNER_ID} {} 1", outer_uid.as_raw())).at("mapping the user id")?;
    write("gid_map", format!("{INNER_ID} {} 1", outer_gid.as_raw())).at("mapping the group id")
}

/// Runs the rest of the launch as the first process of the new PID namespace and waits until that process has ended.
///
/// When the first process ends, the kernel ends all processes of the namespace.
pub(super) fn run_as_first(
    server: &mut ServerSocket,
    first: impl FnOnce(&mut ServerSocket) -> StepResult<()>,
) -> StepResult<()> {
    let mut for_child = server.duplicate().at("copying the server's socket")?;
    match raw::fork().at("starting the first process")? {
        Forked::Child => {
            let done = identity::die_with_parent().and_then(|()| first(&mut for_child));
            let status = match done {
                Ok(()) => 0,
                Err(failure) => {
                    report_failure(&mut for_child, &failure);
                    1
                }
            };
            raw::exit(status)
        }
        Forked::Parent(child) => wait(server, child),
    }
}

/// Waits until the first process has ended; kills it when the server closes the socket.
fn wait(server: &ServerSocket, child: Pid) -> StepResult<()> {
    let process: OwnedFd =
        rustix::process::pidfd_open(child, PidfdFlags::empty()).at("watching the first process")?;
    loop {
        // The first process reads the socket; here only hang-up matters.
        let mut watched = [
            PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(server.as_fd(), PollFlags::RDHUP),
        ];
        match poll(&mut watched, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other.at("waiting for the first process")?,
        };
        let [process_ready, link_ready] = watched.map(|fd| !fd.revents().is_empty());
        if link_ready && !process_ready {
            rustix::process::pidfd_send_signal(&process, Signal::KILL)
                .at("ending the first process")?;
        }
        if process_ready || link_ready {
            break;
        }
    }
    rustix::process::waitpid(Some(child), WaitOptions::empty())
        .map(drop)
        .map_err(|error| StepError {
            step: "reaping the first process",
            source: error.into(),
        })
}
