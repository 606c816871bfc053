//! Code execution: a persistent Python interpreter per workspace, in the strongest isolation that the host allows.
//!
//! The code is untrusted. Each interpreter is started by a launcher: this binary, run again ([`launcher`]). The
//! launcher sets up namespaces, a private root, Landlock and seccomp rules and resource limits before Python starts. A
//! self-test at start-up finds out how much of that the host allows and reports it ([`IsolationReport`]). No other
//! module of the crate starts processes.
//!
//! An operator may configure a command that isolates instead, such as gVisor or a container. Then a relay runs inside
//! that isolation, and frames on the command's stdin and stdout replace the descriptors ([`process`],
//! [`relay_protocol`]).
//!
//! A call goes from [`Sandbox`] to the pool, which assigns an interpreter to the workspace, and on to a worker, which
//! follows one cell: frames on a control socket, output through pipes, files through a descriptor of the working
//! directory. Everything that comes back is untrusted input.
//!
//! Independently of Python, [`compute`] runs processes of this binary that can only compute, to parse untrusted
//! documents.

mod collect;
pub mod compute;
mod files;
mod interpreter;
pub mod launcher;
mod launcher_socket;
mod monitor;
mod outcome;
mod output;
mod plan;
mod pool;
mod process;
mod relay_protocol;
mod remove;
mod run_directory;
mod selftest;
pub mod settings;
mod worker;
mod worker_protocol;

use std::sync::Arc;
use std::time::Duration;

use rustix::process::DumpableBehavior;
use tokio_util::task::TaskTracker;

pub use self::outcome::{
    CapturedFile, Cell, CellEnd, CellError, CellOutcome, FileContent, FileRange, Image,
    InterpreterError, IsolationReport, OutputListener, OutputStream, ResourceLimit, SandboxError,
    Stats, Value, WithNotices, WorkFile, WorkingFile,
};
use self::pool::{Pool, WorkerGuard};
use self::settings::Settings;
pub use blobs::Blob;
use protocol::ids::WorkspaceId;

/// Longest time for each step of a start: the query of the interpreter, the steps before Python starts, the report of a
/// relay, for which a container may have to be created first, Python with its modules, the probe of the self-test, and
/// the list of fonts. After it the step has failed.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of stderr that are kept before the interpreter is ready, and of the command's own; the middle of more is
/// left out.
const KEPT_STDERR: usize = 8 * 1024;

/// The interpreters of all workspaces. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Arc<Pool>,
    report: IsolationReport,
}

impl Sandbox {
    /// Runs the self-test and starts the spare interpreters.
    ///
    /// # Errors
    /// When there is no usable Python, or the host does not allow the required isolation. The text names the remedy.
    pub async fn start(settings: Settings, tasks: &TaskTracker) -> Result<Self, SandboxError> {
        make_undumpable();
        let (plan, report) = selftest::choose(settings).await?;
        log(&report);
        let pool = Pool::new(plan, tasks.clone())?;
        Ok(Self(Arc::new(Inner { pool, report })))
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.0.pool.plan.settings
    }

    /// The result of the self-test.
    pub fn report(&self) -> &IsolationReport {
        &self.0.report
    }

    /// Current numbers of interpreters.
    pub fn stats(&self) -> Stats {
        self.0.pool.stats()
    }

    /// Runs one cell in the workspace's interpreter, which is started if necessary. Calls of one workspace run one
    /// after another.
    ///
    /// # Errors
    /// When no interpreter is available. Errors of the code itself are part of the outcome.
    ///
    /// # Cancel safety
    /// Dropping the future interrupts the code; an interpreter that ignores the interrupt is ended.
    pub async fn run(
        &self,
        workspace: &WorkspaceId,
        cell: Cell<'_>,
        live: OutputListener<'_>,
    ) -> Result<CellOutcome, InterpreterError> {
        let (mut guard, notices) = self.acquire_worker(workspace, cell.inputs).await?;
        let mut outcome = guard
            .run(&cell, live)
            .await
            .ok_or(InterpreterError::Closed)?;
        outcome.notices.splice(0..0, notices);
        Ok(outcome)
    }

    /// Deletes all variables of a workspace and keeps its files.
    ///
    /// # Errors
    /// When no interpreter is available.
    pub async fn reset(&self, workspace: &WorkspaceId) -> Result<(), InterpreterError> {
        let mut guard = self.0.pool.acquire_worker(workspace).await?;
        guard.reset().await.ok_or(InterpreterError::Closed)
    }

    /// The working files of a workspace, sorted by name; only the first few thousand are listed.
    ///
    /// # Errors
    /// When no interpreter is available.
    pub async fn list_files(
        &self,
        workspace: &WorkspaceId,
        inputs: &[WorkFile],
    ) -> Result<WithNotices<Vec<WorkingFile>>, InterpreterError> {
        let (mut guard, notices) = self.acquire_worker(workspace, inputs).await?;
        let (worker, _) = guard.parts().ok_or(InterpreterError::Closed)?;
        let listed = worker.list_files().await;
        guard.with_notices(listed, notices)
    }

    /// Reads part of a working file.
    ///
    /// # Errors
    /// When there is no such regular file in the working directory, or no interpreter is available.
    pub async fn read_file(
        &self,
        workspace: &WorkspaceId,
        inputs: &[WorkFile],
        part: FileRange<'_>,
    ) -> Result<WithNotices<FileContent>, InterpreterError> {
        let (mut guard, notices) = self.acquire_worker(workspace, inputs).await?;
        let (worker, _) = guard.parts().ok_or(InterpreterError::Closed)?;
        let read = worker.read_file(part).await;
        guard.with_notices(read, notices)
    }

    /// Records that code has run in the workspace before, and whether it had variables. If that interpreter is not
    /// here, the next result says what is lost.
    pub fn expect_earlier_calls(&self, workspace: &WorkspaceId, had_variables: bool) {
        self.0.pool.expect_earlier_calls(workspace, had_variables);
    }

    /// Ends the workspace's interpreter and deletes its files.
    pub fn forget(&self, workspace: &WorkspaceId) {
        self.0.pool.forget(workspace);
    }

    /// Saves the working files, ends every interpreter and waits for that, at most for `limit`. Later calls are
    /// rejected. The interpreters that are left then end with the process.
    pub async fn close(&self, limit: Duration) {
        self.0.pool.close(limit).await;
    }

    /// The workspace's interpreter with its input files in place, and notices for the model.
    async fn acquire_worker(
        &self,
        workspace: &WorkspaceId,
        inputs: &[WorkFile],
    ) -> Result<(WorkerGuard, Vec<String>), InterpreterError> {
        let mut guard = self.0.pool.acquire_worker(workspace).await?;
        let mut notices = guard.take_pending_notices();
        if let Some(fresh) = guard.take_restart() {
            notices.push(fresh.text().to_owned());
        }
        notices.extend(place_inputs(&mut guard, inputs).await);
        Ok((guard, notices))
    }
}

/// Denies other processes of the server's user access to the server's memory, environment and descriptors, and tracing.
/// Weaker isolation levels leave these open to code of the same user.
fn make_undumpable() {
    if let Err(error) = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "the server could not deny other processes of its user access to its memory");
    }
}

fn log(report: &IsolationReport) {
    tracing::info!("code execution: {report}");
    let missing = report.missing.iter();
    let missing = missing.map(|missing| format!("isolation could be stronger: {missing}"));
    for text in missing.chain(report.problems.iter().cloned()) {
        tracing::warn!("code execution: {text}");
    }
}

/// Places input files that are missing in the working directory. Returns notices about failures and changed names.
async fn place_inputs(guard: &mut WorkerGuard, inputs: &[WorkFile]) -> Vec<String> {
    let is_new = guard.take_is_new();
    let Some((worker, placed)) = guard.parts() else {
        return Vec::new();
    };
    let missing = inputs.iter().filter(|file| !placed.contains(&file.id));
    let (known, new): (Vec<&WorkFile>, Vec<&WorkFile>) =
        missing.partition(|file| file.is_produced && !is_new);
    let new: Vec<WorkFile> = new.into_iter().cloned().collect();
    placed.extend(known.into_iter().map(|file| file.id.clone()));
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
                tracing::error!(%error, "an input file could not be copied to the working directory");
                notices.push(format!(
                    "the file '{}' could not be put into the working directory",
                    file.name
                ));
            }
        }
    }
    notices
}
