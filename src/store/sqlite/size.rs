//! How much a statement or a transaction touches, and how much it may.

use super::super::record::{Change, StoredMessage};

/// Rows and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// Most that is touched in the task that asks: well under a millisecond.
pub(super) const IN_TASK: Extent = Extent {
    rows: 64,
    bytes: 256 * 1024,
};
/// Most that one transaction touches, so that it holds the writer for a few milliseconds. A single larger message is a
/// transaction of its own.
pub(super) const PIECE: Extent = Extent {
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

    /// A row of so many bytes.
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
        let instructions = change.instructions.iter().flatten();
        let own = Self {
            rows: 1 + change.client_calls.len(),
            bytes: instructions.map(|message| message.json().len()).sum(),
        };
        let messages = change.append.iter().map(Self::of_message);
        messages.fold(own, Self::plus)
    }
}
