//! seccomp: the system calls that an interpreter may make.
//!
//! Four filters are stacked, because one filter has one refusal only. If several refuse, the newest filter's answer
//! counts:
//!
//! 1. an allow-list: other calls fail with `ENOSYS`, so that libraries fall back; this covers 32-bit and x32 numbers
//!    and calls newer than the list;
//! 2. extended attributes cannot be written (`ENOTSUP`), if the host's files are visible;
//! 3. changing modes, owners and times by path does nothing and reports success, if the host's files are visible:
//!    Landlock does not guard these calls, and programs would fail needlessly on an error; under the server's own user
//!    id the same applies to open files, because their owner could change a file this way that he may only read;
//! 4. calls that are known to be dangerous fail with `EPERM`.

mod calls;

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::spec::{Isolation, Spec};
use super::{AtStep, StepResult};
use crate::settings::Network;

/// Rules by system call; an empty list matches every use of the call.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filters. Only executing Python may follow.
pub(super) fn install(spec: &Spec) -> StepResult<()> {
    let host_in_sight = spec.directory.is_some();
    let mut filters = vec![filter(always(calls::allowed()), FilterAction::OnlyThese)];
    if host_in_sight {
        let attributes = always(calls::WRITES_ATTRIBUTES);
        filters.push(filter(attributes, FilterAction::Refuse(libc::ENOTSUP)));
        filters
            .push(faked(spec.isolation).and_then(|rules| filter(rules, FilterAction::Refuse(0))));
    }
    filters.push(
        dangerous(spec.network, host_in_sight)
            .and_then(|rules| filter(rules, FilterAction::Refuse(libc::EPERM))),
    );
    for program in filters {
        let program = program.at("preparing the system-call filter")?;
        seccompiler::apply_filter(&program)
            .map_err(io::Error::other)
            .at("installing the system-call filter (seccomp)")?;
    }
    Ok(())
}

/// What a filter does with calls that match its rules.
#[derive(Clone, Copy)]
enum FilterAction {
    /// They are allowed; all others fail with `ENOSYS`.
    OnlyThese,
    /// They fail with this error; all others are left to the other filters.
    Refuse(i32),
}

fn filter(rules: Rules, answer: FilterAction) -> io::Result<BpfProgram> {
    let (others, these) = match answer {
        FilterAction::OnlyThese => (
            SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
            SeccompAction::Allow,
        ),
        FilterAction::Refuse(error) => (
            SeccompAction::Allow,
            SeccompAction::Errno(error.unsigned_abs()),
        ),
    };
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, others, these, arch).map_err(io::Error::other)?;
    BpfProgram::try_from(filter).map_err(io::Error::other)
}

fn always(calls: impl IntoIterator<Item = i64>) -> Rules {
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// Calls that change file attributes by path; under the server's user id also those on open files.
fn faked(isolation: Isolation) -> io::Result<Rules> {
    let mut rules = always(calls::changes_by_path());
    if isolation == Isolation::SameUser {
        rules.extend(always(calls::CHANGES_OF_OPEN_FILES));
        return Ok(rules);
    }
    // Without a path, the call refers to the open file.
    let by_path = rule([whole(1, SeccompCmpOp::Ne, 0)])?;
    rules.insert(libc::SYS_utimensat, vec![by_path]);
    Ok(rules)
}

fn dangerous(network: Network, host_in_sight: bool) -> io::Result<Rules> {
    let mut rules = always(calls::refused());
    rules.insert(libc::SYS_clone, namespaces(0)?);
    let mut requests = vec![libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSCTTY];
    if host_in_sight {
        requests.extend(calls::CHANGES_FLAGS);
    }
    rules.insert(libc::SYS_ioctl, equal(1, &requests)?);
    // Shared anonymous memory stays allocated while a single page of it is mapped, and is charged to no process that
    // could be measured.
    let shared = u64::from((libc::MAP_SHARED | libc::MAP_ANONYMOUS).unsigned_abs());
    let shared = rule([whole(3, SeccompCmpOp::MaskedEq(shared), shared)])?;
    rules.insert(libc::SYS_mmap, vec![shared]);
    let other_process = rule([half(0, SeccompCmpOp::Ne, 0)])?;
    rules.insert(libc::SYS_prlimit64, vec![other_process]);
    let locks = calls::UNOWNED_LOCKS.map(|command| half(1, SeccompCmpOp::Eq, family(command)));
    let locks = locks.map(|command| rule([command]));
    rules.insert(
        libc::SYS_fcntl,
        locks.into_iter().collect::<io::Result<Vec<_>>>()?,
    );
    let options = calls::REFUSED_OPTIONS.map(|option| option.unsigned_abs().into());
    rules.insert(libc::SYS_prctl, equal(0, &options)?);
    let larger_buffers = |option: i32| {
        rule([
            half(1, SeccompCmpOp::Eq, family(libc::SOL_SOCKET)),
            half(2, SeccompCmpOp::Eq, family(option)),
        ])
    };
    // Kernel memory for data in transit between sockets is charged to no process that could be measured.
    let buffers = [
        libc::SO_SNDBUF,
        libc::SO_RCVBUF,
        libc::SO_SNDBUFFORCE,
        libc::SO_RCVBUFFORCE,
    ];
    let buffers = buffers.into_iter().map(larger_buffers);
    rules.insert(
        libc::SYS_setsockopt,
        buffers.collect::<io::Result<Vec<_>>>()?,
    );
    let not_unix = || rule([half(0, SeccompCmpOp::Ne, family(libc::AF_UNIX))]);
    rules.insert(libc::SYS_socketpair, vec![not_unix()?]);
    match (network, host_in_sight) {
        (Network::None, false) => {
            rules.insert(libc::SYS_socket, vec![not_unix()?]);
        }
        // Sockets of the host's services have names in the file system, and older Landlock versions do not guard them.
        (Network::None, true) => rules.extend(always(calls::REACHES_SOCKETS)),
        (Network::Full, _) => {
            // In the host's network, a code's own socket could take the name of a service that is not running, such as
            // a model server.
            rules.extend(always(calls::LISTENS));
            let others = [
                libc::AF_INET,
                libc::AF_INET6,
                libc::AF_NETLINK,
                libc::AF_UNIX,
            ];
            // The host's Unix sockets are visible if its files are.
            let allowed = if host_in_sight { &others[..3] } else { &others };
            let none_of_them = allowed
                .iter()
                .map(|&domain| half(0, SeccompCmpOp::Ne, family(domain)))
                .collect::<io::Result<Vec<_>>>()?;
            let none_of_them = SeccompRule::new(none_of_them).map_err(io::Error::other)?;
            // Resolving names needs NETLINK_ROUTE; other netlink protocols are for administration, and new ones appear.
            let not_route = rule([
                half(0, SeccompCmpOp::Eq, family(libc::AF_NETLINK)),
                half(2, SeccompCmpOp::Ne, family(libc::NETLINK_ROUTE)),
            ])?;
            rules.insert(libc::SYS_socket, vec![none_of_them, not_route]);
        }
    }
    Ok(rules)
}

/// Matches every flag that creates a namespace.
fn namespaces(argument: u8) -> io::Result<Vec<SeccompRule>> {
    calls::NAMESPACE_FLAGS
        .iter()
        .map(|&flag| {
            let flag = u64::from(flag.unsigned_abs());
            rule([whole(argument, SeccompCmpOp::MaskedEq(flag), flag)])
        })
        .collect()
}

fn equal(argument: u8, values: &[u64]) -> io::Result<Vec<SeccompRule>> {
    values
        .iter()
        .map(|&value| rule([half(argument, SeccompCmpOp::Eq, value)]))
        .collect()
}

fn family(domain: i32) -> u64 {
    domain.unsigned_abs().into()
}

fn rule<const N: usize>(conditions: [io::Result<SeccompCondition>; N]) -> io::Result<SeccompRule> {
    let conditions = conditions.into_iter().collect::<io::Result<Vec<_>>>()?;
    SeccompRule::new(conditions).map_err(io::Error::other)
}

/// A condition on the lower half of an argument, which the kernel reads as an `int`.
fn half(argument: u8, compare: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)
        .map_err(io::Error::other)
}

/// A condition on the whole of an argument.
fn whole(argument: u8, compare: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, compare, value)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The kernel's limit.
    const MAX_INSTRUCTIONS: usize = 4096;

    #[test]
    fn every_filter_fits_the_kernel() {
        let programs = [
            filter(always(calls::allowed()), FilterAction::OnlyThese),
            filter(
                always(calls::WRITES_ATTRIBUTES),
                FilterAction::Refuse(libc::ENOTSUP),
            ),
            filter(faked(Isolation::SameUser).unwrap(), FilterAction::Refuse(0)),
            filter(
                faked(Isolation::PrivateUser { uid: 1 }).unwrap(),
                FilterAction::Refuse(0),
            ),
        ];
        let dangerous = [Network::None, Network::Full]
            .into_iter()
            .flat_map(|network| {
                [false, true].map(|host| {
                    filter(
                        dangerous(network, host).unwrap(),
                        FilterAction::Refuse(libc::EPERM),
                    )
                })
            });
        for program in programs.into_iter().chain(dangerous) {
            let length = program.unwrap().len();
            assert!((1..MAX_INSTRUCTIONS).contains(&length), "{length}");
        }
    }

    #[test]
    fn of_netlink_only_routes_can_be_asked() {
        use rustix::net::{AddressFamily, Protocol, SocketType, netlink, socket};

        let filtered = |host_in_sight| {
            let rules = dangerous(Network::Full, host_in_sight).unwrap();
            let program = filter(rules, FilterAction::Refuse(libc::EPERM)).unwrap();
            // A filter stays with its thread for good.
            let asking = std::thread::spawn(move || {
                seccompiler::apply_filter(&program).unwrap();
                let opens = |family, protocol: Option<Protocol>| {
                    let opened = socket(family, SocketType::RAW, protocol);
                    opened.map(drop).map_err(rustix::io::Errno::raw_os_error)
                };
                [
                    opens(AddressFamily::NETLINK, None),
                    opens(AddressFamily::NETLINK, Some(netlink::SOCK_DIAG)),
                    opens(AddressFamily::NETLINK, Some(netlink::GENERIC)),
                    opens(AddressFamily::NETLINK, Some(netlink::NETFILTER)),
                    opens(AddressFamily::PACKET, None),
                ]
            });
            asking.join().unwrap()
        };
        for host_in_sight in [false, true] {
            let refused = Err(libc::EPERM);
            assert_eq!(
                filtered(host_in_sight),
                [Ok(()), refused, refused, refused, refused]
            );
        }
    }

    #[test]
    fn a_call_is_in_one_list_only() {
        let set = |calls: &mut dyn Iterator<Item = i64>| {
            let list: Vec<i64> = calls.collect();
            let set: BTreeSet<i64> = list.iter().copied().collect();
            assert_eq!(set.len(), list.len(), "a call is listed twice");
            set
        };
        let (allowed, refused) = (set(&mut calls::allowed()), set(&mut calls::refused()));
        // Needed to install the later filters; the last filter refuses it.
        let both: Vec<i64> = allowed.intersection(&refused).copied().collect();
        assert_eq!(both, [libc::SYS_seccomp]);
        let faked = set(&mut calls::changes_by_path());
        assert!(faked.is_subset(&allowed));
        for call in [
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_bpf,
        ] {
            assert!(!allowed.contains(&call));
        }
    }
}
