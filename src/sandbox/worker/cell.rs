//! One running cell: follows its events and builds its outcome.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::watch::ResourceWatcher;
use super::{REPEAT_INTERVAL, Worker, WorkerStatus};
use crate::collect::CellOutput;
use crate::output::OutputBuffer;
use crate::process::{ProcessEvent, ProcessExit};
use crate::worker_protocol::{self, Violation, WorkerMessage};
use crate::{Cell, CellEnd, CellOutcome, OutputListener, OutputStream, ResourceLimit};

/// Longest time that code, abandoned or not, has to end after the first interrupt. After it the interpreter is ended.
/// Tried by `time::time_is_bounded`.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Most protocol violations of one cell. With the last one the interpreter is ended.
/// Tried by `hostile::forged_frames_and_garbage_end_the_interpreter_and_nothing_else`.
const MAX_VIOLATIONS: u32 = 3;
/// Most frames of one cell. With the last one the interpreter is ended.
const MAX_FRAMES: u32 = 100_000;

/// A running cell.
pub(super) struct RunningCell<'w> {
    worker: &'w mut Worker,
    live: OutputListener<'w>,
    stdout: OutputBuffer,
    stderr: OutputBuffer,
    collected: CellOutput,
    frames: u32,
    violations: u32,
    started: Instant,
}

/// The reason why following a cell stops.
enum Step {
    /// The code has ended.
    Done,
    /// The interpreter exited by itself.
    Ended(ProcessExit),
    LimitExceeded(ResourceLimit),
    TimeUp,
}

impl<'w> RunningCell<'w> {
    pub(super) fn new(worker: &'w mut Worker, live: OutputListener<'w>) -> Self {
        let limits = &worker.plan.settings.limits;
        let kept = limits.output_kept;
        Self {
            collected: CellOutput::new(limits),
            worker,
            live,
            stdout: OutputBuffer::new(kept),
            stderr: OutputBuffer::new(kept),
            frames: 0,
            violations: 0,
            started: Instant::now(),
        }
    }

    pub(super) async fn run(mut self, cell: &Cell<'_>) -> (CellOutcome, WorkerStatus) {
        self.take_late_output();
        let limits = &self.worker.plan.settings.limits;
        let order = worker_protocol::exec(self.worker.last_id, cell.code, limits);
        let deadline = self.started + cell.timeout;
        self.worker.resume();
        self.worker.process.send(&order);
        let mut step = self.until(deadline).await;
        let interrupted = matches!(step, Step::TimeUp);
        let killed_at = deadline + GRACE;
        // Repeated, because code may swallow an exception, and the first signal may arrive before the cell starts.
        let mut next = deadline;
        while matches!(step, Step::TimeUp) && next < killed_at {
            if self.worker.process.interrupt().is_err() {
                break;
            }
            next += REPEAT_INTERVAL;
            step = self.until(next).await;
        }
        let end = match (self.worker.exceeded_limit(), step) {
            (Some(limit), _) | (None, Step::LimitExceeded(limit)) => CellEnd::LimitExceeded(limit),
            (None, Step::Done) if interrupted => CellEnd::Interrupted,
            (None, Step::Done) => CellEnd::Completed,
            (None, Step::TimeUp) => CellEnd::TimedOut,
            (None, Step::Ended(ended)) => {
                self.collected.note(ended.to_string());
                CellEnd::Crashed
            }
        };
        self.finish(end, cell).await
    }

    /// Follows the code until it ends, is ended, or the deadline passes.
    async fn until(&mut self, deadline: Instant) -> Step {
        loop {
            let Worker {
                process, watcher, ..
            } = &mut *self.worker;
            let happened = tokio::select! {
                event = process.next() => event,
                limit = exceeds(watcher) => return Step::LimitExceeded(limit),
                () = sleep_until(deadline) => return Step::TimeUp,
            };
            let step = match happened {
                ProcessEvent::Control(bytes) => {
                    self.worker.decoder.push(&bytes);
                    self.frames()
                }
                ProcessEvent::Output(stream, bytes) => self.output(stream, &bytes),
                // The code has closed the control socket, so no further message can arrive.
                ProcessEvent::Closed => Some(self.closed().await),
                ProcessEvent::Violation => Some(Step::LimitExceeded(ResourceLimit::Protocol)),
                ProcessEvent::Ended(ended) => Some(Step::Ended(ended)),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Handles the received frames.
    fn frames(&mut self) -> Option<Step> {
        while let Some(decoded) = self.worker.decoder.next() {
            self.frames += 1;
            let taken = match decoded {
                Ok(WorkerMessage::Done { id }) if id == self.worker.last_id => {
                    return Some(Step::Done);
                }
                Ok(frame) => self.collected.take(frame, self.worker.last_id),
                Err(Violation::TooLong) => {
                    return Some(Step::LimitExceeded(ResourceLimit::Protocol));
                }
                Err(_) => false,
            };
            if !taken {
                self.violations += 1;
            }
            if self.violations >= MAX_VIOLATIONS || self.frames >= MAX_FRAMES {
                return Some(Step::LimitExceeded(ResourceLimit::Protocol));
            }
        }
        None
    }

    fn output(&mut self, stream: OutputStream, bytes: &[u8]) -> Option<Step> {
        let capture = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        if let Some(text) = capture.push(bytes) {
            (self.live)(stream, &text);
        }
        let total = self.stdout.total() + self.stderr.total();
        (total > self.worker.plan.settings.limits.output)
            .then_some(Step::LimitExceeded(ResourceLimit::Output))
    }

    /// Handles a closed control socket; usually the interpreter is exiting.
    async fn closed(&mut self) -> Step {
        match tokio::time::timeout(GRACE, self.worker.process.ended()).await {
            Ok(ended) => Step::Ended(ended),
            Err(_) => Step::LimitExceeded(ResourceLimit::Protocol),
        }
    }

    /// Takes output that threads and processes of earlier cells wrote after their cell had ended.
    fn take_late_output(&mut self) {
        let (stdout, stderr) = (&mut self.stdout, &mut self.stderr);
        self.worker.process.take_output(|stream, bytes| {
            let capture = match stream {
                OutputStream::Stdout => &mut *stdout,
                OutputStream::Stderr => &mut *stderr,
            };
            let _live = capture.push(bytes);
        });
        let late = stdout.total() + stderr.total();
        if late > 0 {
            self.collected.note(format!(
                "the first {late} bytes of output were written after the previous call had ended, by what it left running"
            ));
        }
    }

    /// Takes the output that the pipes still hold.
    fn drain_output(&mut self) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let most = usize::try_from(self.worker.plan.settings.limits.output).unwrap_or(usize::MAX);
        self.worker.process.take_output(|stream, bytes| {
            let into = match stream {
                OutputStream::Stdout => &mut out,
                OutputStream::Stderr => &mut err,
            };
            if into.len() < most {
                into.extend_from_slice(bytes);
            }
        });
        for (stream, bytes) in [(OutputStream::Stdout, out), (OutputStream::Stderr, err)] {
            if !bytes.is_empty() {
                let _no_step_follows = self.output(stream, &bytes);
            }
        }
    }

    async fn finish(mut self, mut end: CellEnd, cell: &Cell<'_>) -> (CellOutcome, WorkerStatus) {
        let elapsed = self.started.elapsed();
        self.drain_output();
        let mut status = match end {
            CellEnd::Completed | CellEnd::Interrupted => WorkerStatus::Ready,
            _ => WorkerStatus::Ended,
        };
        if status == WorkerStatus::Ended {
            // Remaining processes would write files while they are read.
            self.worker.stop().await;
            self.drain_output();
        }
        let captured = self.worker.capture_files(cell.outputs).await;
        // Remaining processes may have exceeded a limit meanwhile.
        if status == WorkerStatus::Ready
            && let Some(limit) = self.worker.exceeded_limit()
        {
            (end, status) = (CellEnd::LimitExceeded(limit), WorkerStatus::Ended);
        }
        let working_directory = self.worker.working_directory();
        let mut outcome = self.collected.into_outcome(end, elapsed, working_directory);
        match captured {
            Some(captured) => {
                outcome.files = captured.files;
                outcome.notices.extend(captured.notices);
            }
            None => outcome
                .notices
                .push("the files could not be read".to_owned()),
        }
        outcome.stdout = self.stdout.take().text;
        outcome.stderr = self.stderr.take().text;
        (outcome, status)
    }
}

/// Waits until a limit is exceeded; for ever without a watcher.
async fn exceeds(watcher: &mut Option<ResourceWatcher>) -> ResourceLimit {
    match watcher {
        Some(watcher) => watcher.exceeds().await,
        None => std::future::pending().await,
    }
}
