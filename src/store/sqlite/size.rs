//! The number of rows and bytes that a statement or a transaction accesses, and its limits.

use super::super::record::{Change, StoredMessage};

/// A number of rows and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// Most rows and bytes of a statement that runs in a task; it takes well under a millisecond. A larger one runs on
/// another thread.
/// Tried by `sqlite::limits::short_statements_run_in_the_task_and_long_ones_do_not`.
pub(super) const TASK_LIMIT: Extent = Extent {
    rows: 64,
    bytes: 256 * 1024,
};
/// Most rows and bytes of one transaction, which holds the writer for a few milliseconds; others follow.
/// Tried by `sqlite::forks::a_large_session_does_not_hold_up_writes_of_another_owner`.
pub(super) const CHUNK: Extent = Extent {
    rows: 512,
    bytes: 2 * 1024 * 1024,
};

impl Extent {
    /// No limit.
    pub(super) const ALL: Self = Self {
        rows: usize::MAX,
        bytes: usize::MAX,
    };

    pub(super) fn fits(self, limit: Self) -> bool {
        self.rows <= limit.rows && self.bytes <= limit.bytes
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_add(other.rows),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// One row with this number of bytes.
    pub(super) fn of_row(bytes: i64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { rows: 1, bytes }
    }

    pub(super) fn of_message(message: &StoredMessage) -> Self {
        Self {
            rows: 1,
            bytes: message.stored_bytes(),
        }
    }

    /// What a change adds.
    pub(super) fn of_change(change: &Change) -> Self {
        let own = Self {
            rows: 1 + change.client_calls.len() + usize::from(change.run.is_some()),
            bytes: 0,
        };
        let instructions = change.instructions.iter().flatten().map(|message| Self {
            rows: 1,
            bytes: message.json().len(),
        });
        let messages = change.append.iter().map(Self::of_message);
        instructions.chain(messages).fold(own, Self::plus)
    }
}

/// A number of bytes or rows that SQLite returned.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
