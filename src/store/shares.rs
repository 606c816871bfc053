//! Which statement gets the next connection to a database, in both engines.

use protocol::ids::Owner;
use quota::{FairPermit, FairSemaphore};

/// Most bytes that a small statement writes.
const SMALL_BYTES: u64 = 256 * 1024;

/// How many rows and bytes a statement may read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementSize {
    /// A few: it takes about a millisecond.
    Small,
    /// Any number.
    Large,
}

impl StatementSize {
    /// The size of a statement that writes this number of bytes.
    pub(super) fn of_bytes(bytes: u64) -> Self {
        match bytes <= SMALL_BYTES {
            true => Self::Small,
            false => Self::Large,
        }
    }
}

/// The connections of one pool, which owners share. Large statements together never have all connections, and the large
/// statements of one owner have only a part of what large statements may have.
#[derive(Debug)]
pub(super) struct ConnectionShares {
    all: FairSemaphore,
    large: FairSemaphore,
}

/// The right to one connection of a pool. It is returned when dropped, after the connection.
#[derive(Debug)]
pub(super) struct ConnectionShare {
    // Returned first, so that a small statement that waits comes before the next large one.
    _connection: FairPermit,
    _large: Option<FairPermit>,
}

impl ConnectionShares {
    /// Reserves `kept` of the connections for small statements, if there are more than these.
    pub(super) fn new(connections: u32, kept: u32) -> Self {
        let permits = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            all: FairSemaphore::new(permits(connections)),
            large: FairSemaphore::with_reserve(permits(connections.saturating_sub(kept))),
        }
    }

    /// Sets whether several owners share the connections. A single owner may use all connections for large statements.
    pub(super) fn share(&self, shared: bool) {
        self.large.share(shared);
    }

    /// Waits for a share.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub(super) async fn acquire(&self, owner: &Owner, size: StatementSize) -> ConnectionShare {
        let large = match size {
            StatementSize::Small => None,
            StatementSize::Large => Some(self.large.acquire(owner).await),
        };
        ConnectionShare {
            _connection: self.all.acquire(owner).await,
            _large: large,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn large_statements_leave_a_connection_for_small_ones_and_a_part_for_other_owners() {
        let [greedy, other] = ["a", "b"].map(Owner::key);
        let shares = ConnectionShares::new(6, 1);
        let get = |owner, size| shares.acquire(owner, size).now_or_never();
        let flood: Vec<_> = (0..9)
            .filter_map(|_| get(&greedy, StatementSize::Large))
            .collect();
        assert_eq!(flood.len(), 3);
        let large: Vec<_> = (0..9)
            .filter_map(|_| get(&other, StatementSize::Large))
            .collect();
        assert_eq!(large.len(), 1);
        let small: Vec<_> = (0..9)
            .filter_map(|_| get(&other, StatementSize::Small))
            .collect();
        assert_eq!(small.len(), 2);
        // With a single owner, no connection is reserved for others.
        drop((flood, large, small));
        shares.share(false);
        let flood: Vec<_> = (0..9)
            .filter_map(|_| get(&greedy, StatementSize::Large))
            .collect();
        assert_eq!(flood.len(), 5);
    }

    #[tokio::test]
    async fn of_one_connection_a_small_statement_is_next_after_the_large_one_that_runs() {
        let [greedy, other] = ["a", "b"].map(Owner::key);
        let shares = ConnectionShares::new(1, 1);
        let running = shares.acquire(&greedy, StatementSize::Large).await;
        let mut flood: Vec<_> = (0..60)
            .map(|_| Box::pin(shares.acquire(&greedy, StatementSize::Large)))
            .collect();
        for large in &mut flood {
            assert!(large.now_or_never().is_none());
        }
        let mut small = std::pin::pin!(shares.acquire(&other, StatementSize::Small));
        assert!(small.as_mut().now_or_never().is_none());
        drop(running);
        for large in &mut flood {
            assert!(large.now_or_never().is_none());
        }
        assert!(small.now_or_never().is_some());
    }
}
