//! The interpreters that the tools use: the sandbox, or a scripted stand-in in tests. The methods are the sandbox's.

#[cfg(test)]
use std::sync::Arc;

use protocol::ids::WorkspaceId;
use sandbox::settings::Settings;
use sandbox::{
    Cell, CellOutcome, FileContent, FileRange, InterpreterError, IsolationReport, OutputListener,
    Sandbox, Stats, WithNotices, WorkFile, WorkingFile,
};

/// Interpreters by workspace. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Interpreters {
    Sandbox(Sandbox),
    #[cfg(test)]
    Scripted(Arc<super::tests::Scripted>),
}

macro_rules! forward {
    ($self:ident, $interpreters:ident => $call:expr) => {
        match $self {
            Self::Sandbox($interpreters) => $call,
            #[cfg(test)]
            Self::Scripted($interpreters) => $call,
        }
    };
}

impl Interpreters {
    pub(super) async fn run(
        &self,
        workspace: &WorkspaceId,
        cell: Cell<'_>,
        live: OutputListener<'_>,
    ) -> Result<CellOutcome, InterpreterError> {
        forward!(self, interpreters => interpreters.run(workspace, cell, live).await)
    }

    pub(super) async fn reset(&self, workspace: &WorkspaceId) -> Result<(), InterpreterError> {
        forward!(self, interpreters => interpreters.reset(workspace).await)
    }

    pub(super) async fn list_files(
        &self,
        workspace: &WorkspaceId,
        inputs: &[WorkFile],
    ) -> Result<WithNotices<Vec<WorkingFile>>, InterpreterError> {
        forward!(self, interpreters => interpreters.list_files(workspace, inputs).await)
    }

    pub(super) async fn read_file(
        &self,
        workspace: &WorkspaceId,
        inputs: &[WorkFile],
        range: FileRange<'_>,
    ) -> Result<WithNotices<FileContent>, InterpreterError> {
        forward!(self, interpreters => interpreters.read_file(workspace, inputs, range).await)
    }

    pub(super) fn expect_earlier_calls(&self, workspace: &WorkspaceId, had_variables: bool) {
        forward!(self, interpreters => interpreters.expect_earlier_calls(workspace, had_variables));
    }

    pub(super) fn forget(&self, workspace: &WorkspaceId) {
        forward!(self, interpreters => interpreters.forget(workspace));
    }

    pub(super) fn report(&self) -> &IsolationReport {
        forward!(self, interpreters => interpreters.report())
    }

    pub(super) fn settings(&self) -> &Settings {
        forward!(self, interpreters => interpreters.settings())
    }

    pub(super) fn stats(&self) -> Stats {
        forward!(self, interpreters => interpreters.stats())
    }
}
