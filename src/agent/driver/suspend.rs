//! Suspends a turn with its session while it waits, and resumes a suspended turn.

use std::mem;
use std::time::Duration;

use http::HeaderMap;

use super::super::AgentError;
use super::super::batch::BatchStage;
use super::super::call::{Call, Resolver};
use super::super::control::AbortReason;
use super::super::conversation::Conversation;
use super::super::open_batch::OpenBatch;
use super::super::options::TextMode;
use super::super::said::{Figures, Said, replayed};
use super::super::stop::StopReason;
use super::super::suspended_turn::{ShownPart, SuspendedTurn};
use super::super::transcript::AnswerText;
use super::{Phase, Run};
use crate::session::ApprovalQuestion;
use net::polling::{LONG_BYTES, block_in_place_if};
use policy::hooks::HookRecord;
use tools::batch::StartPermission;
use tools::tool_search::TOOL_SEARCH;

impl Run {
    /// Resumes a suspended turn. Its permissions are limited by the permissions of the resuming request. The answer is
    /// the answer of the whole turn, unless the client has the earlier part. A run that resumes itself continues the
    /// answer that it began.
    pub(super) async fn resume(&mut self, suspended: SuspendedTurn) {
        let own = self.request.resumption.take();
        let is_same_run = suspended.run.as_deref() == Some(self.control.run().as_str());
        self.request.resumption = own.or(suspended.resumption);
        let now = mem::replace(&mut self.turn, suspended.state).permissions;
        self.turn.permissions = mem::take(&mut self.turn.permissions).under(&now);
        let mut said = suspended.said;
        let mut events = Vec::new();
        match suspended.shown {
            ShownPart::NewMessage => {
                let Figures {
                    rounds,
                    model_calls,
                    ..
                } = said.figures();
                self.reported_before = Figures {
                    rounds,
                    model_calls,
                    ..Figures::default()
                };
                said = Said::default();
            }
            ShownPart::Earlier => {
                self.reported_before = said.figures();
                said.from = said.events.len();
            }
            ShownPart::Nothing => {
                if !is_same_run {
                    said.own = said.figures();
                    (said.from, said.before) = (0, Figures::default());
                }
                let reported = said.events.split_off(said.from.min(said.events.len()));
                self.reported_before = mem::take(&mut said.before);
                self.hook_record = HookRecord::with(mem::take(&mut said.failed_hooks));
                let own = mem::take(&mut said.own);
                self.usage = own.usage;
                self.usage_by_round = own.usage_by_round;
                self.notices = own.notices;
                if !reported.is_empty() {
                    self.answer_text = AnswerText::new(said.citations, self.turn_env.sources());
                    self.request.options.citations = Some(said.citations);
                    self.request.options.text = match said.last_text_only {
                        true => TextMode::Final,
                        false => TextMode::All,
                    };
                }
                self.answer_text.continues(own.text);
                // The events are recorded again while they are sent to the client.
                let (files, owner) = (&self.parts.sessions.files, &self.request.caller.owner);
                events = replayed(reported, suspended.results, files, owner).await;
            }
        }
        said.joins = self.reported_before.text.was_sent;
        self.said = Some(Box::new(said));
        self.phase = Phase::Resume(Box::new(suspended.batch), events);
    }

    /// The answer of the whole turn so far, with the events that are queued.
    fn said_so_far(&self) -> Said {
        let mut said = self.said.as_deref().cloned().unwrap_or_default();
        self.ready.iter().for_each(|event| said.add(event));
        let own = Figures {
            usage: self.usage.clone(),
            usage_by_round: self.usage_by_round.clone(),
            notices: self.notices.clone(),
            text: self.answer_text.sent(),
            rounds: self.turn.machine.rounds(),
            model_calls: self.turn.machine.model_calls(),
        };
        said.before = self.reported_before.clone();
        said.own = own;
        said.citations = self.request.options.citations.unwrap_or_default();
        said.failed_hooks = self.hook_record.failures();
        said.last_text_only = self.request.options.text == TextMode::Final;
        said
    }

    /// Resumes the batch of a suspended turn.
    pub(super) fn resume_batch(&mut self) {
        let Phase::Resume(mut batch, events) = mem::replace(&mut self.phase, Phase::Over) else {
            return;
        };
        let stage = match events.is_empty() {
            true => BatchStage::Suspended,
            false => BatchStage::Begun,
        };
        self.queue_start(HeaderMap::new());
        self.ready.extend(events);
        self.prepare(&mut batch);
        self.run_batch(Vec::new(), *batch, stage);
    }

    /// Resumes a batch whose calls and questions the reader has seen.
    pub(super) fn resume_shown_batch(&mut self, mut batch: OpenBatch) {
        self.prepare(&mut batch);
        self.run_batch(Vec::new(), batch, BatchStage::Shown);
    }

    /// Resolves the tools of a batch again.
    fn prepare(&self, batch: &mut OpenBatch) {
        let tools = &self.request.tools;
        let resolver = Resolver {
            tools,
            gate: &self.parts.tools.gate,
            cut_off: false,
        };
        let is_search = |call: &&Call| call.call.name == TOOL_SEARCH;
        for search in batch.calls.iter().filter(is_search) {
            if let Some(answer) = search.answer() {
                tools.restore_found(&answer.content);
            }
        }
        // Time has passed: a tool may have changed.
        block_in_place_if(batch.message.json().len() > LONG_BYTES, || {
            let calls = batch.calls.iter_mut();
            let starting = calls.filter(|call| call.runs() && !call.state.has_started());
            starting.for_each(|call| resolver.resolve_again(call));
        });
        self.note_calls(batch);
    }

    /// The time that the turn has run, here and in other processes.
    pub(super) fn age(&self) -> Duration {
        (self.turn.age + self.started.elapsed()).saturating_sub(self.paused)
    }

    /// Before a call of a stored batch starts, stores that it starts, so that it is not run again after a crash. If
    /// storing fails, the call is not run.
    pub(super) async fn start_call(&mut self, index: usize, start: StartPermission) {
        let Phase::Batch(mut batch) = mem::replace(&mut self.phase, Phase::Over) else {
            return;
        };
        batch.set_started(index, true);
        // Until a call waits, a crash ends the batch.
        match !batch.was_suspended() || self.suspend_batch(&mut batch).await {
            true => start.allow(),
            false => batch.set_started(index, false),
        }
        self.phase = Phase::Batch(batch);
    }

    /// Ends the run of a suspended turn.
    pub(super) fn end_suspended_run(&mut self, reason: AbortReason) -> Result<(), AgentError> {
        match reason {
            AbortReason::Shutdown => Err(AgentError::Stopping),
            AbortReason::Requested | AbortReason::NoReader => {
                self.end(StopReason::ApprovalRequired, Vec::new());
                Ok(())
            }
        }
    }

    /// Suspends the turn in the middle of this batch. Returns whether it can be resumed.
    pub(super) async fn suspend_turn(
        &mut self,
        batch: &OpenBatch,
        questions: Vec<ApprovalQuestion>,
    ) -> bool {
        if self.request.options.ephemeral {
            return self.ask_unstored(questions);
        }
        self.finish_write().await;
        let age = self.age();
        let said = self.said_so_far();
        let is_stored = |conversation: &&mut Conversation| conversation.session_id().is_some();
        let Some(conversation) = self.conversation.as_mut().filter(is_stored) else {
            return false;
        };
        let before = mem::replace(&mut self.turn.age, age);
        let long = batch.result_bytes() + said.bytes() > LONG_BYTES;
        let request = &self.request;
        let resumption = (request.draft.as_deref(), request.resumption.as_ref());
        let turn = block_in_place_if(long, || {
            SuspendedTurn::write(&self.turn, batch, &said, resumption)
        });
        self.turn.age = before;
        let turn = match turn {
            Ok(turn) => turn,
            Err(error) => {
                tracing::error!(%error, "a turn cannot be kept");
                return false;
            }
        };
        let message = batch.stored_message();
        let kept = conversation.suspend_turn(message, turn, questions).await;
        kept.map_err(|failure| self.write_failed(failure)).is_ok()
    }
}
