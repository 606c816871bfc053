//! Confinement of a compute process.

use std::fs;
use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, setrlimit};

use super::filter::{self, DESCRIPTORS};
use crate::launcher::{AtStep, StepResult, identity, raw};

/// Gives up capabilities, files and resources. Threads started later inherit this.
pub(super) fn give_up_rights(memory: u64, cpu_seconds: u64) -> StepResult<()> {
    // Before Landlock, because both are files.
    let _without_proc_nothing_changes = fs::write("/proc/self/oom_score_adj", "1000");
    let own = own_size().at("reading the size of the program")?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .at("making the process undumpable")?;
    identity::drop_capabilities()?;
    forbid_files()
        .map_err(io::Error::other)
        .at("giving up files (Landlock)")?;
    for (resource, most) in [
        (Resource::As, memory.saturating_add(own)),
        (Resource::Cpu, cpu_seconds),
        (Resource::Fsize, 0),
        (Resource::Nofile, DESCRIPTORS),
        // With 0, a core dump handler would still be started; 1 prevents it.
        (Resource::Core, 1),
        (Resource::Memlock, 0),
    ] {
        let allowed = rustix::process::getrlimit(resource).maximum;
        let most = allowed.map_or(most, |allowed| allowed.min(most));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).at("setting limits")?;
    }
    Ok(())
}

/// Forbids all system calls except those for computing, to every thread, irrevocably.
pub(super) fn forbid_calls() -> StepResult<()> {
    let program = filter::program().at("preparing the system-call filter")?;
    seccompiler::apply_filter_all_threads(&program)
        .map_err(io::Error::other)
        .at("installing the system-call filter (seccomp)")
}

/// Landlock without any rule: no files, no TCP, no signals to other processes. The seccomp filter forbids all that too
/// and is the only protection on kernels without Landlock.
fn forbid_files() -> Result<(), landlock::RulesetError> {
    let abi = ABI::from(raw::landlock_version());
    if abi == ABI::Unsupported {
        return Ok(());
    }
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if abi >= ABI::V4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    ruleset.create()?.restrict_self()?;
    Ok(())
}

/// Address space of the program before any request, in bytes.
fn own_size() -> io::Result<u64> {
    let sizes = fs::read_to_string("/proc/self/statm")?;
    let pages = sizes.split_whitespace().next().map(str::parse::<u64>);
    match pages {
        Some(Ok(pages)) => Ok(pages.saturating_mul(rustix::param::page_size() as u64)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
