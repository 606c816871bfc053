//! Where the tools of a run work: the workspace of its conversation and the files that belong there.

use std::sync::Arc;

use super::Parts;
use crate::ids::{Owner, SessionId, WorkspaceId};
use crate::tools::WorkFile;
use crate::tools::python::WorkspaceGuard;

/// The surroundings of a run.
#[derive(Debug)]
pub(super) struct Surroundings {
    workspace: WorkspaceId,
    /// Ends the workspace with the turn; a stored conversation keeps its own.
    guard: Option<Arc<WorkspaceGuard>>,
    files: Arc<[WorkFile]>,
}

impl Surroundings {
    /// Those of a conversation; without one they last as long as the run.
    pub(super) fn new(parts: &Parts, owner: &Owner, session: Option<&SessionId>) -> Self {
        let (workspace, guard) = match (session, &parts.code) {
            (Some(session), _) => (WorkspaceId::of(owner, session), None),
            (None, None) => (WorkspaceId::fresh(), None),
            (None, Some(code)) => {
                let guard = code.fresh_workspace();
                (guard.workspace().clone(), Some(Arc::new(guard)))
            }
        };
        Self {
            workspace,
            guard,
            files: Arc::default(),
        }
    }

    pub(super) fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }

    pub(super) fn files(&self) -> &Arc<[WorkFile]> {
        &self.files
    }
}
