//! One live interpreter: its start, one cell at a time, its end.

mod cell;
mod files;
mod reservation;
mod watch;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout;

use super::files::Snapshot;
use super::launcher::spec::{CONTROL_FD, DATA, Isolation, Spec};
use super::output::OutputBuffer;
use super::plan::{LaunchPlan, Reservation};
use super::process::launched::LaunchedProcess;
use super::process::relayed::RelayedProcess;
use super::process::{Process, ProcessEvent, ProcessExit};
use super::worker_protocol::{self, WorkerDecoder, WorkerMessage};
use super::{Cell, CellOutcome, Live, OutputStream, ResourceLimit, SandboxError};
use cell::RunningCell;
use reservation::ReservationGuard;
use watch::{ResourceWatcher, WatchTarget};

/// The Python side.
pub(super) const PROGRAM: &str = include_str!("worker.py");
/// What tells libraries how many threads to use.
pub(super) const THREAD_VARIABLES: [&str; 4] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
];
/// Longest time for Python to start and to import what is preloaded.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long until an interrupt is repeated, and abandoned output is read away.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest time for an interpreter to forget its variables.
const RESET_LIMIT: Duration = Duration::from_secs(5);
/// What is kept of the output of an interpreter that is not ready yet, in bytes.
const KEPT_EARLY: usize = 8 * 1024;

/// A live interpreter.
#[derive(Debug)]
pub(super) struct Worker {
    process: Process,
    decoder: WorkerDecoder,
    /// What was written to stderr while no cell ran.
    stderr: OutputBuffer,
    /// The working directory as the last call left it.
    before: Snapshot,
    last_id: u32,
    /// Who looks at it; nobody before it is ready, after its end and where a command bounds it.
    watcher: Option<ResourceWatcher>,
    plan: Arc<LaunchPlan>,
    reservation: Arc<Reservation>,
    /// After the process, so that its link is closed before its end is waited for.
    tenancy: ReservationGuard,
    pub(super) started: Instant,
    /// Modules that were to be imported beforehand and could not be.
    pub(super) preload_failed: Vec<String>,
}

/// Whether an interpreter can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerStatus {
    /// It waits for the next cell.
    Ready,
    /// It has ended or is to be ended.
    Ended,
}

impl Worker {
    /// Starts an interpreter and waits until it is ready.
    pub(super) async fn start(
        plan: &Arc<LaunchPlan>,
        reservation: Reservation,
    ) -> Result<Self, SandboxError> {
        let reservation = Arc::new(reservation);
        let mut tenancy = ReservationGuard::new(reservation.clone());
        let process = match start_process(plan, &reservation, &mut tenancy).await {
            Ok(process) => process,
            Err(error) => {
                drop(reservation);
                tenancy.end().await;
                return Err(error);
            }
        };
        let mut worker = Self {
            before: Snapshot::default(),
            process,
            decoder: WorkerDecoder::new(&plan.settings.limits),
            stderr: OutputBuffer::new(KEPT_EARLY),
            last_id: 0,
            watcher: None,
            plan: plan.clone(),
            reservation,
            tenancy,
            started: Instant::now(),
            preload_failed: Vec::new(),
        };
        worker.refresh_snapshot().await;
        let ready = timeout(READY_LIMIT, worker.ready()).await;
        let error = match ready.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => return Ok(worker),
            Err(Lost::Launch(step, source)) => SandboxError::Launch { step, source },
            Err(Lost::Other(source)) => SandboxError::Python {
                said: worker.stderr_tail(),
                source,
            },
        };
        worker.end().await;
        Err(error)
    }

    async fn ready(&mut self) -> Result<(), Lost> {
        let WorkerMessage::Ready { preload_failed, .. } = self.next_frame().await? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        self.preload_failed = preload_failed;
        self.watch().await?;
        Ok(())
    }

    /// The next frame, where nothing else can happen.
    async fn next_frame(&mut self) -> Result<WorkerMessage, Lost> {
        loop {
            if let Some(frame) = self.decoder.next() {
                return frame.map_err(|_| io::ErrorKind::InvalidData.into());
            }
            match self.process.next().await {
                ProcessEvent::Control(bytes) => self.decoder.push(&bytes),
                ProcessEvent::Output(OutputStream::Stdout, _) => {}
                ProcessEvent::Output(OutputStream::Stderr, bytes) => drop(self.stderr.push(&bytes)),
                // A closed control socket is explained by how the interpreter ended.
                ProcessEvent::Closed => return Err(self.process.ended().await.into()),
                ProcessEvent::Violation => return Err(io::ErrorKind::InvalidData.into()),
                ProcessEvent::Ended(ended) => return Err(ended.into()),
            }
        }
    }

    /// What an interpreter that did not start wrote to stderr: its last lines, for the operator.
    fn stderr_tail(&mut self) -> String {
        let said = &mut self.stderr;
        self.process.take_output(|stream, bytes| {
            if stream == OutputStream::Stderr {
                let _live = said.push(bytes);
            }
        });
        let said = format!("{}\n{}", self.process.said(), self.stderr.take().text);
        let lines: Vec<&str> = said
            .lines()
            .rev()
            .filter(|line| !line.is_empty())
            .take(3)
            .collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    /// Runs a cell to its end, whichever that is.
    ///
    /// # Cancel safety
    /// Not cancel safe: after a dropped future [`Self::recover`] finds out whether the interpreter can go on.
    pub(super) async fn run(
        &mut self,
        cell: &Cell<'_>,
        live: &dyn Live,
    ) -> (CellOutcome, WorkerStatus) {
        self.last_id = self.last_id.wrapping_add(1);
        RunningCell::new(self, live).run(cell).await
    }

    /// Ends a call that nobody waits for any more: interrupts it and reads to its end.
    pub(super) async fn recover(&mut self, grace: Duration) -> WorkerStatus {
        let done = timeout(grace, async {
            loop {
                if self.process.interrupt().is_err() {
                    return WorkerStatus::Ended;
                }
                // Output is read away meanwhile, as a full pipe would hold up the code.
                match timeout(AGAIN, self.next_frame()).await {
                    Ok(Ok(WorkerMessage::Done { id })) if id == self.last_id => {
                        return WorkerStatus::Ready;
                    }
                    Ok(Ok(_)) | Err(_) => {}
                    Ok(Err(_)) => return WorkerStatus::Ended,
                }
            }
        })
        .await;
        self.discard_output();
        self.refresh_snapshot().await;
        done.unwrap_or(WorkerStatus::Ended)
    }

    /// Forgets all variables.
    pub(super) async fn reset(&mut self) -> WorkerStatus {
        self.last_id = self.last_id.wrapping_add(1);
        let order = worker_protocol::reset(self.last_id);
        self.resume();
        self.process.send(&order);
        let done = timeout(RESET_LIMIT, async {
            loop {
                match self.next_frame().await? {
                    WorkerMessage::Done { id } if id == self.last_id => return Ok::<_, Lost>(()),
                    _ => {}
                }
            }
        })
        .await;
        self.discard_output();
        match done {
            Ok(Ok(())) => WorkerStatus::Ready,
            Ok(Err(_)) | Err(_) => WorkerStatus::Ended,
        }
    }

    /// Ends the interpreter and everything it started, and waits for that; its files stay.
    pub(super) async fn stop(&mut self) {
        self.process.stop().await;
        // Its number may soon be another process's.
        self.watcher = None;
    }

    /// The same, and what it had to itself is given back.
    pub(super) async fn end(mut self) {
        self.process.kill().await;
        let Self {
            process,
            reservation,
            tenancy,
            ..
        } = self;
        drop((process, reservation));
        tenancy.end().await;
    }

    /// Has it and what code left running stand still until the next call.
    pub(super) fn pause(&self) {
        self.process.pause();
        if let Some(watcher) = &self.watcher {
            watcher.set_busy(false);
        }
    }

    /// Has all of it go on, for a call.
    fn resume(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.set_busy(true);
        }
        self.process.resume();
    }

    /// The limit that it was ended for passing, if any.
    pub(super) fn exceeded_limit(&self) -> Option<ResourceLimit> {
        self.watcher.as_ref().and_then(ResourceWatcher::exceeded)
    }

    /// Whether open files without a name are counted where files are on the host's disk.
    pub(super) fn counts_descriptors(&self) -> bool {
        self.watcher
            .as_ref()
            .is_some_and(ResourceWatcher::counts_descriptors)
    }

    /// Has somebody look at it; nobody does where a command bounds it.
    async fn watch(&mut self) -> io::Result<()> {
        let (Process::Launched(process), Some(isolation)) =
            (&self.process, self.reservation.isolation())
        else {
            return Ok(());
        };
        let kill = process.kill_handle()?;
        let watch = WatchTarget::of(
            process,
            isolation,
            &self.reservation,
            self.plan.settings.clone(),
        );
        self.watcher = Some(ResourceWatcher::start(watch, kill).await);
        Ok(())
    }

    pub(super) fn plan(&self) -> Arc<LaunchPlan> {
        self.plan.clone()
    }

    /// The version of the kernel's Landlock, and whether there is a `/proc`, where loopwright's launcher has seen to it.
    pub(super) fn launched_with(&self) -> Option<(i32, bool)> {
        match &self.process {
            Process::Launched(process) => Some((process.landlock, process.proc)),
            Process::Relayed(_) => None,
        }
    }

    fn discard_output(&mut self) {
        self.process.take_output(|_, _| {});
    }

    /// Where the code runs, as the code sees it.
    pub(super) fn working_directory(&self) -> String {
        match &self.process {
            Process::Launched(_) => data_directory(&self.reservation),
            Process::Relayed(process) => process.directory.clone(),
        }
    }
}

/// Starts the process of an interpreter in its place.
async fn start_process(
    plan: &LaunchPlan,
    reservation: &Reservation,
    tenancy: &mut ReservationGuard,
) -> Result<Process, SandboxError> {
    let Some(isolation) = reservation.isolation() else {
        let relayed = RelayedProcess::start(&plan.settings).await?;
        return Ok(Process::Relayed(Box::new(relayed)));
    };
    let spec = spec(plan, reservation, isolation);
    let began = |launcher| tenancy.began(launcher);
    let launcher = &plan.settings.launcher;
    let launched =
        LaunchedProcess::start(launcher, &spec, data_directory(reservation), began).await?;
    Ok(Process::Launched(Box::new(launched)))
}

/// An interpreter that does not answer any more.
#[derive(Debug)]
enum Lost {
    /// It was never executed: the step that failed.
    Launch(String, io::Error),
    Other(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

impl From<io::ErrorKind> for Lost {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Other(kind.into())
    }
}

impl From<ProcessExit> for Lost {
    fn from(ended: ProcessExit) -> Self {
        match ended {
            ProcessExit::Failed(step, cause) => Self::Launch(step, cause),
            _ => Self::Other(io::Error::other(ended.to_string())),
        }
    }
}

fn data_directory(reservation: &Reservation) -> String {
    match reservation.directory() {
        None => DATA.to_owned(),
        Some(directory) => directory.join("data").display().to_string(),
    }
}

fn spec(plan: &LaunchPlan, reservation: &Reservation, isolation: Isolation) -> Spec {
    let settings = &plan.settings;
    let data = data_directory(reservation);
    let tmp = match reservation.directory() {
        None => "/tmp".to_owned(),
        Some(directory) => directory.join("tmp").display().to_string(),
    };
    let options = json!({"fd": CONTROL_FD, "preload": settings.preload, "workdir": data});
    let arguments = ["-I", "-B", "-u", "-c", PROGRAM];
    Spec {
        isolation,
        python: plan.interpreter.program.clone(),
        arguments: arguments
            .into_iter()
            .map(str::to_owned)
            .chain([options.to_string()])
            .collect(),
        environment: environment(plan, &tmp),
        trees: plan.interpreter.trees.clone(),
        links: plan.interpreter.links.clone(),
        directory: reservation.directory().map(std::path::Path::to_owned),
        limits: settings.limits.clone(),
        network: settings.network,
        slot: reservation.slot(),
        weak: plan.accepts_weak(isolation),
    }
}

/// All that an interpreter finds in its environment; nothing of the server's.
fn environment(plan: &LaunchPlan, tmp: &str) -> Vec<(String, String)> {
    let bin = plan.interpreter.program.parent();
    let bin = bin
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    let threads = plan.settings.limits.cpus.max(1).to_string();
    let mut environment: Vec<(String, String)> = [
        ("PATH", format!("{bin}:/usr/local/bin:/usr/bin:/bin")),
        ("HOME", tmp.to_owned()),
        ("TMPDIR", tmp.to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("MPLBACKEND", "Agg".to_owned()),
        ("MPLCONFIGDIR", tmp.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    // As many threads as processors: more would only wait for each other, and count against the limit.
    for name in THREAD_VARIABLES {
        environment.push((name.to_owned(), threads.clone()));
    }
    environment
}
