//! Turns that wait for a client to run its calls.
//!
//! For a stored session, the pending calls are rows that are deleted with it. A conversation that must not be stored is
//! kept here in memory until it expires. It is not dropped when results arrive, because the client may repeat its
//! request.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::record::StoredSession;
use protocol::ids::{Owner, SessionId};
use quota::heaviest;

/// Most unstored turns; the oldest of the owner who has most go first.
/// Tried by `suite::waiting::an_owner_with_few_unstored_turns_keeps_them`.
pub(super) const MAX_WAITING: usize = 1000;
/// Most unstored turns of one owner, so that one owner cannot evict the turns of all others; the oldest go first.
/// Tried by `suite::waiting::unstored_turns_are_bounded_in_time_and_number`.
pub(super) const MAX_WAITING_OF_OWNER: usize = 500;
/// Most bytes of all unstored turns; the oldest of the owner who has most go first. A single larger turn is kept.
const MAX_WAITING_BYTES: usize = 256 * 1024 * 1024;

/// A value that lives as long as an unstored turn.
pub type Attachment = Arc<dyn Any + Send + Sync>;

/// A turn that waits for the results of client calls.
#[derive(Debug, Clone)]
pub enum WaitingTurn {
    /// A turn of a stored session.
    Stored(SessionId),
    /// A turn of a conversation that must not be stored.
    Unstored(UnstoredTurn),
}

/// A turn of a conversation that must not be stored.
#[derive(Debug, Clone, Default)]
pub struct UnstoredTurn {
    /// The conversation.
    pub session: StoredSession,
    /// The attachment of the turn.
    pub attached: Option<Attachment>,
}

/// The unstored turns that wait.
#[derive(Debug, Default)]
pub(super) struct WaitingTurns {
    /// In order of insertion.
    entries: BTreeMap<u64, Entry>,
    by_call: HashMap<(Owner, String), u64>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    calls: Vec<String>,
    turn: UnstoredTurn,
    until: Instant,
    bytes: usize,
}

impl WaitingTurns {
    /// Adds a turn. A turn that waits for one of the same calls is dropped.
    pub(super) fn put(
        &mut self,
        owner: &Owner,
        calls: &[String],
        turn: UnstoredTurn,
        until: Instant,
    ) {
        self.drop_expired();
        if calls.is_empty() {
            return;
        }
        for call in calls {
            self.forget(owner, call);
        }
        let of_owner = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.owner == *owner);
        let oldest = of_owner.clone().next().map(|(key, _)| *key);
        if let Some(oldest) = oldest.filter(|_| of_owner.count() >= MAX_WAITING_OF_OWNER) {
            self.remove(oldest);
        }
        let bytes = turn.session.stored_bytes();
        while self.entries.len() >= MAX_WAITING {
            self.remove_of_heaviest(owner, 1, |_| 1);
        }
        while self.bytes + bytes > MAX_WAITING_BYTES && !self.entries.is_empty() {
            self.remove_of_heaviest(owner, weight(bytes), |entry| weight(entry.bytes));
        }
        let key = self.next;
        self.next += 1;
        self.bytes += bytes;
        for call in calls {
            self.by_call.insert((owner.clone(), call.clone()), key);
        }
        let entry = Entry {
            owner: owner.clone(),
            calls: calls.to_vec(),
            turn,
            until,
            bytes,
        };
        self.entries.insert(key, entry);
    }

    /// The turn that waits for the call.
    pub(super) fn get(&mut self, owner: &Owner, call_id: &str) -> Option<&UnstoredTurn> {
        self.drop_expired();
        let key = self.by_call.get(&(owner.clone(), call_id.to_owned()))?;
        self.entries.get(key).map(|entry| &entry.turn)
    }

    /// Drops the attachment of the turn, but not the turn.
    pub(super) fn detach(&mut self, owner: &Owner, call_id: &str) {
        let key = self.by_call.get(&(owner.clone(), call_id.to_owned()));
        if let Some(entry) = key.and_then(|key| self.entries.get_mut(key)) {
            entry.turn.attached = None;
        }
    }

    /// Drops the turn that waits for the call.
    fn forget(&mut self, owner: &Owner, call_id: &str) {
        if let Some(&key) = self.by_call.get(&(owner.clone(), call_id.to_owned())) {
            self.remove(key);
        }
    }

    /// Drops the turns that have expired.
    pub(super) fn drop_expired(&mut self) {
        let now = Instant::now();
        let expired: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.until <= now)
            .map(|(key, _)| *key)
            .collect();
        for key in expired {
            self.remove(key);
        }
    }

    /// Removes the oldest turn of the owner whose turns weigh most, with the one that `owner` adds.
    fn remove_of_heaviest(&mut self, owner: &Owner, added: u64, weight: fn(&Entry) -> u64) {
        let entries = || self.entries.iter();
        // A new owner counts only if it has turns already.
        let adds = entries().any(|(_, entry)| entry.owner == *owner);
        let added = adds.then_some((owner, added));
        let weights = entries().map(|(_, entry)| (&entry.owner, weight(entry)));
        let heaviest = heaviest(weights.chain(added));
        let oldest = entries().find(|(_, entry)| Some(&entry.owner) == heaviest);
        if let Some(oldest) = oldest.map(|(key, _)| *key) {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.bytes -= entry.bytes;
        for call in &entry.calls {
            self.by_call.remove(&(entry.owner.clone(), call.clone()));
        }
        Some(entry)
    }
}

fn weight(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
