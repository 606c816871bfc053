//! Fair shares of scarce things among owners: permits, bytes of memory, and the choice of what is dropped.
//!
//! If something is reserved for other owners, an owner's share never exceeds what then remains free: one owner alone
//! has half, each of two a third, and so on.

mod memory;
mod permits;
mod retained;

use std::cmp::Reverse;
use std::collections::HashMap;

pub use self::memory::{MemoryBudget, ReservedMemory};
pub use self::permits::{FairPermit, FairSemaphore};
pub use self::retained::{BudgetExceeded, RetainedBytes, RetainedMemory};
use protocol::ids::Owner;

/// The owner that has most, from the parts that each owner has. Among equals the first by name.
pub fn heaviest<'a>(parts: impl IntoIterator<Item = (&'a Owner, u64)>) -> Option<&'a Owner> {
    let mut sums: HashMap<&Owner, u64> = HashMap::new();
    for (owner, part) in parts {
        let sum = sums.entry(owner).or_default();
        *sum = sum.saturating_add(part);
    }
    let heaviest = sums
        .into_iter()
        .max_by_key(|&(owner, sum)| (sum, Reverse(owner)));
    heaviest.map(|(owner, _)| owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_owner_has_the_largest_sum() {
        let [first, second, third] = ["a", "b", "c"].map(Owner::key);
        let parts = [(&first, 3), (&second, 2), (&third, 1), (&second, 2)];
        assert_eq!(heaviest(parts), Some(&second));
        assert_eq!(heaviest([(&second, 1), (&first, 1)]), Some(&first));
        assert_eq!(heaviest([]), None);
    }
}
