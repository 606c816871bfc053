//! The batch of a round: its calls are stored, run, and answered in the conversation.

use super::super::AgentError;
use super::super::batch::{Batch, BatchContext, BatchOutcome, BatchRun, BatchStage};
use super::super::call::Call;
use super::super::event::{AgentEvent, RoundCall};
use super::super::machine::AfterBatch;
use super::super::open_batch::OpenBatch;
use super::super::policy::CallDecision;
use super::super::stop::StopReason;
use super::super::transcript;
use super::{FollowUp, Phase, Run, named_contents};
use crate::session::{StoredMessage, TurnChange};
use protocol::openai::message::Message;
use protocol::openai::tool::ToolCall;
use tools::refusal::CallRefusal;
use upstream::assemble::ModelReply;

impl Run {
    /// Starts the batch of a reply.
    pub(super) async fn start_batch(
        &mut self,
        reply: &ModelReply,
        buffered: Vec<AgentEvent>,
        calls: Vec<Call>,
    ) {
        let buffered = self.end_round(&reply.text, buffered);
        self.report_round_end(Some(calls.iter().filter_map(in_round).collect()));
        for repair in calls.iter().flat_map(|call| &call.repairs) {
            self.parts.metrics.call_repaired(*repair);
        }
        let asked: Vec<ToolCall> = calls.iter().map(|call| call.call.clone()).collect();
        let message = transcript::assistant(reply, &asked);
        let mut open = OpenBatch { message, calls };
        self.write_calls(&mut open).await;
        if self.parts.tools.gate.may_wait(&self.turn.permissions)
            && let Err(error) = self.read_approvals().await
        {
            tracing::error!(%error, "the approvals of a session cannot be read; calls are asked about again");
        }
        self.run_batch(buffered, open, BatchStage::New);
    }

    /// Runs the unfinished calls of a batch.
    pub(super) fn run_batch(
        &mut self,
        buffered: Vec<AgentEvent>,
        open: OpenBatch,
        stage: BatchStage,
    ) {
        let run = BatchRun {
            id: self.control.run().clone(),
            session_id: self.session_id().cloned(),
            hook_record: self.hook_record.clone(),
        };
        let most = self.turn.limits.max_duration;
        let context = BatchContext::new(
            &self.parts.tools,
            &self.request,
            run,
            &self.turn_env,
            &self.turn,
        )
        .with_turn_bytes(std::mem::take(&mut self.turn.turn_bytes))
        .after(stage)
        .within(most.map(|most| most.saturating_sub(self.age())));
        let tools = &self.request.tools;
        self.phase = Phase::Batch(Box::new(Batch::start(context, buffered, open, tools)));
    }

    /// Stores the calls before they run, if one of them may have an effect: a crash does not undo it. A call that cannot
    /// be stored is not run.
    async fn write_calls(&mut self, open: &mut OpenBatch) {
        // The rounds before come first.
        self.finish_write().await;
        let Some(may_change) = self.note_calls(open) else {
            return;
        };
        let Some(conversation) = &mut self.conversation else {
            return;
        };
        conversation.keep();
        if !may_change {
            return;
        }
        let message = open.stored_message();
        let Err(failure) = conversation.store_calls(message, TurnChange::End).await else {
            return;
        };
        self.write_failed(failure);
        for call in open.calls.iter_mut().filter(|call| call.may_change()) {
            call.decision = CallDecision::Unwritten;
        }
    }

    /// Notes that the runnable calls of a batch start. Returns whether one of them may have an effect that a second
    /// call repeats; `None` if no call runs.
    pub(super) fn note_calls(&self, open: &OpenBatch) -> Option<bool> {
        let running = open.calls.iter().filter(|call| call.runs());
        let may_change = running
            .map(Call::may_change)
            .reduce(|one, other| one || other)?;
        self.control.note_calls(may_change);
        Some(may_change)
    }

    /// Ends the batch: adds its results to the messages, and continues the loop or ends the turn. A batch with calls
    /// that wait for a decision is suspended. If a hook ends the turn, no call waits.
    pub(super) async fn end_batch(&mut self) -> Result<(), AgentError> {
        let Phase::Batch(mut batch) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Ok(());
        };
        let ended_by_hook = self.hook_record.take_end();
        if ended_by_hook.is_some() {
            batch.cancel();
            self.ready.extend(batch.take_events());
        }
        if self.control.stops_after_round() {
            batch.refuse_waiting(&CallRefusal::cancelled());
            self.ready.extend(batch.take_events());
        }
        if batch.open().waits() {
            if self.suspend_batch(&mut batch).await {
                self.queue_events(batch.take_buffered());
                return self.wait_or_end(batch).await;
            }
            batch.refuse_waiting(&CallRefusal::undecided());
            self.ready.extend(batch.take_events());
        }
        let next = self.turn.machine.after_batch(&batch.outcomes());
        let BatchOutcome {
            results: finished,
            buffered,
            turn_bytes,
        } = batch.finish();
        self.turn.turn_bytes = turn_bytes;
        let round = finished.messages.iter().map(|one| one.message.clone());
        let mut round: Vec<Message> = round.collect();
        let images = match finished.has_stored_images {
            false => finished.images,
            true => named_contents(&self.parts, &self.request, &mut round).await,
        };
        self.prompt.push_round(round, images);
        if let Some(text) = ended_by_hook {
            self.push(finished.messages);
            self.push_follow().await;
            return self.end_by_hook(&text).await;
        }
        let next = match next {
            // The user has said something since.
            AfterBatch::Finish(_) if !self.follow.stored.is_empty() => AfterBatch::Continue,
            next => next,
        };
        match next {
            AfterBatch::Continue if self.control.stops_after_round() => {
                self.queue_events(buffered);
                self.finish(StopReason::Cancelled, finished.messages).await
            }
            AfterBatch::Continue => {
                self.last_buffered = buffered;
                self.push(finished.messages);
                self.push_follow().await;
                if let Some(conversation) = &mut self.conversation {
                    conversation.save(Vec::new());
                }
                self.phase = Phase::BeforeModelCall;
                Ok(())
            }
            AfterBatch::Finish(reason) => {
                self.queue_events(buffered);
                if reason == StopReason::TerminatedByTool && self.answer_text.round_is_empty() {
                    self.add_text(&finished.contents.join("\n\n"));
                }
                self.finish_with_calls(reason, finished.messages, finished.client_calls)
                    .await
            }
        }
    }

    /// Adds the messages of the request that follow the batch of a turn which went on.
    async fn push_follow(&mut self) {
        let FollowUp { stored, sent } = std::mem::take(&mut self.follow);
        if stored.is_empty() {
            return;
        }
        self.push(stored.into_iter().map(StoredMessage::visible).collect());
        let mut messages = sent;
        let contents = named_contents(&self.parts, &self.request, &mut messages).await;
        self.prompt.push_round(messages, contents);
    }
}

/// A call of a round as the client sees it; `None` if it does not.
fn in_round(call: &Call) -> Option<RoundCall> {
    let is_of_client = call.is_of_client();
    (is_of_client || call.shown()).then(|| RoundCall {
        id: call.call.id.clone(),
        name: call.call.name.clone(),
        kind: call.call.kind,
        is_of_client,
    })
}
