//! How many bytes the event logs of all runs may keep.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ids::Owner;

/// Most bytes of all logs.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Most bytes of the logs of one owner.
const MAX_OWNER_BYTES: usize = 64 * 1024 * 1024;
/// What a log asks for first, in bytes.
const MIN_STEP: usize = 1024;
/// What a log asks for at most at a time. A log asks for as much as it has, so that few lines cost a lock that runs share.
const MAX_STEP: usize = 64 * 1024;

/// The bytes of all event logs; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct LogBudget(Arc<Mutex<Used>>);

#[derive(Debug, Default)]
struct Used {
    total: usize,
    by_owner: HashMap<Owner, usize>,
}

/// What one log has of the budget; given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Charge {
    of: Option<(LogBudget, Owner)>,
    granted: usize,
}

impl LogBudget {
    /// A charge of nothing.
    pub(super) fn charge(&self, owner: &Owner) -> Charge {
        Charge {
            of: Some((self.clone(), owner.clone())),
            granted: 0,
        }
    }

    fn take(&self, owner: &Owner, bytes: usize) -> bool {
        let mut used = self.0.lock();
        let of_owner = used.by_owner.get(owner).copied().unwrap_or_default();
        if used.total + bytes > MAX_BYTES || of_owner + bytes > MAX_OWNER_BYTES {
            return false;
        }
        used.total += bytes;
        *used.by_owner.entry(owner.clone()).or_default() += bytes;
        true
    }

    fn give(&self, owner: &Owner, bytes: usize) {
        let mut used = self.0.lock();
        used.total = used.total.saturating_sub(bytes);
        if let Some(of_owner) = used.by_owner.get_mut(owner) {
            *of_owner = of_owner.saturating_sub(bytes);
            if *of_owner == 0 {
                used.by_owner.remove(owner);
            }
        }
    }
}

impl Charge {
    /// Asks for so many bytes; says whether they are granted.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let Some((budget, owner)) = &self.of else {
            return true;
        };
        if bytes <= self.granted {
            return true;
        }
        let step = self.granted.clamp(MIN_STEP, MAX_STEP);
        let more = (bytes - self.granted).next_multiple_of(step);
        let granted = budget.take(owner, more);
        if granted {
            self.granted += more;
        }
        granted
    }

    /// Gives back what so many bytes do not need.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let needed = bytes.next_multiple_of(MIN_STEP);
        let spare = self.granted.saturating_sub(needed);
        // Small amounts are kept: the log grows again.
        if let Some((budget, owner)) = &self.of
            && spare > 0
            && (bytes == 0 || spare >= MAX_STEP)
        {
            budget.give(owner, spare);
            self.granted = needed;
        }
    }

    /// Bytes that are granted.
    pub(super) fn granted(&self) -> usize {
        self.granted
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}
