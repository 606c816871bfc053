//! Limits that the kernel enforces: sizes, counts, processors.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CpuSet;

use super::{AtStep, StepResult};
use crate::settings::InterpreterLimits;

/// Number that lowers the priority below that of the server and other programs of the machine.
const NICE: i32 = 10;
/// Largest stack of an interpreter, in bytes. Beyond it the process ends.
/// Tried by `time::time_is_bounded`.
const STACK: u64 = 8 * 1024 * 1024;

/// Applies the limits to this process and all its descendants.
///
/// `RLIMIT_NPROC` counts all processes of the user id, within the user namespace if there is one; so this must run
/// after both are set up. If the id is the server's own, the processes that run under it already are added, and the
/// server counts the interpreter's processes itself.
pub(super) fn apply(limits: &InterpreterLimits, slot: usize, shared_user: bool) -> StepResult<()> {
    let others = if shared_user { threads_of_user() } else { 0 };
    for (resource, most) in [
        (Resource::As, limits.address_space),
        (Resource::Nproc, limits.processes.saturating_add(others)),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
        // With 0, a core dump handler would still be started, as root and outside; 1 prevents it.
        (Resource::Core, 1),
        (Resource::Stack, STACK),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
        (Resource::Sigpending, 1024),
    ] {
        let allowed = rustix::process::getrlimit(resource).maximum;
        // A lower limit of the host stays.
        let most = allowed.map_or(most, |allowed| allowed.min(most));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).at("setting limits")?;
    }
    rustix::process::nice(NICE).at("lowering the priority")?;
    bind(limits.cpus, slot)
}

/// Binds the process to `wanted` processors; the slot selects which, so interpreters spread over the machine.
fn bind(wanted: usize, slot: usize) -> StepResult<()> {
    let allowed = rustix::thread::sched_getaffinity(None).at("reading the processors")?;
    let numbers: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&number| allowed.is_set(number))
        .collect();
    if wanted == 0 || wanted >= numbers.len() {
        return Ok(());
    }
    let mut chosen = CpuSet::new();
    let from = slot.saturating_mul(wanted);
    for &number in numbers
        .iter()
        .cycle()
        .skip(from % numbers.len())
        .take(wanted)
    {
        chosen.set(number);
    }
    rustix::thread::sched_setaffinity(None, &chosen).at("choosing the processors")
}

/// Number of threads under this user id. Counted without a lock; small changes meanwhile do not matter.
fn threads_of_user() -> u64 {
    let own = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let threads = processes.filter_map(|process| {
        let path = process.path();
        let is_number = path
            .file_name()?
            .to_str()?
            .bytes()
            .all(|byte| byte.is_ascii_digit());
        let is_own = is_number && fs::metadata(&path).ok()?.uid() == own;
        is_own.then(|| fs::read_dir(path.join("task")).map_or(0, Iterator::count))
    });
    threads.map(|count| count as u64).sum()
}
