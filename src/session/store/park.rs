//! Conversations that are not to be stored, while a client runs the calls that they wait for. They are kept until their
//! time is up, as an answer may have to be asked for again.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::super::{StoredMessage, StoredSession};
use super::Waiting;
use crate::ids::Owner;

/// Most conversations kept.
pub(super) const MAX_PARKED: usize = 1000;
/// Most conversations kept for one owner, so that nobody's push out everybody else's.
pub(super) const MAX_PARKED_OF_OWNER: usize = 500;
/// Most text kept over all of them; a single larger conversation is kept nevertheless.
const MAX_PARKED_BYTES: usize = 256 * 1024 * 1024;

/// The parked conversations.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// In the order they came.
    entries: BTreeMap<u64, Entry>,
    by_call: HashMap<(Owner, String), u64>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    calls: Vec<String>,
    waiting: Waiting,
    until: Instant,
    bytes: usize,
}

impl Parked {
    /// Keeps a conversation; one that waits for the same call gives way to it.
    pub(super) fn put(
        &mut self,
        owner: &Owner,
        calls: &[String],
        waiting: Waiting,
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
        if let Some(oldest) = oldest.filter(|_| of_owner.count() >= MAX_PARKED_OF_OWNER) {
            self.remove(oldest);
        }
        let bytes = size(&waiting.session);
        while self.entries.len() >= MAX_PARKED
            || (self.bytes + bytes > MAX_PARKED_BYTES && !self.entries.is_empty())
        {
            if let Some((&oldest, _)) = self.entries.first_key_value() {
                self.remove(oldest);
            }
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
            waiting,
            until,
            bytes,
        };
        self.entries.insert(key, entry);
    }

    /// The conversation that waits for the call.
    pub(super) fn get(&mut self, owner: &Owner, call_id: &str) -> Option<&Waiting> {
        self.drop_expired();
        let key = self.by_call.get(&(owner.clone(), call_id.to_owned()))?;
        self.entries.get(key).map(|entry| &entry.waiting)
    }

    /// Lets go of what is held for the conversation; it may still be asked for again.
    pub(super) fn release(&mut self, owner: &Owner, call_id: &str) {
        let key = self.by_call.get(&(owner.clone(), call_id.to_owned()));
        if let Some(entry) = key.and_then(|key| self.entries.get_mut(key)) {
            entry.waiting.held = None;
        }
    }

    /// Forgets the conversation that waits for the call.
    fn forget(&mut self, owner: &Owner, call_id: &str) {
        if let Some(&key) = self.by_call.get(&(owner.clone(), call_id.to_owned())) {
            self.remove(key);
        }
    }

    /// Forgets what nobody came back for.
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

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.bytes -= entry.bytes;
        for call in &entry.calls {
            self.by_call.remove(&(entry.owner.clone(), call.clone()));
        }
        Some(entry)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.by_call.is_empty() && self.bytes == 0
    }
}

fn size(session: &StoredSession) -> usize {
    let of_message = |stored: &StoredMessage| {
        let sources = stored.sources.iter();
        stored.message.json().len()
            + stored.full_text.as_ref().map_or(0, String::len)
            + sources
                .map(|source| source.url.len() + source.title.len())
                .sum::<usize>()
    };
    let instructions: usize = session
        .instructions
        .iter()
        .map(|message| message.json().len())
        .sum();
    instructions + session.messages.iter().map(of_message).sum::<usize>()
}
