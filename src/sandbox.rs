//! Code execution: a persistent Python interpreter per workspace, in the strongest isolation that the host allows.
//!
//! The code is untrusted. Each interpreter is started by a launcher, this very binary run again ([`launcher`]), which
//! builds namespaces, a root of its own, Landlock and seccomp rules and limits around it before Python begins; how much
//! of that the host allows is found out by a self-test at start-up and reported ([`Report`]). The only place of the
//! crate that starts processes.
//!
//! An operator may have a command isolate instead, such as gVisor or a container: then a relay runs inside, and frames of
//! the command's stdin and stdout carry what descriptors carry otherwise ([`process`], [`relay`]).
//!
//! A call goes from [`Sandbox`] through the pool, which gives a workspace its interpreter, to a worker, which follows one
//! cell: frames on a socket of their own, output through pipes, files through a descriptor of the working directory.
//! Everything that comes back is the word of untrusted code.
//!
//! Apart from that, [`compute`] has processes of this binary that can do nothing but compute, for parsing what strangers
//! wrote.

mod collect;
pub mod compute;
mod files;
mod frame;
mod interpreter;
pub mod launcher;
mod link;
mod monitor;
mod outcome;
mod output;
mod plan;
mod pool;
mod process;
mod relay;
mod remove;
mod run_directory;
mod selftest;
pub mod settings;
mod worker;

use std::sync::Arc;

use rustix::process::DumpableBehavior;
use tokio_util::task::TaskTracker;

pub use self::outcome::{
    CapturedFile, Cell, CellEnd, CellError, CellOutcome, FileContent, FilePart, Image, Limit, Live,
    OutputStream, Report, RunError, SandboxError, Stats, Told, Value, WorkFile, WorkingFile,
};
use self::pool::{Held, Pool};
use self::settings::Settings;
use crate::ids::WorkspaceId;

/// Interpreters by workspace; cheap to clone.
#[derive(Debug, Clone)]
pub struct Sandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Arc<Pool>,
    report: Report,
}

impl Sandbox {
    /// Finds out how strongly this host can isolate, and starts the spare interpreters.
    ///
    /// # Errors
    /// When there is no usable Python, or the host does not allow the isolation that is required; the text has the
    /// remedy.
    pub async fn start(settings: Settings, tasks: &TaskTracker) -> Result<Self, SandboxError> {
        close_to_others();
        let (plan, report) = selftest::choose(settings).await?;
        log(&report);
        let pool = Pool::new(plan, tasks.clone())?;
        Ok(Self(Arc::new(Inner { pool, report })))
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.0.pool.plan.settings
    }

    /// What the self-test found.
    pub fn report(&self) -> &Report {
        &self.0.report
    }

    /// Interpreters at this moment.
    pub fn stats(&self) -> Stats {
        self.0.pool.stats()
    }

    /// Runs one cell in the workspace's interpreter, which is started if there is none. Calls of one workspace run one
    /// after another.
    ///
    /// # Errors
    /// When no interpreter can be had; what the code itself does wrong is part of the outcome.
    ///
    /// # Cancel safety
    /// Dropping the future interrupts the code; an interpreter that does not heed that is ended.
    pub async fn run(
        &self,
        workspace: &WorkspaceId,
        cell: Cell<'_>,
        live: &dyn Live,
    ) -> Result<CellOutcome, RunError> {
        let (mut held, notices) = self.hold(workspace, cell.inputs).await?;
        let mut outcome = held.run(&cell, live).await.ok_or(RunError::Closed)?;
        outcome.notices.splice(0..0, notices);
        Ok(outcome)
    }

    /// Forgets all variables of a workspace; files stay.
    ///
    /// # Errors
    /// When no interpreter can be had.
    pub async fn reset(&self, workspace: &WorkspaceId) -> Result<(), RunError> {
        let mut held = self.0.pool.hold(workspace).await?;
        held.reset().await.ok_or(RunError::Closed)
    }

    /// The working files of a workspace, by name; of very many only the first few thousand.
    ///
    /// # Errors
    /// When no interpreter can be had.
    pub async fn list_files(
        &self,
        workspace: &WorkspaceId,
        inputs: &[WorkFile],
    ) -> Result<Told<Vec<WorkingFile>>, RunError> {
        let (mut held, notices) = self.hold(workspace, inputs).await?;
        let (worker, _) = held.parts().ok_or(RunError::Closed)?;
        let listed = worker.list_files().await;
        held.told(listed, notices)
    }

    /// Part of a working file.
    ///
    /// # Errors
    /// When there is no such regular file in the working directory, or no interpreter can be had.
    pub async fn read_file(
        &self,
        workspace: &WorkspaceId,
        inputs: &[WorkFile],
        part: FilePart<'_>,
    ) -> Result<Told<FileContent>, RunError> {
        let (mut held, notices) = self.hold(workspace, inputs).await?;
        let (worker, _) = held.parts().ok_or(RunError::Closed)?;
        let read = worker.read_file(part).await;
        held.told(read, notices)
    }

    /// Ends the workspace's interpreter and deletes its files.
    pub fn forget(&self, workspace: &WorkspaceId) {
        self.0.pool.forget(workspace);
    }

    /// Saves the working files, ends every interpreter and waits for that. Calls that come later are refused.
    pub async fn close(&self) {
        self.0.pool.close().await;
    }

    /// The workspace's interpreter with its input files in place, and what the model should know of that.
    async fn hold(
        &self,
        workspace: &WorkspaceId,
        inputs: &[WorkFile],
    ) -> Result<(Held, Vec<String>), RunError> {
        let mut held = self.0.pool.hold(workspace).await?;
        let mut notices = held.take_untold();
        if let Some(fresh) = held.take_fresh() {
            notices.push(fresh.text().to_owned());
        }
        notices.extend(place(&mut held, inputs).await);
        Ok((held, notices))
    }
}

/// From here on no process of the server's own user can look into its memory, its environment or its descriptors, nor
/// trace it: what isolation leaves open to code of the same user ends here.
fn close_to_others() {
    if let Err(error) = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "the server could not be closed to other processes of its user");
    }
}

fn log(report: &Report) {
    tracing::info!("code execution: {report}");
    let missing = report.missing.iter();
    let missing = missing.map(|missing| format!("could be isolated better: {missing}"));
    for text in missing.chain(report.problems.iter().cloned()) {
        tracing::warn!("code execution: {text}");
    }
}

/// Puts input files that are not there yet into the working directory; returns what went wrong or otherwise than asked.
async fn place(held: &mut Held, inputs: &[WorkFile]) -> Vec<String> {
    let Some((worker, placed)) = held.parts() else {
        return Vec::new();
    };
    let new: Vec<WorkFile> = inputs
        .iter()
        .filter(|file| !placed.contains(&file.id))
        .cloned()
        .collect();
    if new.is_empty() {
        return Vec::new();
    }
    let mut notices = Vec::new();
    for (file, result) in worker.place_files(new).await {
        match result {
            Ok(name) => {
                if name != file.name {
                    notices.push(format!("the file '{}' is called '{name}' here", file.name));
                }
                placed.insert(file.id);
            }
            Err(error) => {
                tracing::error!(%error, "an input file could not be put into the working directory");
                notices.push(format!(
                    "the file '{}' could not be put into the working directory",
                    file.name
                ));
            }
        }
    }
    notices
}
