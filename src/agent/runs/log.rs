//! The event log of a run: the encoded lines of its answer, for the reader that started it and for later ones.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use memchr::memchr_iter;

use quota::{BudgetExceeded, RetainedBytes};

/// Most bytes that wait for the first reader. Then the model stream waits.
/// Tried by `stalled::the_time_limit_of_a_tool_runs_while_nobody_reads`.
pub(super) const READER_BUFFER: usize = 64 * 1024;
/// Most bytes of a log; the oldest go first.
/// Tried by `kept::a_log_has_the_last_four_mebibytes_of_a_run`.
const MAX_LOG_BYTES: usize = 4 * 1024 * 1024;
/// How long what memory has of an ended run is kept, and its idempotency key. Then a request under the key is a new
/// one.
/// Tried by `keys::a_key_is_kept_until_some_time_after_the_end_of_its_run`.
pub(super) const LOG_TTL: Duration = Duration::from_secs(600);
/// Size of the first page that lines are encoded into, in bytes; later pages are larger.
const FIRST_PAGE: usize = 1024;
/// Size of the largest page, and about of the most lines that are handed over together, in bytes.
pub(super) const LARGEST_PAGE: usize = 16 * 1024;
/// Size of a short line, in bytes; with less room than that left, another page is begun.
const LINE_ROOM: usize = 640;
/// The beginning of a line that counts.
const DATA: &[u8] = b"data: ";

/// The buffer in which a run encodes its events. Frames are slices of shared pages.
#[derive(Debug, Default)]
pub(super) struct Page {
    buffer: BytesMut,
    next: usize,
}

/// The encoded lines of a run.
#[derive(Debug, Default)]
pub(super) struct Log {
    frames: VecDeque<Frame>,
    /// Number of lines that were dropped.
    dropped: u64,
    /// Lines so far.
    lines: u64,
    bytes: usize,
    charge: RetainedBytes,
    unread: Unread,
    /// The run is over; nothing follows.
    ended: bool,
}

/// What the reader that started the run has not taken yet.
#[derive(Debug, Default)]
struct Unread {
    attached: bool,
    frames: VecDeque<Bytes>,
    bytes: usize,
    reader: Option<Waker>,
    run: Option<Waker>,
}

/// Some lines that were encoded together.
#[derive(Debug, Clone)]
struct Frame {
    bytes: Bytes,
    /// Lines before it.
    before: u64,
    lines: u64,
}

/// What a later reader is given.
#[derive(Debug)]
pub(super) enum Tail {
    /// Frames, and the number of the line before the first of them.
    Frames(Vec<Bytes>, u64),
    /// There are no further lines yet.
    Nothing,
    /// The lines were dropped.
    Gone,
    /// The run is over and everything was read.
    End,
}

impl Page {
    /// A buffer with space for the next lines.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() < LINE_ROOM {
            let size = self.next.clamp(FIRST_PAGE, LARGEST_PAGE);
            self.buffer = BytesMut::with_capacity(size);
            self.next = size * 2;
        }
        &mut self.buffer
    }

    /// Bytes that are encoded and not taken.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Takes what is encoded.
    fn take(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }
}

impl Log {
    /// A log that the reader which starts the run is attached to.
    pub(super) fn new(charge: RetainedBytes, attached: bool) -> Self {
        let unread = Unread {
            attached,
            ..Unread::default()
        };
        Self {
            charge,
            unread,
            ..Self::default()
        }
    }

    /// Takes what is encoded into the log, and wakes the first reader.
    ///
    /// # Errors
    /// When the budget of all logs is used up. The caller then makes space or shortens the log.
    pub(super) fn append(&mut self, page: &mut Page) -> Result<(), BudgetExceeded> {
        if page.len() == 0 {
            return Ok(());
        }
        let bytes = page.take();
        let lines = count_lines(&bytes);
        if self.unread.attached {
            self.unread.bytes += bytes.len();
            self.unread.frames.push_back(bytes.clone());
            if let Some(reader) = self.unread.reader.take() {
                reader.wake();
            }
        }
        self.lines += lines;
        self.bytes += bytes.len();
        self.frames.push_back(Frame {
            bytes,
            before: self.lines - lines,
            lines,
        });
        while self.bytes > MAX_LOG_BYTES && self.drop_oldest() {}
        self.charge()
    }

    /// Asks the budget for what the log has.
    ///
    /// # Errors
    /// When the budget is used up.
    pub(super) fn charge(&mut self) -> Result<(), BudgetExceeded> {
        self.charge.grow_to(self.bytes)
    }

    /// Drops the oldest lines until the log has no more than it was granted.
    pub(super) fn shorten(&mut self) {
        while self.bytes > self.charge.granted() && self.drop_oldest() {}
    }

    /// The run is over.
    pub(super) fn end(&mut self) {
        self.ended = true;
        if let Some(reader) = self.unread.reader.take() {
            reader.wake();
        }
    }

    /// The next frame for the first reader, if there is one.
    pub(super) fn take_unread(&mut self) -> Option<Bytes> {
        let unread = &mut self.unread;
        let frame = unread.frames.pop_front()?;
        unread.bytes -= frame.len();
        if unread.bytes < READER_BUFFER
            && let Some(run) = unread.run.take()
        {
            run.wake();
        }
        Some(frame)
    }

    /// The next frame for the first reader; none once it has read everything.
    pub(super) fn poll_unread(&mut self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(frame) = self.take_unread() {
            return Poll::Ready(Some(frame));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        set_waker(&mut self.unread.reader, context);
        Poll::Pending
    }

    /// Whether the buffer of the first reader has space, or there is no such reader.
    pub(super) fn poll_room(&mut self, context: &Context<'_>) -> Poll<()> {
        if !self.unread.attached || self.unread.bytes < READER_BUFFER {
            return Poll::Ready(());
        }
        set_waker(&mut self.unread.run, context);
        Poll::Pending
    }

    /// The first reader has left.
    pub(super) fn detach(&mut self) {
        let unread = std::mem::take(&mut self.unread);
        if let Some(run) = unread.run {
            run.wake();
        }
    }

    /// Lines so far.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// What follows the first `after` lines.
    pub(super) fn tail(&self, after: u64) -> Tail {
        if after < self.dropped {
            return Tail::Gone;
        }
        if after >= self.lines {
            return match self.ended {
                true => Tail::End,
                false => Tail::Nothing,
            };
        }
        let at = self
            .frames
            .partition_point(|frame| frame.before + frame.lines <= after);
        let (mut frames, mut bytes) = (Vec::new(), 0);
        for frame in self.frames.range(at..) {
            bytes += frame.bytes.len();
            frames.push(frame.bytes.clone());
            if bytes >= READER_BUFFER {
                break;
            }
        }
        Tail::Frames(
            frames,
            self.frames.get(at).map_or(after, |frame| frame.before),
        )
    }

    /// Drops all lines that later readers could read.
    pub(super) fn clear(&mut self) {
        while self.drop_oldest() {}
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(frame) = self.frames.pop_front() else {
            return false;
        };
        self.dropped += frame.lines;
        self.bytes -= frame.bytes.len();
        self.charge.shrink_to(self.bytes);
        true
    }
}

/// The `data:` lines of some encoded events.
fn count_lines(bytes: &[u8]) -> u64 {
    let first = bytes.starts_with(DATA);
    let later = memchr_iter(b'\n', bytes)
        .filter(|end| {
            let rest = bytes.get(end + 1..);
            rest.is_some_and(|rest| rest.starts_with(DATA))
        })
        .count();
    u64::from(first) + later as u64
}

/// Remembers who is to be woken, without a copy if it is the same task.
fn set_waker(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}
