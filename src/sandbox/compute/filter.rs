//! The system calls that computing needs; all others fail with `EPERM`.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Most descriptors: the standard ones, and a copy of the socket for each of the two threads. No other can be opened.
/// Tried by `hostile::a_confined_process_can_only_compute`.
pub(super) const DESCRIPTORS: u64 = 5;
/// Allowed with any arguments: memory, waiting for threads of the process, time, randomness, own signals, exit.
#[rustfmt::skip]
const ALWAYS: [i64; 21] = [
    libc::SYS_brk, libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_exit, libc::SYS_exit_group,
    libc::SYS_futex, libc::SYS_getpid, libc::SYS_getrandom, libc::SYS_gettid, libc::SYS_gettimeofday,
    libc::SYS_madvise, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_restart_syscall, libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sched_yield, libc::SYS_set_robust_list,
    libc::SYS_sigaltstack, libc::SYS_getcpu,
];

/// The filter for this machine's architecture.
pub(super) fn program() -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules()?, refused, SeccompAction::Allow, arch)
        .map_err(io::Error::other)?;
    BpfProgram::try_from(filter).map_err(io::Error::other)
}

fn rules() -> io::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let mut rules: BTreeMap<_, _> = ALWAYS.into_iter().map(|call| (call, Vec::new())).collect();
    let own = || argument(0, SeccompCmpOp::Lt, DESCRIPTORS);
    rules.insert(libc::SYS_read, vec![rule([own()])?]);
    rules.insert(libc::SYS_write, vec![rule([own()])?]);
    let exec = u64::from(libc::PROT_EXEC.unsigned_abs());
    let not_code = || argument(2, SeccompCmpOp::MaskedEq(exec), 0);
    let anonymous = u64::from(libc::MAP_ANONYMOUS.unsigned_abs());
    let of_no_file = argument(3, SeccompCmpOp::MaskedEq(anonymous), anonymous);
    rules.insert(libc::SYS_mmap, vec![rule([not_code(), of_no_file])?]);
    rules.insert(libc::SYS_mprotect, vec![rule([not_code()])?]);
    // `abort` sends the process a signal.
    let own_process = u64::from(std::process::id());
    let to_itself = argument(0, SeccompCmpOp::Eq, own_process);
    rules.insert(libc::SYS_tgkill, vec![rule([to_itself])?]);
    Ok(rules)
}

fn rule<const N: usize>(conditions: [io::Result<SeccompCondition>; N]) -> io::Result<SeccompRule> {
    let conditions = conditions.into_iter().collect::<io::Result<Vec<_>>>()?;
    SeccompRule::new(conditions).map_err(io::Error::other)
}

/// A condition on the lower half of an argument, which the kernel reads as an `int`.
fn argument(number: u8, compare: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(number, SeccompCmpArgLen::Dword, compare, value).map_err(io::Error::other)
}
