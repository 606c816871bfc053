//! The end of a turn that is cancelled.

use super::super::AgentError;
use super::super::control::AbortReason;
use super::super::model_call::ActiveModelCall;
use super::super::stop::StopReason;
use super::super::transcript;
use super::{Phase, Run};
use crate::session::StoredMessage;

impl Run {
    /// Ends the turn now: ends the model call or the running tools, and stores finished work. The text so far stays in
    /// the answer if the owner asked for the end.
    pub(super) async fn abort(&mut self) -> Result<(), AgentError> {
        // Without a reason the turn was to end after its round.
        let reason = self
            .control
            .abort_reason()
            .unwrap_or(AbortReason::Requested);
        let has_reader = reason == AbortReason::Requested;
        let phase = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Waiting(_) if !has_reader && !self.request.options.ephemeral => {
                return self.end_suspended_run(reason);
            }
            Phase::Waiting(paused) => Phase::Batch(paused.into_batch()),
            phase => phase,
        };
        let end = match phase {
            Phase::BeforeModelCall => {
                let buffered = std::mem::take(&mut self.last_buffered);
                self.queue_events(buffered);
                match has_reader {
                    true => vec![StoredMessage::visible(transcript::text_answer(""))],
                    false => Vec::new(),
                }
            }
            Phase::ModelCall(call) => match has_reader {
                true => self.cut_reply(*call),
                false => Vec::new(),
            },
            Phase::Batch(mut batch) => {
                let is_stored = !self.request.options.ephemeral;
                if reason == AbortReason::NoReader && is_stored && batch.open().waits() {
                    self.phase = Phase::Batch(batch);
                    return Box::pin(self.run_out()).await;
                }
                if !has_reader && batch.outlives_process() && batch.open().may_start() {
                    batch.cancel_started();
                    self.ready.extend(batch.take_events());
                    if self.suspend_batch(&mut batch).await {
                        return self.end_suspended_run(reason);
                    }
                }
                batch.cancel();
                self.ready.extend(batch.take_events());
                // Counts the round; the next decision is not used.
                let _next = self.turn.machine.after_batch(&batch.outcomes());
                let finished = batch.finish();
                self.queue_events(finished.buffered);
                finished.results.messages
            }
            // A suspended turn stays suspended.
            Phase::Waiting(_) | Phase::Resume(..) | Phase::Failed(_) | Phase::Over => return Ok(()),
        };
        if has_reader {
            return self.finish(StopReason::Cancelled, end).await;
        }
        // The client has no response. The messages get no view, so that the repeated request continues after them.
        self.finish_write().await;
        self.push(end);
        match reason {
            AbortReason::Shutdown => {
                self.store(Vec::new(), Vec::new()).await;
                Err(AgentError::Stopping)
            }
            AbortReason::Requested | AbortReason::NoReader => {
                self.finish(StopReason::Cancelled, Vec::new()).await
            }
        }
    }

    /// The message of a reply that is cut. Its calls are dropped, because they may be incomplete.
    fn cut_reply(&mut self, call: ActiveModelCall) -> Vec<StoredMessage> {
        let (reply, buffered) = call.cut(&self.request);
        self.queue_events(buffered);
        let _tokens = self.count(&reply);
        self.answer_text.end_round(&reply.text);
        let message = transcript::assistant(&reply, &[]);
        vec![StoredMessage::visible(message)]
    }
}
