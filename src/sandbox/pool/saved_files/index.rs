//! Index of the saved files: sizes, times, notes, and current uses.

use std::collections::HashMap;
use std::time::SystemTime;

use super::FileLoss;
use protocol::ids::Owner;
use quota::heaviest;

/// The index. Does no I/O.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<String, Entry>,
    /// Current uses; a use may begin before there is an entry.
    in_use: HashMap<String, usize>,
    notes: HashMap<String, FileLoss>,
    total: u64,
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    size: u64,
    saved_at: SystemTime,
}

impl Index {
    /// Records the saved files of a workspace.
    pub(super) fn record(
        &mut self,
        workspace: &str,
        owner: Owner,
        size: u64,
        saved_at: SystemTime,
    ) {
        self.remove(workspace);
        self.total += size;
        let entry = Entry {
            owner,
            size,
            saved_at,
        };
        self.entries.insert(workspace.to_owned(), entry);
    }

    /// Removes a workspace's entry.
    pub(super) fn remove(&mut self, workspace: &str) {
        if let Some(entry) = self.entries.remove(workspace) {
            self.total -= entry.size;
        }
    }

    /// Removes a workspace's entry, so that the caller can delete its files, unless they are in use.
    pub(super) fn remove_unless_used(&mut self, workspace: &str) -> bool {
        if self.in_use.contains_key(workspace) {
            return false;
        }
        self.remove(workspace);
        true
    }

    /// Removes an unused entry if the total exceeds the budget: the oldest of the owner whose unused entries are largest.
    pub(super) fn remove_oldest(&mut self, budget: u64) -> Option<String> {
        if self.total <= budget {
            return None;
        }
        let idle = || {
            let entries = self.entries.iter();
            entries.filter(|(workspace, _)| !self.in_use.contains_key(*workspace))
        };
        let owner = heaviest(idle().map(|(_, entry)| (&entry.owner, entry.size)))?;
        let of_owner = idle().filter(|(_, entry)| entry.owner == *owner);
        let (oldest, _) = of_owner.min_by_key(|(_, entry)| entry.saved_at)?;
        let oldest = oldest.clone();
        self.remove(&oldest);
        Some(oldest)
    }

    pub(super) fn begin_use(&mut self, workspace: &str) {
        *self.in_use.entry(workspace.to_owned()).or_default() += 1;
    }

    pub(super) fn end_use(&mut self, workspace: &str) {
        if let Some(uses) = self.in_use.get_mut(workspace) {
            *uses -= 1;
            if *uses == 0 {
                self.in_use.remove(workspace);
            }
        }
    }

    /// Whether a workspace has an entry or a note.
    pub(super) fn knows(&self, workspace: &str) -> bool {
        self.entries.contains_key(workspace) || self.notes.contains_key(workspace)
    }

    pub(super) fn note_of(&self, workspace: &str) -> Option<FileLoss> {
        self.notes.get(workspace).copied()
    }

    pub(super) fn note(&mut self, workspace: &str, note: Option<FileLoss>) {
        match note {
            Some(note) => self.notes.insert(workspace.to_owned(), note),
            None => self.notes.remove(workspace),
        };
    }
}
