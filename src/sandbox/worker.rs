//! One live interpreter: its start, one cell at a time, its end.

mod cell;
mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::files::{Snapshot, WorkDir};
use super::frame::{self, Decoder, FromWorker};
use super::launcher::spec::{CONTROL_FD, DATA, Form, Spec};
use super::plan::{Place, Plan};
use super::process::{self, Ended, Process};
use super::{Cell, CellOutcome, Live, SandboxError};
use cell::Running;
use watch::Watch;

/// The Python side.
const PROGRAM: &str = include_str!("worker.py");
/// Longest time for Python to start and to import what is preloaded.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long until an interrupt is repeated, and abandoned output is read away.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest time for an interpreter to forget its variables.
const RESET_LIMIT: Duration = Duration::from_secs(5);
/// Bytes read from the control socket at a time.
const READ_SIZE: usize = 64 * 1024;

/// A live interpreter.
#[derive(Debug)]
pub(super) struct Worker {
    process: Process,
    decoder: Decoder,
    pub(super) files: Arc<WorkDir>,
    /// The directory for temporary files.
    tmp: Arc<WorkDir>,
    /// Other writable directories whose use counts as memory.
    others: Arc<[OwnedFd]>,
    /// The working directory as the last call left it.
    before: Snapshot,
    last_id: u32,
    plan: Arc<Plan>,
    place: Place,
    pub(super) started: Instant,
    /// Modules that were to be imported beforehand and could not be.
    pub(super) preload_failed: Vec<String>,
}

/// Whether an interpreter can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// It waits for the next cell.
    Ready,
    /// It has ended or is to be ended.
    Over,
}

impl Worker {
    /// Starts an interpreter and waits until it is ready.
    pub(super) async fn start(plan: &Arc<Plan>, place: Place) -> Result<Self, SandboxError> {
        let spec = spec(plan, &place);
        let mut process = Process::start(&plan.settings.launcher, &spec).await?;
        let at = |step| move |source: io::Error| SandboxError::Step { step, source };
        let mut directories = std::mem::take(&mut process.directories).into_iter();
        let data = directories
            .next()
            .ok_or_else(|| at("opening the working directory")(io::ErrorKind::NotFound.into()))?;
        let private = spec.form.has_namespaces();
        let tmp = directories
            .next()
            .ok_or_else(|| at("opening the temporary directory")(io::ErrorKind::NotFound.into()))?;
        let tmp = Arc::new(WorkDir::new(tmp, private));
        let others = directories.collect();
        let files = WorkDir::new(data, private).seen_as(working_directory(&place));
        let files = Arc::new(files);
        let mut worker = Self {
            before: files.snapshot(),
            process,
            decoder: Decoder::new(&plan.settings.limits),
            files,
            tmp,
            others,
            last_id: 0,
            plan: plan.clone(),
            place,
            started: Instant::now(),
            preload_failed: Vec::new(),
        };
        let ready = timeout(READY_LIMIT, worker.ready()).await;
        let error = match ready.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => return Ok(worker),
            Err(Lost::Launch(step, source)) => SandboxError::Launch { step, source },
            Err(Lost::Other(source)) => SandboxError::Python {
                said: worker.last_words(),
                source,
            },
        };
        worker.end().await;
        Err(error)
    }

    async fn ready(&mut self) -> Result<(), Lost> {
        let FromWorker::Ready { preload_failed, .. } = self.next_frame().await? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        self.preload_failed = preload_failed;
        Ok(())
    }

    /// The next frame, where nothing else can happen.
    async fn next_frame(&mut self) -> Result<FromWorker, Lost> {
        loop {
            if let Some(frame) = self.decoder.next() {
                return frame.map_err(|_| io::ErrorKind::InvalidData.into());
            }
            let mut buffer = [0; 4096];
            let ends = self.process.ends();
            let read = tokio::select! {
                // A closed control socket is explained by what the launcher says.
                read = ends.control.read(&mut buffer) => read?,
                ended = process::ended(ends.link) => return Err(ended.into()),
            };
            if read == 0 {
                let ends = self.process.ends();
                return Err(process::ended(ends.link).await.into());
            }
            self.decoder.push(buffer.get(..read).unwrap_or_default());
        }
    }

    /// What an interpreter that did not start wrote to stderr: its last lines, for the operator.
    fn last_words(&mut self) -> String {
        let mut said = Vec::new();
        process::drain(&self.process.stderr, |bytes| said.extend_from_slice(bytes));
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    /// Runs a cell to its end, whichever that is.
    ///
    /// # Cancel safety
    /// Not cancel safe: after a dropped future [`Self::recover`] finds out whether the interpreter can go on.
    pub(super) async fn run(&mut self, cell: &Cell<'_>, live: &dyn Live) -> (CellOutcome, After) {
        self.last_id = self.last_id.wrapping_add(1);
        Running::new(self, live).run(cell).await
    }

    /// Ends a call that nobody waits for any more: interrupts it and reads to its end.
    pub(super) async fn recover(&mut self, grace: Duration) -> After {
        let done = timeout(grace, async {
            loop {
                if self.process.interrupt().is_err() {
                    return After::Over;
                }
                // Output is read away, as a full pipe would hold up the code.
                self.discard_output();
                match timeout(AGAIN, self.next_frame()).await {
                    Ok(Ok(FromWorker::Done { id })) if id == self.last_id => return After::Ready,
                    Ok(Ok(_)) | Err(_) => {}
                    Ok(Err(_)) => return After::Over,
                }
            }
        })
        .await;
        self.discard_output();
        self.before = self.files.snapshot();
        done.unwrap_or(After::Over)
    }

    /// Forgets all variables.
    pub(super) async fn reset(&mut self) -> After {
        self.last_id = self.last_id.wrapping_add(1);
        let order = frame::reset(self.last_id);
        let done = timeout(RESET_LIMIT, async {
            self.process.control.write_all(&order).await?;
            loop {
                match self.next_frame().await? {
                    FromWorker::Done { id } if id == self.last_id => return Ok::<_, Lost>(()),
                    _ => {}
                }
            }
        })
        .await;
        self.discard_output();
        match done {
            Ok(Ok(())) => After::Ready,
            Ok(Err(_)) | Err(_) => After::Over,
        }
    }

    /// Gives matplotlib the list of fonts, which it takes long to make for itself.
    pub(super) async fn give_fonts(&self) {
        let Some(list) = self.plan.fonts.get().cloned() else {
            return;
        };
        let (tmp, owner) = (self.tmp.clone(), self.owner());
        let name = list
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let giving = tokio::task::spawn_blocking(move || tmp.place(&name, &list, owner));
        if let Ok(Err(error)) = giving.await {
            tracing::warn!(%error, "the list of fonts could not be given to an interpreter");
        }
    }

    /// Remembers the working directory as it is, so that what is there does not count as made by the next cell.
    pub(super) fn settle_files(&mut self) {
        self.before = self.files.snapshot();
    }

    /// Ends the interpreter and everything it started, and waits for that; its files stay.
    pub(super) async fn stop(&mut self) {
        self.process.kill().await;
    }

    /// The same, and what it had to itself is given back.
    pub(super) async fn end(mut self) {
        self.stop().await;
        // Only now may the user id and the directory go to another. What is in the directory may take long to delete.
        let Self { place, .. } = self;
        let giving_back = tokio::task::spawn_blocking(move || drop(place));
        if let Err(error) = giving_back.await {
            tracing::error!(%error, "what an interpreter had could not be given back");
        }
    }

    /// Whether memory or disk are past their limits; looked at while no cell runs.
    pub(super) async fn passes_limits(&self) -> bool {
        let watch = self.watch();
        let looking = tokio::task::spawn_blocking(move || watch.passed(true));
        looking.await.is_ok_and(|passed| passed.is_some())
    }

    fn watch(&self) -> Watch {
        Watch {
            launcher: self.process.id(),
            form: self.place.form(),
            settings: self.plan.settings.clone(),
            files: self.files.clone(),
            tmp: self.tmp.clone(),
            others: self.others.clone(),
        }
    }

    pub(super) fn landlock(&self) -> i32 {
        self.process.landlock
    }

    pub(super) fn has_proc(&self) -> bool {
        self.process.proc
    }

    /// Who owns the working files, where the server has to say so.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        self.place.owner()
    }

    fn discard_output(&mut self) {
        process::drain(&self.process.stdout, |_| {});
        process::drain(&self.process.stderr, |_| {});
    }

    /// Where the code runs, as the code sees it.
    pub(super) fn working_directory(&self) -> String {
        working_directory(&self.place)
    }
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

impl From<Ended> for Lost {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Failed(step, cause) => Self::Launch(step, cause),
            _ => Self::Other(io::Error::other(ended.to_string())),
        }
    }
}

fn working_directory(place: &Place) -> String {
    match place.directory() {
        None => DATA.to_owned(),
        Some(directory) => directory.join("data").display().to_string(),
    }
}

fn spec(plan: &Plan, place: &Place) -> Spec {
    let settings = &plan.settings;
    let data = working_directory(place);
    let tmp = match place.directory() {
        None => "/tmp".to_owned(),
        Some(directory) => directory.join("tmp").display().to_string(),
    };
    let options = json!({"fd": CONTROL_FD, "preload": settings.preload, "workdir": data});
    let arguments = ["-I", "-B", "-u", "-c", PROGRAM];
    Spec {
        form: place.form(),
        python: plan.interpreter.program.clone(),
        arguments: arguments
            .into_iter()
            .map(str::to_owned)
            .chain([options.to_string()])
            .collect(),
        environment: environment(plan, &tmp),
        trees: plan.interpreter.trees.clone(),
        directory: place.directory().map(std::path::Path::to_owned),
        limits: settings.limits.clone(),
        network: settings.network,
        slot: place.slot(),
        weak: plan.accepts_weak(place.form()),
    }
}

/// All that an interpreter finds in its environment; nothing of the server's.
fn environment(plan: &Plan, tmp: &str) -> Vec<(String, String)> {
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
    for library in ["OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM"] {
        environment.push((format!("{library}_NUM_THREADS"), threads.clone()));
    }
    environment
}

/// Whether code of this form has a root of its own.
pub(super) fn is_private(form: Form) -> bool {
    form.has_namespaces()
}
