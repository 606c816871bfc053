//! The end of a run: the last events, the last messages, and the last write.

use http::HeaderMap;

use super::super::AgentError;
use super::super::call::Call;
use super::super::citations;
use super::super::conversation::WriteFailure;
use super::super::event::{AgentEvent, Notice, Outcome, RoundCall, RoundEnd};
use super::super::options::TextMode;
use super::super::stop::{StopReason, TurnEnd};
use super::super::transcript;
use super::{Phase, Run};
use crate::session::{StoredMessage, View};
use protocol::openai::message::Message;
use protocol::openai::tool::ToolCall;
use protocol::openai::usage::FinishReason;
use tools::refusal::CallRefusal;
use upstream::assemble::ModelReply;

impl Run {
    /// Queues the start of the answer, and the notices before the first model call.
    pub(super) fn queue_start(&mut self, headers: HeaderMap) {
        self.started_queued = true;
        self.ready.push_back(AgentEvent::Started { headers });
        let at_start = std::mem::take(&mut self.request.notices);
        at_start.into_iter().for_each(|notice| self.notify(notice));
    }

    /// Queues buffered events of a round whose text is complete.
    pub(super) fn queue_events(&mut self, buffered: Vec<AgentEvent>) {
        for event in buffered {
            match event {
                AgentEvent::Text(text) => self.answer_text.send(text, &mut self.ready),
                other => self.ready.push_back(other),
            }
        }
        self.answer_text.send_rest(&mut self.ready);
    }

    /// Ends a round that another model call follows. Its text is part of the answer, unless only the last round's text
    /// is. Returns the events that the client gets only if no call follows after all.
    pub(super) fn end_round(&mut self, text: &str, buffered: Vec<AgentEvent>) -> Vec<AgentEvent> {
        self.answer_text.end_round(text);
        match self.request.options.text {
            TextMode::All => {
                self.queue_events(buffered);
                Vec::new()
            }
            TextMode::Final => {
                let (reasoning, rest): (Vec<_>, Vec<_>) = buffered
                    .into_iter()
                    .partition(|event| matches!(event, AgentEvent::Reasoning { .. }));
                self.ready.extend(reasoning);
                rest
            }
        }
    }

    /// Reports that the text of a round is complete. `calls` are the calls that the client sees.
    pub(super) fn report_round_end(&mut self, calls: Option<Vec<RoundCall>>) {
        let sources = self.turn_env.sources();
        let citations = match sources.is_empty() {
            true => Vec::new(),
            false => self.answer_text.round_citations(sources),
        };
        let end = RoundEnd {
            has_calls: calls.is_some(),
            calls: calls.unwrap_or_default(),
            citations,
        };
        self.ready.push_back(AgentEvent::RoundEnded(end));
    }

    /// Adds a text to the answer that is not from the model.
    pub(super) fn add_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.answer_text.add(text, &mut self.ready);
            self.answer_text.send_rest(&mut self.ready);
        }
    }

    /// The messages to store for an answer whose calls are not run.
    pub(super) fn unrun_messages(
        &mut self,
        reply: &ModelReply,
        resolved: &[Call],
        refusal: &CallRefusal,
    ) -> Vec<StoredMessage> {
        self.answer_text.end_round(&reply.text);
        let calls: Vec<ToolCall> = resolved.iter().map(|call| call.call.clone()).collect();
        let mut stored = vec![StoredMessage::hidden(transcript::assistant(reply, &calls))];
        stored.extend(
            calls
                .iter()
                .map(|call| StoredMessage::hidden(Message::tool_result(&call.id, &refusal.text))),
        );
        stored
    }

    /// Ends the turn with these last messages.
    pub(super) async fn finish(
        &mut self,
        reason: StopReason,
        end: Vec<StoredMessage>,
    ) -> Result<(), AgentError> {
        self.finish_with_calls(reason, end, Vec::new()).await
    }

    /// Ends the turn with these last messages and calls for the client.
    pub(super) async fn finish_with_calls(
        &mut self,
        reason: StopReason,
        end: Vec<StoredMessage>,
        client_calls: Vec<ToolCall>,
    ) -> Result<(), AgentError> {
        let ids: Vec<String> = client_calls.iter().map(|call| call.id.clone()).collect();
        self.store(end, ids).await;
        self.end(reason, client_calls);
        Ok(())
    }

    /// Ends a turn whose messages are all stored.
    pub(super) fn end(&mut self, reason: StopReason, client_calls: Vec<ToolCall>) {
        if let Some(conversation) = &self.conversation {
            conversation.detach_answered();
        }
        let approvals = match reason {
            StopReason::ApprovalRequired => {
                self.is_suspended = true;
                if self.request.resumption.is_some() {
                    self.control.note_suspended();
                }
                self.report_waiting()
            }
            _ => Vec::new(),
        };
        self.report_round_end(None);
        self.note_missing_files(reason);
        self.note_failed_hooks();
        self.annotate();
        let finish_reason = finish_reason(reason, self.finish_reason);
        let outcome = Outcome {
            stop_reason: reason,
            finish_reason,
            client_calls,
            approvals,
            usage: self.usage.clone(),
            usage_by_round: std::mem::take(&mut self.usage_by_round),
            rounds: (self.turn.machine.rounds()).saturating_sub(self.reported_before.rounds),
            model_calls: (self.turn.machine.model_calls())
                .saturating_sub(self.reported_before.model_calls),
            session_id: self.session_id().cloned(),
            notices: self.notices.clone(),
            waited: self.waited,
        };
        self.count_turn(TurnEnd::Stopped(reason));
        self.ready
            .push_back(AgentEvent::Finished(Box::new(outcome)));
        self.phase = Phase::Over;
    }

    /// Stores the last messages of the turn and waits until they are written. A failure becomes a notice.
    pub(super) async fn store(&mut self, mut end: Vec<StoredMessage>, client_calls: Vec<String>) {
        if self.conversation.is_none() {
            return;
        }
        self.finish_write().await;
        let run = self.control.run().as_str().to_owned();
        let (run, completion) = match self.request.options.keep {
            true => (Some(run), None),
            false => (None, Some(run)),
        };
        let own = self.answer_text.joined();
        let before = &self.reported_before.text;
        let behind_wait = (!before.joined.is_empty()).then(|| own.to_owned());
        let view = View {
            text: before.clone().and(&self.answer_text.sent()).joined,
            final_text: self.answer_text.last_round().to_owned(),
            behind_wait,
            call_ids: client_calls.clone(),
            run,
            completion,
            removed: Vec::new(),
        };
        if let Some(last) = end.last_mut() {
            last.view = Some(view);
        }
        self.push(end);
        if let Some(conversation) = &mut self.conversation {
            conversation.save(client_calls);
        }
        self.finish_write().await;
    }

    /// Adds messages to the conversation.
    pub(super) fn push(&mut self, messages: Vec<StoredMessage>) {
        if let Some(conversation) = &mut self.conversation {
            conversation.push_round(messages);
        }
    }

    /// Waits until the started session write has ended. A failure becomes a notice.
    pub(super) async fn finish_write(&mut self) {
        let Some(conversation) = &mut self.conversation else {
            return;
        };
        if let Err(failure) = conversation.finish_write().await {
            self.write_failed(failure);
        }
    }

    /// Reports that a session write failed. The turn ends if another run may write to the session now.
    pub(super) fn write_failed(&mut self, failure: WriteFailure) {
        self.parts.metrics.session_store_failed();
        let (kind, message) = match failure {
            WriteFailure::Store => (
                "session_store",
                "the session could not be saved; this turn may be missing from the history",
            ),
            WriteFailure::LeaseLost => {
                self.lease_lost = true;
                return;
            }
            WriteFailure::TooLarge => (
                "session_too_large",
                "the session has reached its size limit, session_max_bytes; this turn is missing from the history",
            ),
        };
        self.notify(Notice {
            kind: kind.into(),
            message: message.to_owned(),
        });
    }

    /// Reports the sources that the answer's text refers to.
    fn annotate(&mut self) {
        let sources = self.turn_env.sources();
        if sources.is_empty() {
            return;
        }
        let found = self.answer_text.linked_citations().unwrap_or_else(|| {
            let text = match self.request.options.text {
                TextMode::All => self.answer_text.joined(),
                TextMode::Final => self.answer_text.last_round(),
            };
            citations::find(text, |number| sources.find(number))
        });
        if !found.is_empty() {
            self.ready.push_back(AgentEvent::Annotations(found));
        }
    }

    /// Reports the requested files that were not made, in one notice.
    fn note_missing_files(&mut self, reason: StopReason) {
        let wanted = self.request.wanted.iter();
        let missing: Vec<String> = wanted
            .filter(|path| !self.turn.produced.contains(*path))
            .map(|path| format!("'{path}'"))
            .collect();
        // The turn continues, and the files can still be made.
        let goes_on = matches!(
            reason,
            StopReason::ClientTools | StopReason::ApprovalRequired | StopReason::Cancelled
        );
        if !missing.is_empty() && !goes_on {
            let message = format!(
                "the turn ended without these files of 'files': {}",
                missing.join(", ")
            );
            self.notify(Notice {
                kind: "file_not_produced".into(),
                message,
            });
        }
    }

    /// Adds a notice. Except for retries, equal notices are added once.
    pub(super) fn notify(&mut self, notice: Notice) {
        let known = |known: &Notice| known.kind == notice.kind && known.message == notice.message;
        if notice.kind == "retry" || !self.notices.iter().any(known) {
            self.notices.push(notice.clone());
            self.ready.push_back(AgentEvent::Notice(notice));
        }
    }
}

/// The `finish_reason` for the client: the model's own if the model ended the turn, else one that follows from the
/// reason.
fn finish_reason(reason: StopReason, last: FinishReason) -> FinishReason {
    match (reason, last) {
        (StopReason::ClientTools, _) => FinishReason::ToolCalls,
        (StopReason::Cancelled | StopReason::ApprovalRequired, _) => FinishReason::Stop,
        (StopReason::Length, _) => FinishReason::Length,
        (StopReason::ContentFilter, _) => FinishReason::ContentFilter,
        (_, FinishReason::Length) if reason != StopReason::TerminatedByTool => FinishReason::Length,
        // A completed turn can end with `tool_calls` only if calls were forbidden; the client gets `stop`.
        (StopReason::Completed, last) if last != FinishReason::ToolCalls => last,
        _ => FinishReason::Stop,
    }
}
