//! One live interpreter: start, cells, end.

mod cell;
mod files;
mod launch;
mod reservation;
mod watch;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::files::Snapshot;
use super::output::OutputBuffer;
use super::plan::{LaunchPlan, Reservation};
use super::process::{Process, ProcessEvent, ProcessExit};
use super::worker_protocol::{self, WorkerDecoder, WorkerMessage};
use super::{
    Cell, CellOutcome, KEPT_STDERR, OutputListener, OutputStream, ResourceLimit, START_LIMIT,
    SandboxError,
};
use cell::{GRACE, RunningCell};
use launch::{data_directory, start_process};
use reservation::ReservationGuard;
use watch::{ResourceWatcher, WatchTarget};

/// The worker program, in Python.
pub(super) const PROGRAM: &str = include_str!("worker.py");
/// Variables that set the number of threads of libraries.
pub(super) const THREAD_VARIABLES: [&str; 4] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
];
/// Pause between interrupts, and between reads of abandoned output.
const REPEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time for deleting the variables. After it the interpreter is ended.
const RESET_LIMIT: Duration = Duration::from_secs(5);

/// A live interpreter.
#[derive(Debug)]
pub(super) struct Worker {
    process: Process,
    decoder: WorkerDecoder,
    /// Stderr written while no cell ran.
    stderr: OutputBuffer,
    /// The working directory after the last call.
    before: Snapshot,
    last_id: u32,
    /// Enforces polled limits; `None` before the interpreter is ready, after its end, and if a command isolates.
    watcher: Option<ResourceWatcher>,
    plan: Arc<LaunchPlan>,
    reservation: Arc<Reservation>,
    /// Declared after the process, so that the process's socket is closed before the launcher's exit is awaited.
    tenancy: ReservationGuard,
    pub(super) started: Instant,
    /// Modules that could not be preloaded.
    pub(super) preload_failed: Vec<String>,
}

/// Whether an interpreter can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerStatus {
    /// It is ready for the next cell.
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
            stderr: OutputBuffer::new(KEPT_STDERR),
            last_id: 0,
            watcher: None,
            plan: plan.clone(),
            reservation,
            tenancy,
            started: Instant::now(),
            preload_failed: Vec::new(),
        };
        worker.refresh_snapshot().await;
        let ready = timeout(START_LIMIT, worker.ready()).await;
        let error = match ready.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => return Ok(worker),
            Err(Lost::Launch(step, source)) => SandboxError::Launch { step, source },
            Err(Lost::Other(source)) => SandboxError::Python {
                stderr: worker.stderr_tail(),
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

    /// Waits for the next message while no cell runs.
    async fn next_frame(&mut self) -> Result<WorkerMessage, Lost> {
        loop {
            if let Some(frame) = self.decoder.next() {
                return frame.map_err(|_| io::ErrorKind::InvalidData.into());
            }
            match self.process.next().await {
                ProcessEvent::Control(bytes) => self.decoder.push(&bytes),
                ProcessEvent::Output(OutputStream::Stdout, _) => {}
                ProcessEvent::Output(OutputStream::Stderr, bytes) => drop(self.stderr.push(&bytes)),
                // The exit of the interpreter explains a closed control socket.
                ProcessEvent::Closed => return Err(self.process.ended().await.into()),
                ProcessEvent::Violation => return Err(io::ErrorKind::InvalidData.into()),
                ProcessEvent::Ended(ended) => return Err(ended.into()),
            }
        }
    }

    /// The last lines of stderr of an interpreter that did not start, for the operator.
    fn stderr_tail(&mut self) -> String {
        let stderr = &mut self.stderr;
        self.process.take_output(|stream, bytes| {
            if stream == OutputStream::Stderr {
                let _live = stderr.push(bytes);
            }
        });
        let text = format!(
            "{}\n{}",
            self.process.command_stderr(),
            self.stderr.take().text
        );
        let lines: Vec<&str> = text
            .lines()
            .rev()
            .filter(|line| !line.is_empty())
            .take(3)
            .collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    /// Runs a cell to its end.
    ///
    /// # Cancel safety
    /// Not cancel safe: after a dropped future, [`Self::recover`] finds out whether the interpreter is still usable.
    pub(super) async fn run(
        &mut self,
        cell: &Cell<'_>,
        live: OutputListener<'_>,
    ) -> (CellOutcome, WorkerStatus) {
        self.last_id = self.last_id.wrapping_add(1);
        RunningCell::new(self, live).run(cell).await
    }

    /// Ends an abandoned call: interrupts the code and reads up to the end of the call.
    pub(super) async fn recover(&mut self) -> WorkerStatus {
        let done = timeout(GRACE, async {
            loop {
                if self.process.interrupt().is_err() {
                    return WorkerStatus::Ended;
                }
                // Output is read meanwhile, because a full pipe would block the code.
                match timeout(REPEAT_INTERVAL, self.next_frame()).await {
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

    /// Deletes all variables.
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

    /// Ends the interpreter and everything it started, and waits for that. The files stay.
    pub(super) async fn stop(&mut self) {
        self.process.stop().await;
        // The process id may be reused soon.
        self.watcher = None;
    }

    /// Ends the interpreter and releases its reservation.
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

    /// Suspends the interpreter and remaining processes until the next call.
    pub(super) fn pause(&self) {
        self.process.pause();
        if let Some(watcher) = &self.watcher {
            watcher.set_busy(false);
        }
    }

    /// Resumes the interpreter for a call.
    fn resume(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.set_busy(true);
        }
        self.process.resume();
    }

    /// The limit that was exceeded, if any.
    pub(super) fn exceeded_limit(&self) -> Option<ResourceLimit> {
        self.watcher.as_ref().and_then(ResourceWatcher::exceeded)
    }

    /// Whether deleted open files are counted, if files are on the host's disk.
    pub(super) fn counts_descriptors(&self) -> bool {
        self.watcher
            .as_ref()
            .is_some_and(ResourceWatcher::counts_descriptors)
    }

    /// Starts the resource watcher, unless a command isolates.
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

    /// The kernel's Landlock version, and whether there is a `/proc`; `None` if a command isolates.
    pub(super) fn launched_with(&self) -> Option<(i32, bool)> {
        match &self.process {
            Process::Launched(process) => Some((process.landlock, process.proc)),
            Process::Relayed(_) => None,
        }
    }

    fn discard_output(&mut self) {
        self.process.take_output(|_, _| {});
    }

    /// The working directory in the view of the code.
    pub(super) fn working_directory(&self) -> String {
        match &self.process {
            Process::Launched(_) => data_directory(&self.reservation),
            Process::Relayed(process) => process.directory.clone(),
        }
    }
}

/// The interpreter does not answer any more.
#[derive(Debug)]
enum Lost {
    /// Python was never executed: the launch step that failed.
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
