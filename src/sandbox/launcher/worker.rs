//! The last steps before Python: rights are given up in the order in which they still can be.

use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::Mode;

use super::spec::{CONTROL_FD, Isolation, Spec};
use super::{AtStep, StepError, filter, identity, limits, raw, rules};

/// Becomes the interpreter; returns only if that fails.
pub(super) fn start(
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
