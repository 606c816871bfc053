//! MCP servers that suspended turns declare. They hold secrets, which are not stored: this process keeps them in memory until the
//! next run of the session has ended.

use std::collections::HashMap;

use super::Runs;
use crate::draft::DraftTool;
use protocol::ids::{Owner, SessionId};
use quota::RetainedBytes;

/// The servers of suspended turns, by their sessions.
pub(super) type SuspendedServers = HashMap<(Owner, SessionId), (Vec<DraftTool>, RetainedBytes)>;

impl Runs {
    /// The servers that the suspended turn of a session declares, if this process has them.
    pub fn servers_of(&self, owner: &Owner, session: &SessionId) -> Option<Vec<DraftTool>> {
        let kept = self.0.servers.lock();
        let (servers, _) = kept.get(&(owner.clone(), session.clone()))?;
        Some(servers.clone())
    }

    /// Holds the servers of a suspended turn in memory, and drops them for a turn that has ended. If memory is scarce
    /// they are not held.
    pub(super) fn keep_servers(&self, owner: &Owner, session: &SessionId, servers: Vec<DraftTool>) {
        let key = (owner.clone(), session.clone());
        self.0.servers.lock().remove(&key);
        if servers.is_empty() {
            return;
        }
        let mut charge = self.0.logs.charge(owner);
        let bytes = servers.iter().map(DraftTool::bytes).sum();
        if charge.grow_to(bytes).is_ok() {
            self.0.servers.lock().insert(key, (servers, charge));
        }
    }
}
