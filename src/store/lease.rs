//! Leases: at most one run can write to a session at a time.

use std::sync::Arc;

use super::leases::{Fence, LeaseHold};
use super::postgres::RowHold;
use protocol::ids::{Owner, SessionId};

/// The right to write to a session, until it is released or dropped.
#[derive(Debug)]
pub struct Lease {
    pub(super) fence: Fence,
    pub(super) hold: Hold,
}

/// What is released with a lease.
#[derive(Debug)]
pub(super) enum Hold {
    /// The place in the table of this process.
    Memory(Arc<LeaseHold>),
    /// A row of a database.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "no store has such a row")
    )]
    Row(RowHold),
}

impl Lease {
    /// The fence for writes under this lease.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The owner of the session.
    pub fn owner(&self) -> &Owner {
        &self.fence.owner
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.fence.id
    }
}
