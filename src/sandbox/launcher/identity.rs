//! User ids and capabilities of a process.

use std::io;

use rustix::process::Signal;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use super::{AtStep, StepError, StepResult};

/// Number of capabilities, more than any kernel has.
const CAPABILITIES: u32 = 64;

/// Changes from root to this user and group id, without supplementary groups.
pub(super) fn become_user(id: u32) -> StepResult<()> {
    if id == 0 {
        return Err(StepError {
            step: "leaving the root user",
            source: io::ErrorKind::InvalidInput.into(),
        });
    }
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[]).at("giving up groups")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).at("changing the group id")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).at("changing the user id")
}

/// Empties the capability bounding set, so that executing a program cannot restore a capability. Needs `CAP_SETPCAP`.
pub(super) fn empty_bounding_set() -> StepResult<()> {
    for capability in 0..CAPABILITIES {
        let Some(set) = single(capability) else { break };
        match rustix::thread::remove_capability_from_bounding_set(set) {
            Ok(()) => {}
            // Beyond the last capability of this kernel.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error).at("emptying the bounding set"),
        }
    }
    Ok(())
}

/// Gives up every capability irrevocably.
pub(crate) fn drop_capabilities() -> StepResult<()> {
    // Kernels without ambient capabilities have nothing to clear.
    let _absent = rustix::thread::clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).at("giving up capabilities")?;
    rustix::thread::set_no_new_privs(true).at("setting no_new_privs")
}

/// Asks the kernel to kill this process when its parent ends. A change of the user id clears this setting, and a parent
/// that has already ended goes unnoticed; closing the server's socket covers both cases.
pub(super) fn die_with_parent() -> StepResult<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .at("setting the signal for the parent's end")
}

fn single(capability: u32) -> Option<CapabilitySet> {
    1_u64
        .checked_shl(capability)
        .map(CapabilitySet::from_bits_retain)
}
