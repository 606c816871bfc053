//! Calls about which a person decides: the question, the wait in the stream, and the end of a turn that waits.

use std::mem;
use std::sync::Arc;

use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::super::AgentError;
use super::super::approvals::{known, question, sentence};
use super::super::batch::{Batch, BatchStep};
use super::super::event::{AgentEvent, WaitingCall};
use super::super::stop::StopReason;
use super::{Aborted, Phase, Run};
use crate::session::{ApprovalQuestion, StoreError};
use tools::gate::ApprovalAnswer;
use tools::refusal::CallRefusal;

/// Pause between two looks for decisions that other processes have stored.
/// Tried by `killed::one_replica_asks_another_is_told_and_a_third_goes_on`.
const CHECK_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks for decisions of which this process was not told, where no other uses the store.
/// Tried by `approvals::a_stream_notices_that_its_question_has_expired`.
const OWN_CHECK_PAUSE: Duration = Duration::from_secs(3);

/// A batch in which no call runs, while the reader waits for decisions.
#[derive(Debug)]
pub(super) struct PausedBatch {
    batch: Box<Batch>,
    until: Instant,
}

/// How a wait ended.
enum WaitEnd {
    Aborted,
    Decided,
    Passed,
}

impl Run {
    /// Reads the questions of the session, or of a turn that is not stored, if calls may be asked about.
    pub(super) async fn read_approvals(&mut self) -> Result<(), StoreError> {
        if self.request.options.ephemeral {
            self.turn.approvals = Arc::new(known(self.unstored.all()));
            return Ok(());
        }
        let Some(session) = self.session_id().cloned() else {
            return Ok(());
        };
        let store = &self.parts.sessions.store;
        let stored = store.approvals(&self.request.caller.owner, &session);
        self.turn.approvals = Arc::new(known(stored.await?));
        Ok(())
    }

    /// Stores the turn with the questions of its waiting calls, then reports them to the client. If storing fails, the
    /// calls are refused.
    pub(super) async fn ask(&mut self, indexes: Vec<usize>) {
        let Phase::Batch(mut batch) = mem::replace(&mut self.phase, Phase::Over) else {
            return;
        };
        let approvals = self.turn.approvals.clone();
        let is_known = |call: &WaitingCall| approvals.answer(&call.wait.id).is_some();
        let waiting = indexes.into_iter();
        let waiting = waiting.filter_map(|index| Some((index, batch.waiting(index)?)));
        let waiting: Vec<(usize, WaitingCall)> = waiting.collect();
        let is_kept =
            waiting.iter().all(|(_, call)| is_known(call)) || self.suspend_batch(&mut batch).await;
        for (index, call) in waiting {
            let is_known = is_known(&call);
            if !is_known && !is_kept {
                batch.refuse(index, &CallRefusal::undecided());
            } else if !(is_known && batch.was_shown()) {
                self.ready.push_back(AgentEvent::Waiting {
                    call: Box::new(call),
                    session_id: self.session_id().cloned(),
                });
            }
        }
        self.phase = Phase::Batch(batch);
    }

    /// Keeps the turn in the middle of this batch, with the questions of its calls.
    pub(super) async fn suspend_batch(&mut self, batch: &mut Batch) -> bool {
        self.turn.turn_bytes = batch.turn_bytes();
        self.waiting = batch.all_waiting();
        let run = self.control.run();
        let questions = self.waiting.iter().map(|call| question(run, call));
        let kept = self.suspend_turn(batch.open(), questions.collect()).await;
        if kept {
            batch.set_suspended();
        }
        kept
    }

    /// Asks about calls of a turn that is not stored. Returns whether its stream waits for decisions; if it does not,
    /// no decision is possible.
    pub(super) fn ask_unstored(&self, questions: Vec<ApprovalQuestion>) -> bool {
        let is_read = self.request.options.streamed && self.control.abort_reason().is_none();
        let is_handed_over = self.waiting.iter().any(|call| self.hands_over(call));
        let waits = is_read && !is_handed_over && !self.parts.settings.approval_wait.is_zero();
        if waits {
            self.unstored.ask(&self.request.caller.owner, questions);
        }
        waits
    }

    /// Ends or pauses a turn whose batch has only waiting calls left. A reader of a stream waits for decisions up to
    /// `approval_wait`. In other cases, and if the answer itself asks about a call, the turn is suspended until a
    /// decision.
    pub(super) async fn wait_or_end(&mut self, batch: Box<Batch>) -> Result<(), AgentError> {
        // The owner may have cancelled the turn while it was stored.
        if self.control.is_cancelled() {
            self.phase = Phase::Batch(batch);
            return Box::pin(self.abort()).await;
        }
        let is_read = self.control.abort_reason().is_none();
        if is_read && self.is_decided().await {
            self.resume_shown_batch(batch.into_open());
            return Ok(());
        }
        let longest = self.parts.settings.approval_wait;
        let is_handed_over = self.waiting.iter().any(|call| self.hands_over(call));
        let may_wait = self.request.options.streamed && is_read && !is_handed_over;
        if !may_wait || longest.is_zero() {
            if !self.control.close() {
                self.phase = Phase::Batch(batch);
                return Box::pin(self.abort()).await;
            }
            self.end(StopReason::ApprovalRequired, Vec::new());
            return Ok(());
        }
        let now = Instant::now();
        let until = now.checked_add(longest).unwrap_or(now);
        self.phase = Phase::Waiting(PausedBatch { batch, until });
        Ok(())
    }

    /// Waits for a decision about one of the calls, then resumes the batch.
    pub(super) async fn wait(&mut self, aborted: &mut Aborted) -> Result<(), AgentError> {
        let Phase::Waiting(PausedBatch { until, .. }) = &self.phase else {
            return Ok(());
        };
        let (until, since) = (*until, Instant::now());
        let end = self.decided(until, aborted).await;
        self.waited += since.elapsed();
        self.paused += since.elapsed();
        match end {
            WaitEnd::Aborted => self.abort().await,
            WaitEnd::Passed if !self.is_decided().await && !self.request.options.ephemeral => {
                if !self.control.close() {
                    return self.abort().await;
                }
                self.end(StopReason::ApprovalRequired, Vec::new());
                Ok(())
            }
            WaitEnd::Decided | WaitEnd::Passed => {
                if matches!(end, WaitEnd::Passed) {
                    // After the wait, a turn that is not stored cannot be decided.
                    self.unstored.expire();
                    let _in_memory = self.read_approvals().await;
                }
                if let Phase::Waiting(paused) = mem::replace(&mut self.phase, Phase::Over) {
                    self.resume_shown_batch(paused.batch.into_open());
                }
                Ok(())
            }
        }
    }

    /// Whether one of the calls that wait is decided. If the store fails, that is seen later.
    async fn is_decided(&mut self) -> bool {
        if let Err(error) = self.read_approvals().await {
            tracing::error!(%error, "the approvals of a session cannot be read; they are looked for again");
            return false;
        }
        let answers = self.waiting.iter();
        let mut answers = answers.filter_map(|call| self.turn.approvals.answer(&call.wait.id));
        answers.any(|answer| *answer != ApprovalAnswer::Waiting)
    }

    async fn decided(&mut self, until: Instant, aborted: &mut Aborted) -> WaitEnd {
        let gate = self.parts.tools.gate.clone();
        // Another process may have the decision, and the end of a question or of the round notifies no process: the
        // store is read at intervals.
        let pause = match self.parts.sessions.store.is_shared() {
            true => CHECK_PAUSE,
            false => OWN_CHECK_PAUSE,
        };
        loop {
            let notified = gate.decisions().notified();
            if self.is_decided().await {
                return WaitEnd::Decided;
            }
            if self.control.stops_after_round() {
                return WaitEnd::Aborted;
            }
            tokio::select! {
                biased;
                () = &mut *aborted => return WaitEnd::Aborted,
                () = sleep_until(until) => return WaitEnd::Passed,
                () = notified => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// The client has left and calls wait: finishes the running calls, then suspends the turn.
    pub(super) async fn run_out(&mut self) -> Result<(), AgentError> {
        let mut never = std::future::pending();
        loop {
            let Phase::Batch(batch) = &mut self.phase else {
                return Ok(());
            };
            match Box::pin(batch.step(&mut never)).await {
                BatchStep::Event(event) => self.ready.push_back(event),
                BatchStep::Starting { index, start } => {
                    Box::pin(self.start_call(index, start)).await;
                }
                BatchStep::Waiting(indexes) => Box::pin(self.ask(indexes)).await,
                BatchStep::Ended | BatchStep::Aborted => break,
            }
        }
        Box::pin(self.end_batch()).await
    }

    /// Whether the answer itself has the question about this call.
    fn hands_over(&self, call: &WaitingCall) -> bool {
        let server = call.of.on_server.as_ref().map(|remote| &remote.server);
        server.is_some_and(|server| self.request.asking_servers.contains(server))
    }

    /// Adds a sentence about the waiting calls to the answer at the end of the turn, and returns the calls.
    pub(super) fn report_waiting(&mut self) -> Vec<WaitingCall> {
        let waiting = mem::take(&mut self.waiting);
        // The others have items of their own in the answer.
        let reported = waiting.iter().filter(|call| !self.hands_over(call));
        if let Some(sentence) = sentence(&reported.collect::<Vec<_>>()) {
            self.add_text(&sentence);
        }
        waiting
    }
}

impl PausedBatch {
    pub(super) fn into_batch(self) -> Box<Batch> {
        self.batch
    }
}
