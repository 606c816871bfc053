//! How many connections the process may hold, by the number of file descriptors that it may open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;

/// Most descriptors that are asked for. Programs that look at every possible descriptor are slow with a higher limit.
const MAX_DESCRIPTORS: u64 = 1024 * 1024;

/// Number of descriptors for files, listeners and what else the process has open.
const KEPT_BACK: usize = 64;
/// Number of descriptors of a turn.
const PER_TURN: usize = 2;
/// Least number of turns that there may be with however few descriptors.
/// Tried by `descriptors::turns_leave_descriptors_for_connections`.
const MIN_TURNS: usize = 8;

/// Raises the soft limit of file descriptors to the hard limit; returns the limit that holds.
pub(super) fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(MAX_DESCRIPTORS);
    if wanted <= current {
        return current;
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(%error, descriptors = current, "the limit of file descriptors could not be raised");
            current
        }
    }
}

/// The most connections: as configured, or half of the descriptors. The other half is for connections to model servers
/// and tools, interpreters and files.
pub(super) fn max_connections(configured: Option<usize>, descriptors: u64) -> usize {
    let default = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
    configured
        .unwrap_or(default)
        .clamp(1, Semaphore::MAX_PERMITS)
}

/// The most turns. Each has a connection to a model server, and at times one to a tool. Some descriptors are reserved,
/// so that connections can always be accepted.
pub(super) fn max_turns(connections: usize, descriptors: u64) -> usize {
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    let left = descriptors.saturating_sub(connections.saturating_add(KEPT_BACK));
    (left / PER_TURN).clamp(MIN_TURNS, Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_are_for_connections_unless_configured() {
        assert_eq!(max_connections(None, 1024), 512);
        assert_eq!(max_connections(Some(3), 1024), 3);
        assert_eq!(max_connections(None, 1), 1);
        assert_eq!(max_connections(None, u64::MAX), Semaphore::MAX_PERMITS);
    }

    #[test]
    fn turns_leave_descriptors_for_connections() {
        assert_eq!(max_turns(512, 1024), 224);
        assert_eq!(max_turns(200, 400), 68);
        assert_eq!(max_turns(1000, 64), MIN_TURNS);
        assert_eq!(max_turns(1, u64::MAX), Semaphore::MAX_PERMITS);
    }
}
