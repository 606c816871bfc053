//! The environment of a turn's tools: the workspace, its input files, and the sources that earlier results found.

use std::sync::Arc;

use super::conversation::Conversation;
use super::inputs::Inputs;
use protocol::ids::{Owner, SessionId, WorkspaceId};
use tools::WorkFile;
use tools::cited_sources::CitedSources;
use tools::python::EarlierCode;
use tools::source::{Sources, WorkspaceGuard};

/// The environment of a turn's tools.
#[derive(Debug)]
pub(super) struct TurnEnv {
    workspace: WorkspaceId,
    /// Ends the workspace when the turn ends. The workspace of a stored session outlives the turn and has no guard.
    _guard: Option<Arc<WorkspaceGuard>>,
    inputs: Inputs,
    sources: CitedSources,
}

impl TurnEnv {
    /// The environment of a turn. Its workspace belongs to the container or the stored session; without one it lasts as
    /// long as the turn.
    pub(super) fn new(
        tools: &Sources,
        owner: &Owner,
        conversation: Option<&mut Conversation>,
        container: Option<&SessionId>,
        inputs: Inputs,
    ) -> Self {
        let known = conversation.as_deref().map(Conversation::sources);
        let sources = CitedSources::of(known.unwrap_or_default());
        let session = conversation.as_deref().and_then(Conversation::session_id);
        let session = container.or(session);
        let (workspace, guard) = match session {
            Some(session) => (WorkspaceId::of(owner, session), None),
            None => {
                let fresh = || Arc::new(tools.snapshot().fresh_workspace(owner));
                let guard = attached_guard(conversation.as_deref()).unwrap_or_else(fresh);
                if let Some(conversation) = conversation {
                    conversation.attach(guard.clone());
                }
                (guard.workspace().clone(), Some(guard))
            }
        };
        Self {
            workspace,
            _guard: guard,
            inputs,
            sources,
        }
    }

    pub(super) fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }

    pub(super) fn sources(&self) -> &CitedSources {
        &self.sources
    }

    pub(super) fn earlier_code(&self) -> EarlierCode {
        self.inputs.earlier_code
    }

    pub(super) fn files(&self) -> &Arc<[WorkFile]> {
        &self.inputs.files
    }
}

/// The guard of the workspace that the turn had before it waited for client calls.
fn attached_guard(conversation: Option<&Conversation>) -> Option<Arc<WorkspaceGuard>> {
    let attachment = conversation?.attachment()?.clone();
    attachment.downcast().ok()
}
