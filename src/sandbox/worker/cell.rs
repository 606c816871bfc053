//! One cell while it runs: everything that can happen, and what it comes to.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::{After, READ_SIZE, Worker};
use crate::sandbox::collect::Collected;
use crate::sandbox::frame::{self, FromWorker, Violation};
use crate::sandbox::output::Capture;
use crate::sandbox::process::{self, Ended};
use crate::sandbox::{Cell, CellEnd, CellOutcome, Limit, Live, OutputStream};

/// How long code may take to heed an interrupt.
const GRACE: Duration = Duration::from_secs(2);
/// How long until the interrupt is repeated.
const AGAIN: Duration = Duration::from_millis(200);
/// How often memory is looked at while code runs.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// Every so many looks at memory, the disk is looked at where no mount bounds it.
const DISK_EVERY: u32 = 12;
/// Frames of one cell that loopwright's own Python side would not send, before it is ended.
const MAX_VIOLATIONS: u32 = 3;
/// Frames of one cell.
const MAX_FRAMES: u32 = 100_000;

/// A cell that runs.
pub(super) struct Running<'w> {
    worker: &'w mut Worker,
    live: &'w dyn Live,
    stdout: Capture,
    stderr: Capture,
    collected: Collected,
    frames: u32,
    violations: u32,
    looks: u32,
    looking: Option<JoinHandle<Option<Limit>>>,
    started: Instant,
}

/// What ends the wait for what happens next.
enum Step {
    /// The code is done.
    Done,
    /// The interpreter ended by itself.
    Ended(Ended),
    /// A limit was passed.
    Passed(Limit),
    /// Time is up.
    TimeUp,
}

impl<'w> Running<'w> {
    pub(super) fn new(worker: &'w mut Worker, live: &'w dyn Live) -> Self {
        let limits = &worker.plan.settings.limits;
        let kept = limits.output_kept;
        Self {
            collected: Collected::new(limits),
            worker,
            live,
            stdout: Capture::new(kept),
            stderr: Capture::new(kept),
            frames: 0,
            violations: 0,
            looks: 0,
            looking: None,
            started: Instant::now(),
        }
    }

    pub(super) async fn run(mut self, cell: &Cell<'_>) -> (CellOutcome, After) {
        self.take_late_output();
        let limits = &self.worker.plan.settings.limits;
        let order = frame::exec(self.worker.last_id, cell.code, limits);
        let deadline = self.started + cell.timeout;
        let mut step = self.until(deadline, &order).await;
        let interrupted = matches!(step, Step::TimeUp);
        let killed_at = deadline + GRACE;
        // Again and again: code may swallow an exception, and the first signal may come between two cells.
        let mut next = deadline;
        while matches!(step, Step::TimeUp) && next < killed_at {
            if self.worker.process.interrupt().is_err() {
                break;
            }
            next += AGAIN;
            step = self.until(next, &[]).await;
        }
        let end = match step {
            Step::Done if interrupted => CellEnd::Interrupted,
            Step::Done => CellEnd::Completed,
            Step::Passed(limit) => CellEnd::LimitPassed(limit),
            Step::TimeUp => CellEnd::TimedOut,
            Step::Ended(ended) => {
                self.collected.note(ended.to_string());
                CellEnd::Crashed
            }
        };
        self.finish(end, cell).await
    }

    /// Follows the code until it is done or something ends it; `order` is sent first.
    async fn until(&mut self, deadline: Instant, mut order: &[u8]) -> Step {
        let mut looks = interval_at(Instant::now() + MEMORY_INTERVAL, MEMORY_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look_began = Instant::now();
        let mut buffers = Buffers::default();
        loop {
            let ends = self.worker.process.ends();
            let (mut from_worker, mut to_worker) = ends.control.split();
            let happened = tokio::select! {
                sent = to_worker.write(order), if !order.is_empty() => Happened::Sent(sent),
                read = from_worker.read(&mut buffers.control) => Happened::Frames(read),
                read = ends.stdout.read(&mut buffers.stdout), if buffers.stdout_open => Happened::Output(OutputStream::Stdout, read),
                read = ends.stderr.read(&mut buffers.stderr), if buffers.stderr_open => Happened::Output(OutputStream::Stderr, read),
                ended = process::ended(ends.link) => return Step::Ended(ended),
                _ = looks.tick(), if self.looking.is_none() => Happened::Look,
                passed = looked(&mut self.looking), if self.looking.is_some() => Happened::Looked(passed),
                () = sleep_until(deadline) => return Step::TimeUp,
            };
            let step = match happened {
                Happened::Sent(Ok(sent)) => {
                    order = order.get(sent..).unwrap_or_default();
                    None
                }
                Happened::Frames(Ok(read)) if read > 0 => {
                    self.worker
                        .decoder
                        .push(buffers.control.get(..read).unwrap_or_default());
                    self.frames()
                }
                // The code has closed the socket: nothing can be heard of it any more.
                Happened::Sent(Err(_)) | Happened::Frames(_) => Some(self.closed().await),
                Happened::Output(stream, Ok(read)) if read > 0 => {
                    let bytes = match stream {
                        OutputStream::Stdout => buffers.stdout.get(..read),
                        OutputStream::Stderr => buffers.stderr.get(..read),
                    };
                    self.output(stream, bytes.unwrap_or_default())
                }
                Happened::Output(stream, _) => {
                    buffers.close(stream);
                    None
                }
                Happened::Look => {
                    look_began = Instant::now();
                    self.look();
                    None
                }
                Happened::Looked(passed) => {
                    self.looking = None;
                    // Code can make a look take long; it must not take all of a processor.
                    looks.reset_after(look_began.elapsed().max(MEMORY_INTERVAL));
                    passed.map(Step::Passed)
                }
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Takes the frames that have come.
    fn frames(&mut self) -> Option<Step> {
        while let Some(decoded) = self.worker.decoder.next() {
            self.frames += 1;
            let taken = match decoded {
                Ok(FromWorker::Done { id }) if id == self.worker.last_id => {
                    return Some(Step::Done);
                }
                Ok(frame) => self.collected.take(frame, self.worker.last_id),
                Err(Violation::TooLong) => return Some(Step::Passed(Limit::Protocol)),
                Err(_) => false,
            };
            if !taken {
                self.violations += 1;
            }
            if self.violations >= MAX_VIOLATIONS || self.frames >= MAX_FRAMES {
                return Some(Step::Passed(Limit::Protocol));
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
            self.live.output(stream, &text);
        }
        let total = self.stdout.total() + self.stderr.total();
        (total > self.worker.plan.settings.limits.output).then_some(Step::Passed(Limit::Output))
    }

    /// Has somebody look at what no kernel limit bounds.
    fn look(&mut self) {
        self.looks += 1;
        let disk = self.looks.is_multiple_of(DISK_EVERY);
        let watch = self.worker.watch();
        self.looking = Some(tokio::task::spawn_blocking(move || watch.passed(disk)));
    }

    /// The control socket was closed: most often because the interpreter is ending.
    async fn closed(&mut self) -> Step {
        let link = self.worker.process.ends().link;
        match tokio::time::timeout(GRACE, process::ended(link)).await {
            Ok(ended) => Step::Ended(ended),
            Err(_) => Step::Passed(Limit::Protocol),
        }
    }

    /// Output that came after the last cell had ended: threads and processes that it left behind.
    fn take_late_output(&mut self) {
        let (stdout, stderr) = (&mut self.stdout, &mut self.stderr);
        let process = &self.worker.process;
        process::drain(&process.stdout, |bytes| drop(stdout.push(bytes)));
        process::drain(&process.stderr, |bytes| drop(stderr.push(bytes)));
        let late = stdout.total() + stderr.total();
        if late > 0 {
            self.collected.note(format!(
                "the first {late} bytes of output were written after the previous call had ended, by what it left running"
            ));
        }
    }

    /// Everything the pipes still hold.
    fn drain_output(&mut self) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let most = usize::try_from(self.worker.plan.settings.limits.output).unwrap_or(usize::MAX);
        let keep = |into: &mut Vec<u8>, bytes: &[u8]| {
            if into.len() < most {
                into.extend_from_slice(bytes);
            }
        };
        process::drain(self.worker.process.stdout.as_fd(), |bytes| {
            keep(&mut out, bytes);
        });
        process::drain(self.worker.process.stderr.as_fd(), |bytes| {
            keep(&mut err, bytes);
        });
        for (stream, bytes) in [(OutputStream::Stdout, out), (OutputStream::Stderr, err)] {
            if !bytes.is_empty() {
                let _no_step_follows = self.output(stream, &bytes);
            }
        }
    }

    async fn finish(mut self, end: CellEnd, cell: &Cell<'_>) -> (CellOutcome, After) {
        let elapsed = self.started.elapsed();
        self.drain_output();
        let after = match end {
            CellEnd::Completed | CellEnd::Interrupted => After::Ready,
            _ => After::Over,
        };
        if after == After::Over {
            // What still runs would go on writing files while they are taken.
            self.worker.process.kill().await;
            self.drain_output();
        }
        let files = self.worker.files.clone();
        let before = std::mem::take(&mut self.worker.before);
        let limits = self.worker.plan.settings.limits.clone();
        let declared = cell.outputs.to_vec();
        let taking = tokio::task::spawn_blocking(move || {
            let captured = files.capture(&before, &declared, &limits);
            (captured, files.snapshot())
        });
        let working_directory = self.worker.working_directory();
        let mut outcome = self.collected.into_outcome(end, elapsed, working_directory);
        match taking.await {
            Ok((captured, snapshot)) => {
                self.worker.before = snapshot;
                outcome.files = captured.files;
                outcome.notices.extend(captured.notices);
            }
            Err(_) => outcome
                .notices
                .push("the files could not be taken".to_owned()),
        }
        outcome.stdout = self.stdout.take().text;
        outcome.stderr = self.stderr.take().text;
        (outcome, after)
    }
}

enum Happened {
    Sent(io::Result<usize>),
    Frames(io::Result<usize>),
    Output(OutputStream, io::Result<usize>),
    Look,
    Looked(Option<Limit>),
}

/// Waits for what somebody who looks has seen.
async fn looked(looking: &mut Option<JoinHandle<Option<Limit>>>) -> Option<Limit> {
    match looking {
        Some(looking) => looking.await.unwrap_or_default(),
        None => None,
    }
}

/// What is read into, and whether there is more to read.
struct Buffers {
    control: Vec<u8>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    stdout_open: bool,
    stderr_open: bool,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            control: vec![0; READ_SIZE],
            stdout: vec![0; READ_SIZE],
            stderr: vec![0; READ_SIZE / 4],
            stdout_open: true,
            stderr_open: true,
        }
    }
}

impl Buffers {
    fn close(&mut self, stream: OutputStream) {
        match stream {
            OutputStream::Stdout => self.stdout_open = false,
            OutputStream::Stderr => self.stderr_open = false,
        }
    }
}
