//! Who a process is and what it may do.

use std::io;

use rustix::process::Signal;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use super::{AtStep, StepError, StepResult};

/// More capabilities than any kernel has.
const CAPABILITIES: u32 = 64;

/// Leaves root for a user and a group of this id, without other groups.
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

/// Empties the bounding set, so that no program that is executed can bring a capability back. Needs `CAP_SETPCAP`.
pub(super) fn empty_bounding_set() -> StepResult<()> {
    for capability in 0..CAPABILITIES {
        let Some(set) = single(capability) else { break };
        match rustix::thread::remove_capability_from_bounding_set(set) {
            Ok(()) => {}
            // Past the last one that this kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error).at("emptying the bounding set"),
        }
    }
    Ok(())
}

/// Gives up every capability, for good.
pub(in crate::sandbox) fn drop_capabilities() -> StepResult<()> {
    // Kernels without ambient capabilities have none to give up.
    let _absent = rustix::thread::clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).at("giving up capabilities")?;
    rustix::thread::set_no_new_privs(true).at("giving up new privileges")
}

/// Asks to be killed when the parent ends. A change of the user id forgets this, and a parent that is gone already goes
/// unnoticed; the link, which ends with the server, covers both.
pub(super) fn die_with_parent() -> StepResult<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .at("tying the process to its parent")
}

fn single(capability: u32) -> Option<CapabilitySet> {
    1_u64
        .checked_shl(capability)
        .map(CapabilitySet::from_bits_retain)
}
