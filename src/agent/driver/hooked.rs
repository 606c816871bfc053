//! The hooks of the loop: before a model call and before the end. The gate calls the hooks of tool calls.

use std::time::Instant;

use http::HeaderMap;

use super::super::AgentError;
use super::super::contents::NamedContents;
use super::super::event::{AgentEvent, Notice};
use super::super::hooked_prompt::HookedPrompt;
use super::super::stop::StopReason;
use super::super::transcript;
use super::{Phase, Run};
use crate::session::StoredMessage;
use net::polling::{LONG_BYTES, block_in_place_if};
use policy::hooks::{HookPoint, HookedTurn};
use protocol::openai::message::{Message, Role};
use upstream::assemble::ModelReply;

/// Most times that hooks send the model back in one turn. After them they are not asked any more, and its next answer is the
/// last.
/// Tried by `hooks::a_hook_that_always_blocks_sends_the_model_back_three_times`.
const MAX_SENT_BACK: u32 = 3;

impl Run {
    /// The facts about the turn that hooks get.
    fn hooked(&self) -> HookedTurn<'_> {
        HookedTurn {
            session_id: self.session_id(),
            owner: &self.request.caller.owner,
            request_id: &self.request.caller.request_id,
            run_id: self.control.run(),
            round: self.turn.machine.round(),
            model: &self.request.model,
            deadline: None,
            trace: &self.request.caller.trace,
            record: &self.hook_record,
        }
    }

    /// Asks the hooks about the messages of the next model call. Returns whether the call is made; else the turn is over.
    pub(super) async fn ask_before_model(&mut self) -> Result<bool, AgentError> {
        self.prompt.send_instead(None);
        if !self.parts.hooks.has(HookPoint::BeforeModel) {
            return Ok(true);
        }
        let transcript = self.prompt.transcript();
        let is_long = transcript.text().length() > LONG_BYTES as u64;
        let sent = block_in_place_if(is_long, || HookedPrompt::of(transcript));
        let mut sent = sent.ok_or(AgentError::Hook)?;
        let messages = std::mem::take(&mut sent.messages);
        let began = Instant::now();
        let aborted = self.control.aborted();
        let asking = self.parts.hooks.before_model(self.hooked(), messages);
        let answer = tokio::select! {
            biased;
            () = aborted => None,
            answer = Box::pin(asking) => Some(answer),
        };
        self.waited += began.elapsed();
        let Some(answer) = answer else {
            self.abort().await?;
            return Ok(false);
        };
        let changed = answer.map_err(|_| AgentError::Hook)?;
        if let Some(text) = self.hook_record.take_end() {
            self.turn.machine.model_not_called();
            self.end_by_hook(&text).await?;
            return Ok(false);
        }
        if let Some(messages) = changed {
            let quirks = &self.request.route.quirks;
            let instead = block_in_place_if(is_long, || sent.transcript(&messages, quirks));
            self.prompt.send_instead(Some(instead));
        }
        Ok(true)
    }

    /// Ends the turn with an answer, unless a hook sends the model back. `of_message` is for the client if it sees the
    /// message.
    pub(super) async fn finish_answered(
        &mut self,
        reason: StopReason,
        reply: &ModelReply,
        mut buffered: Vec<AgentEvent>,
        of_message: Vec<AgentEvent>,
    ) -> Result<(), AgentError> {
        if reason == StopReason::Completed
            && let Some(said) = self.ask_before_finish(&reply.text).await
        {
            self.send_back(reply, buffered, &said).await;
            return Ok(());
        }
        buffered.extend(of_message);
        self.queue_events(buffered);
        let end = vec![StoredMessage::visible(transcript::assistant(reply, &[]))];
        self.answer_text.end_round(&reply.text);
        self.finish(reason, end).await
    }

    /// Asks the hooks whether the turn may end with this answer. Returns the message for the model if it may not.
    async fn ask_before_finish(&mut self, answer: &str) -> Option<String> {
        let sent_back = self.turn.sent_back;
        let may_go_on = sent_back < MAX_SENT_BACK && !self.control.stops_after_round();
        if !may_go_on || !self.parts.hooks.has(HookPoint::BeforeFinish) {
            return None;
        }
        let began = Instant::now();
        let aborted = self.control.aborted();
        let hooks = &self.parts.hooks;
        let asking = hooks.before_finish(self.hooked(), answer, sent_back > 0);
        let said = tokio::select! {
            biased;
            // The answer is complete: an aborted turn ends with it.
            () = aborted => None,
            said = Box::pin(asking) => said,
        };
        self.waited += began.elapsed();
        said
    }

    /// Continues the loop after an answer that a hook refuses as the last one. Text that the client has already is not
    /// taken back.
    async fn send_back(&mut self, reply: &ModelReply, buffered: Vec<AgentEvent>, said: &str) {
        self.turn.sent_back += 1;
        self.last_buffered = self.end_round(&reply.text, buffered);
        self.report_round_end(Some(Vec::new()));
        let round = vec![
            transcript::assistant(reply, &[]),
            Message::text(Role::User, said),
        ];
        self.finish_write().await;
        self.push(round.iter().cloned().map(StoredMessage::hidden).collect());
        if let Some(conversation) = &mut self.conversation {
            conversation.save(Vec::new());
        }
        self.prompt.push_round(round, NamedContents::default());
        self.phase = Phase::BeforeModelCall;
    }

    /// Ends the turn with the text of a hook.
    pub(super) async fn end_by_hook(&mut self, text: &str) -> Result<(), AgentError> {
        if !self.started_queued {
            self.queue_start(HeaderMap::new());
        }
        let end = StoredMessage::visible(transcript::text_answer(text));
        self.answer_text.begin_round();
        self.add_text(text);
        self.finish(StopReason::TerminatedByTool, vec![end]).await
    }

    /// Reports the hooks that failed and were passed over, each in one notice.
    pub(super) fn note_failed_hooks(&mut self) {
        for message in self.hook_record.take_failures() {
            self.notify(Notice {
                kind: "hook".into(),
                message,
            });
        }
    }
}
