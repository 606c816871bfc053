//! Workspaces that end with their turn.

use std::sync::Arc;

use super::SourceList;
use protocol::ids::WorkspaceId;

/// The workspace of a turn that is not stored. Dropping this deletes the data of the sources for it.
#[derive(Debug)]
pub struct WorkspaceGuard {
    pub(super) workspace: WorkspaceId,
    pub(super) sources: Arc<SourceList>,
}

impl WorkspaceGuard {
    /// The workspace.
    pub fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }
}

impl Drop for WorkspaceGuard {
    fn drop(&mut self) {
        self.sources.session_deleted(&self.workspace);
    }
}
