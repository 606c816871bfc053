//! What a run and its readers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::keys::IdempotencyKey;
use super::log::{Log, Page};
use super::{RunStart, RunStatus};
use crate::control::{AbortReason, TurnControl};
use crate::unix_seconds;
use protocol::ids::{Owner, RunId, SessionId};
use quota::{BudgetExceeded, RetainedBytes};
use store::{RunAnswer, RunRecord, RunRecordState};

/// Memory that an answer counts besides its body, in bytes.
const ANSWER_BYTES: usize = 1024;

/// What a run and its readers share.
#[derive(Debug)]
pub(super) struct RunState {
    pub(super) id: RunId,
    pub(super) owner: Owner,
    pub(super) control: TurnControl,
    created: i64,
    /// The run continues without readers.
    finish: bool,
    /// The run has a record in the store from its start.
    pub(super) recorded: bool,
    /// The key under which the request may be sent again.
    pub(super) key: Option<IdempotencyKey>,
    /// Nothing of the run may be written to the store.
    ephemeral: bool,
    unfinished: Option<Bytes>,
    readers: AtomicUsize,
    /// The answer leaves memory once its last reader has left: the store has it, or memory is scarce.
    released: AtomicBool,
    /// Readers that wait for [`Self::changed`].
    waiting: AtomicUsize,
    changed: Notify,
    progress: Mutex<Progress>,
}

/// How far a run is.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) log: Log,
    /// The store has the record of the run, if it is to have one.
    record_stored: bool,
    /// The store has what the run has left, if it is to have that.
    end_stored: bool,
    /// The headers that came with the first model call's success.
    pub(super) head: Option<HeaderMap>,
    session_id: Option<SessionId>,
    round: u32,
    end: Option<End>,
    /// The owner has deleted the answer.
    forgotten: bool,
}

#[derive(Debug)]
struct End {
    at: Instant,
    answer: Option<Arc<RunAnswer>>,
    /// What the answer has of the budget, if only the memory has it.
    charge: RetainedBytes,
}

impl RunState {
    pub(super) fn new(start: &RunStart, owner: Owner, charge: RetainedBytes) -> Self {
        Self {
            id: start.id.clone(),
            owner,
            control: TurnControl::new(start.id.clone()),
            created: unix_seconds(),
            finish: start.finish,
            recorded: start.recorded && !start.ephemeral,
            key: start.key.clone(),
            ephemeral: start.ephemeral,
            unfinished: start.unfinished.clone(),
            readers: AtomicUsize::new(0),
            released: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            changed: Notify::new(),
            progress: Mutex::new(Progress {
                log: Log::new(charge, start.streamed),
                record_stored: false,
                end_stored: false,
                head: None,
                session_id: start.session_id.clone(),
                forgotten: false,
                round: 0,
                end: None,
            }),
        }
    }

    /// A reader has come.
    pub(super) fn enter(&self) {
        self.readers.fetch_add(1, Ordering::AcqRel);
    }

    /// A reader has left. The last one ends a run that is not to finish by itself.
    pub(super) fn leave(&self) {
        if self.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            if !self.finish {
                self.control.abort(AbortReason::NoReader);
            }
            self.drop_released();
        }
    }

    /// Lets the answer leave memory once its last reader has left.
    pub(super) fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.drop_released();
    }

    fn drop_released(&self) {
        let is_read = self.readers.load(Ordering::Acquire) > 0;
        if self.is_released()
            && !is_read
            && let Some(end) = &mut self.progress.lock().end
        {
            (end.answer, end.charge) = (None, RetainedBytes::default());
        }
    }

    fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// Takes the encoded lines.
    ///
    /// # Errors
    /// When the budget of all logs is used up.
    pub(super) fn append(&self, page: &mut Page) -> Result<(), BudgetExceeded> {
        let appended = self.progress.lock().log.append(page);
        self.notify();
        appended
    }

    /// The store has the record of the run, if it is to have one.
    pub(super) fn note_record_stored(&self) {
        self.progress.lock().record_stored = true;
        self.notify();
    }

    /// The store has what the run has left, if it is to have that.
    pub(super) fn note_end_stored(&self) {
        self.progress.lock().end_stored = true;
        self.notify();
    }

    /// The first model call was answered with success.
    pub(super) fn started(&self, head: HeaderMap) {
        self.progress.lock().head = Some(head);
        self.notify();
    }

    /// Records the session and the round that the run has reached.
    pub(super) fn reached(&self, session_id: Option<&SessionId>, round: u32) {
        let mut progress = self.progress.lock();
        if progress.session_id.as_ref() != session_id && session_id.is_some() {
            progress.session_id = session_id.cloned();
        }
        progress.round = round;
    }

    pub(super) fn session_id(&self) -> Option<SessionId> {
        self.progress.lock().session_id.clone()
    }

    /// The owner deletes the answer.
    pub(super) fn forget(&self) {
        self.progress.lock().forgotten = true;
    }

    /// The answer, if it may be stored.
    pub(super) fn kept_answer(&self) -> Option<Arc<RunAnswer>> {
        let progress = self.progress.lock();
        progress.answer().filter(|_| !progress.forgotten)
    }

    /// Whether the answer is an error that came before any server-side call. A retry under the same key starts anew.
    pub(super) fn leaves_no_trace(&self, answer: &RunAnswer) -> bool {
        self.key.is_some() && !answer.status.is_success() && !self.control.calls_started()
    }

    /// Whether the run has a record in the store.
    pub(super) fn is_recorded(&self) -> bool {
        !self.ephemeral && (self.recorded || self.progress.lock().session_id.is_some())
    }

    /// The run is over.
    pub(super) fn end(&self, page: &mut Page, answer: Option<RunAnswer>) {
        {
            let mut progress = self.progress.lock();
            if progress.log.append(page).is_err() {
                progress.log.shorten();
            }
            progress.log.end();
            progress.end = Some(End {
                at: Instant::now(),
                answer: answer.map(Arc::new),
                charge: RetainedBytes::default(),
            });
        }
        self.changed.notify_waiters();
    }

    /// Resolves with the first value that `probe` returns. `probe` is called again after each change.
    pub(super) async fn wait_for<T>(&self, mut probe: impl FnMut(&Progress) -> Option<T>) -> T {
        let _waiting = Waiting::new(&self.waiting);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = probe(&self.progress.lock()) {
                return found;
            }
            changed.await;
        }
    }

    /// What the run is doing, unless it has ended.
    pub(super) fn status(&self) -> Option<RunStatus> {
        self.is_running().then(|| self.last_status())
    }

    /// What the run does or did last.
    pub(super) fn last_status(&self) -> RunStatus {
        let progress = self.progress.lock();
        RunStatus {
            id: self.id.clone(),
            created: self.created,
            session_id: progress.session_id.clone(),
            round: progress.round,
            unfinished: self.unfinished.clone(),
        }
    }

    /// The record of the run, unless it has ended and its answer is not in memory.
    pub(super) fn record(&self) -> Option<RunRecord> {
        let progress = self.progress.lock();
        let state = match &progress.end {
            None => RunRecordState::Running,
            // The store says whether the run was resumed.
            Some(_) if self.control.is_suspended() => return None,
            Some(end) => RunRecordState::Ended {
                bytes: end.answer.as_ref()?.body.length(),
            },
        };
        Some(RunRecord {
            id: self.id.clone(),
            owner: self.owner.clone(),
            session_id: progress.session_id.clone(),
            created_at: self.created,
            state,
            is_suspended: false,
        })
    }

    pub(super) fn is_running(&self) -> bool {
        self.progress.lock().end.is_none()
    }

    pub(super) fn answer(&self) -> Option<Arc<RunAnswer>> {
        let progress = self.progress.lock();
        progress.answer()
    }

    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.progress.lock().end.as_ref().map(|end| end.at)
    }

    /// Whether the run can be found after its end.
    pub(super) fn is_kept(&self) -> bool {
        let shown = !self.ephemeral && (self.finish || self.recorded);
        shown || self.key.is_some()
    }

    /// Charges the part of the answer that memory holds.
    ///
    /// # Errors
    /// When the budget is used up.
    pub(super) fn charge_answer(&self, mut charge: RetainedBytes) -> Result<(), BudgetExceeded> {
        let mut progress = self.progress.lock();
        let Some(end) = &mut progress.end else {
            return Ok(());
        };
        if let Some(answer) = end.answer.as_ref().filter(|_| !self.is_released()) {
            let bytes = usize::try_from(answer.body.length()).unwrap_or(usize::MAX);
            charge.grow_to(bytes.saturating_add(ANSWER_BYTES))?;
            end.charge = charge;
        }
        Ok(())
    }

    /// Whether the run has ended and only a request with its key may learn of it.
    pub(super) fn is_hidden(&self) -> bool {
        self.ephemeral && !self.is_running()
    }

    /// Drops the lines of an ended run, and its answer once the last reader has left.
    pub(super) fn clear(&self) {
        self.progress.lock().log.clear();
        self.release();
    }

    /// Asks the budget of all logs for the lines.
    ///
    /// # Errors
    /// When the budget is used up.
    pub(super) fn charge_log(&self) -> Result<(), BudgetExceeded> {
        self.progress.lock().log.charge()
    }

    /// Drops the oldest lines until the log has no more than it was granted.
    pub(super) fn shorten_log(&self) {
        self.progress.lock().log.shorten();
    }

    fn notify(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.changed.notify_waiters();
        }
    }
}

impl Progress {
    /// The answer, once the run is over.
    pub(super) fn answer(&self) -> Option<Arc<RunAnswer>> {
        self.end.as_ref()?.answer.clone()
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the store has the record of the run; `None` while that is not known.
    pub(super) fn record_stored(&self) -> Option<bool> {
        match self.record_stored {
            true => Some(true),
            false => self.is_over().then_some(false),
        }
    }

    /// Whether the run is over, and the store has what it has left.
    pub(super) fn is_settled(&self) -> bool {
        self.end_stored
    }
}

/// Counts a reader that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
