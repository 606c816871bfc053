//! Memory for things that can be dropped when others need it, such as event logs. No caller waits: one that gets no
//! memory drops something of its own, or of the owner that has most.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use protocol::ids::Owner;

/// Largest part of all bytes that one owner may have: a fourth. Beyond it the owner's oldest go first.
/// Tried by `retained::an_owner_has_a_part_and_all_have_the_whole`.
const OWNER_PART: usize = 4;
/// Least memory that is asked for at a time, in bytes.
/// Tried by `retained::an_owner_has_a_part_and_all_have_the_whole`.
const MIN_STEP: usize = 1024;
/// Most memory that is asked for at a time, in bytes: as much as there is already, so that small additions seldom cost a
/// lock that all share.
const MAX_STEP: usize = 64 * 1024;

/// The bytes that all owners keep; clones share them.
#[derive(Debug, Clone)]
pub struct RetainedMemory {
    used: Arc<Mutex<Used>>,
    /// Most bytes of all owners.
    most: usize,
}

#[derive(Debug, Default)]
struct Used {
    total: usize,
    by_owner: HashMap<Owner, usize>,
}

/// Which bytes are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetExceeded {
    /// The bytes that one owner may have.
    OfOwner,
    /// The bytes of all owners.
    OfAll,
    /// No bytes are used up, but one owner may never have this number.
    TooMany,
}

/// The bytes of one thing; given back when this is dropped.
#[derive(Debug, Default)]
pub struct RetainedBytes {
    of: Option<(RetainedMemory, Owner)>,
    granted: usize,
}

impl RetainedMemory {
    /// Memory of `most` bytes.
    pub fn new(most: usize) -> Self {
        Self {
            used: Arc::default(),
            most,
        }
    }

    /// The owners, those with most bytes first.
    pub fn owners(&self) -> Vec<Owner> {
        let used = self.used.lock();
        let mut owners: Vec<_> = used.by_owner.iter().collect();
        owners.sort_by_key(|(_, bytes)| Reverse(**bytes));
        owners.into_iter().map(|(owner, _)| owner.clone()).collect()
    }

    /// No bytes yet, for this owner.
    pub fn charge(&self, owner: &Owner) -> RetainedBytes {
        RetainedBytes {
            of: Some((self.clone(), owner.clone())),
            granted: 0,
        }
    }

    fn take(&self, owner: &Owner, bytes: usize) -> Result<(), BudgetExceeded> {
        let mut used = self.used.lock();
        let of_owner = used.by_owner.get(owner).copied().unwrap_or_default();
        if bytes > self.most / OWNER_PART {
            return Err(BudgetExceeded::TooMany);
        }
        if of_owner.saturating_add(bytes) > self.most / OWNER_PART {
            return Err(BudgetExceeded::OfOwner);
        }
        if used.total.saturating_add(bytes) > self.most {
            return Err(BudgetExceeded::OfAll);
        }
        used.total += bytes;
        *used.by_owner.entry(owner.clone()).or_default() += bytes;
        Ok(())
    }

    fn give(&self, owner: &Owner, bytes: usize) {
        let mut used = self.used.lock();
        used.total = used.total.saturating_sub(bytes);
        if let Some(of_owner) = used.by_owner.get_mut(owner) {
            *of_owner = of_owner.saturating_sub(bytes);
            if *of_owner == 0 {
                used.by_owner.remove(owner);
            }
        }
    }
}

impl RetainedBytes {
    /// Grows to this number of bytes in all.
    ///
    /// # Errors
    /// When they are used up.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let Some((budget, owner)) = &self.of else {
            return Ok(());
        };
        if bytes <= self.granted {
            return Ok(());
        }
        let step = self.granted.clamp(MIN_STEP, MAX_STEP);
        let needed = bytes - self.granted;
        let stepped = needed.next_multiple_of(step);
        let more = match budget.take(owner, stepped) {
            Ok(()) => stepped,
            Err(_) => budget.take(owner, needed).map(|()| needed)?,
        };
        self.granted += more;
        Ok(())
    }

    /// Gives back what exceeds this number of bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let needed = bytes.next_multiple_of(MIN_STEP);
        let spare = self.granted.saturating_sub(needed);
        // Small amounts are not given back, because the thing grows again.
        if let Some((budget, owner)) = &self.of
            && spare > 0
            && (bytes == 0 || spare >= MAX_STEP)
        {
            budget.give(owner, spare);
            self.granted = needed;
        }
    }

    /// Bytes that are granted.
    pub fn granted(&self) -> usize {
        self.granted
    }
}

impl Drop for RetainedBytes {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_a_part_and_all_have_the_whole() {
        let budget = RetainedMemory::new(4096);
        let names = ["a", "b", "c", "d", "e"].map(Owner::key);
        let mut charges = names.each_ref().map(|owner| budget.charge(owner));
        for charge in &mut charges[..4] {
            assert_eq!(charge.grow_to(1024), Ok(()));
            assert_eq!(charge.grow_to(1025), Err(BudgetExceeded::OfOwner));
        }
        assert_eq!(charges[4].grow_to(1), Err(BudgetExceeded::OfAll));
        assert_eq!(charges[4].grow_to(1025), Err(BudgetExceeded::TooMany));
        charges[0].shrink_to(0);
        // Without room for a step, what is needed is enough.
        assert_eq!(charges[4].grow_to(1000), Ok(()));
        assert_eq!(charges[0].grow_to(24), Err(BudgetExceeded::OfAll));
    }

    #[test]
    fn the_owner_with_most_bytes_comes_first() {
        let budget = RetainedMemory::new(4 * 64 * 1024);
        let names = ["a", "b", "c"].map(Owner::key);
        let mut charges = names.each_ref().map(|owner| budget.charge(owner));
        for (charge, bytes) in charges.iter_mut().zip([16, 48, 32]) {
            assert_eq!(charge.grow_to(bytes * 1024), Ok(()));
        }
        let [a, b, c] = names;
        assert_eq!(budget.owners(), [b, c, a]);
    }
}
