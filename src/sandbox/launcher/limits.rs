//! Limits that the kernel keeps: sizes, counts, processors.

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CpuSet;

use super::super::settings::Limits;
use super::{At, Step};

/// Lower than the server and everything else of the machine.
const NICE: i32 = 10;
const STACK: u64 = 8 * 1024 * 1024;

/// Applies the limits to this process and all that it starts.
///
/// The number of processes counts those of the user id, within the user namespace if there is one: so this comes after
/// both.
pub(super) fn apply(limits: &Limits, slot: usize) -> Step<()> {
    for (resource, most) in [
        (Resource::As, limits.address_space),
        (Resource::Nproc, limits.processes),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
        (Resource::Core, 0),
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

/// Binds the process to as many processors as it may use; which ones depends on the slot, so that interpreters spread.
fn bind(wanted: usize, slot: usize) -> Step<()> {
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
