//! The end of a turn at a limit, or of one whose request forbids every call. The client gets a sentence if the answer would
//! have no text, and a notice of a limit.

use super::super::AgentError;
use super::super::event::{AgentEvent, Notice};
use super::super::options::TextMode;
use super::super::stop::StopReason;
use super::super::token_estimate::estimate_tokens;
use super::super::transcript;
use super::{Phase, Run};
use crate::session::StoredMessage;
use upstream::assemble::ModelReply;

impl Run {
    /// Adds a notice if the reason is a limit.
    pub(super) fn limit_notice(&mut self, reason: StopReason) {
        if reason.limit().is_some() {
            let message = format!("the limit {} is reached", reason.as_str());
            self.notify(Notice {
                kind: "limit_reached".into(),
                message,
            });
        }
    }

    /// Fails the turn at a limit; the notice comes first.
    pub(super) fn fail_at_limit(&mut self, reason: StopReason) {
        self.limit_notice(reason);
        self.phase = Phase::Failed(reason);
    }

    /// Ends the turn at a limit with the text so far.
    pub(super) async fn stop_at_limit(&mut self, reason: StopReason) -> Result<(), AgentError> {
        let buffered = std::mem::take(&mut self.last_buffered);
        self.queue_events(buffered);
        self.limit_notice(reason);
        let explained = self.explain_limit(reason);
        let end = explained.unwrap_or_else(|| StoredMessage::visible(transcript::text_answer("")));
        self.finish(reason, vec![end]).await
    }

    /// Ends the turn whose final call returned no answer.
    pub(super) async fn finish_unanswered(
        &mut self,
        reason: StopReason,
        mut reply: ModelReply,
        buffered: Vec<AgentEvent>,
    ) -> Result<(), AgentError> {
        let _dropped = self.end_round(&reply.text, buffered);
        reply.text = self.add_sentence(reason);
        let message = transcript::assistant(&reply, &[]);
        self.finish(reason, vec![StoredMessage::visible(message)])
            .await
    }

    /// If the answer has no text, adds a sentence that says which limit was reached. Returns the message to store.
    pub(super) fn explain_limit(&mut self, reason: StopReason) -> Option<StoredMessage> {
        let text = match self.request.options.text {
            TextMode::All => self.answer_text.joined(),
            TextMode::Final => self.answer_text.last_round(),
        };
        if reason.limit().is_none() || !text.trim().is_empty() {
            return None;
        }
        let sentence = self.add_sentence(reason);
        Some(StoredMessage::visible(transcript::text_answer(&sentence)))
    }

    /// The tokens of a model call whose upstream reports none, if a limit needs them.
    pub(super) fn estimated_tokens(&mut self, reply: &ModelReply) -> u64 {
        if self.turn.limits.max_total_tokens.is_none() {
            return 0;
        }
        self.notify(Notice {
            kind: "tokens_estimated".into(),
            message: "the model server reports no token counts; max_total_tokens is held with an estimate (characters / 4)"
                .to_owned(),
        });
        let tools = self.request.tools.tools_json();
        estimate_tokens(self.prompt.transcript(), tools.as_deref(), reply)
    }

    /// Why the turn has no answer, if it ends for this reason; `None` if the reason itself is not the cause.
    pub(super) fn unanswered_sentence(&self, reason: StopReason) -> Option<String> {
        let cause = match (reason.limit(), reason) {
            (Some(limit), _) => format!("it reached {limit}"),
            (None, StopReason::Completed) if self.turn.machine.forbids_calls() => {
                "'tool_choice' forbids calls of tools, and the model wrote no text".to_owned()
            }
            (None, _) => return None,
        };
        Some(format!("The turn ended without a final answer: {cause}."))
    }

    fn add_sentence(&mut self, reason: StopReason) -> String {
        let sentence = self.unanswered_sentence(reason).unwrap_or_default();
        self.answer_text.begin_round();
        self.add_text(&sentence);
        sentence
    }
}
