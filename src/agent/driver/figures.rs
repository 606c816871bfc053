//! The figures of a turn, for the metrics, its trace and the log: its tokens, and how it has ended.

use super::super::AgentError;
use super::super::batch::millis;
use super::super::stop::TurnEnd;
use super::super::traced::{TracedEnd, end_turn};
use super::Run;
use crate::metrics::ModelUse;
use protocol::ids::shown;
use protocol::openai::usage::Usage;
use upstream::assemble::ModelReply;

impl Drop for Run {
    fn drop(&mut self) {
        self.count_turn(TurnEnd::Cancelled);
    }
}

impl Run {
    /// Counts a turn that ends with an error.
    pub(super) fn count_failure(&mut self, error: &AgentError) {
        let end = match error {
            AgentError::Limit(reason) => TurnEnd::Stopped(*reason),
            _ => TurnEnd::Failed,
        };
        self.end_trace(end, Some(error));
        self.count_turn(end);
    }

    /// Ends the span of the turn.
    fn end_trace(&mut self, end: TurnEnd, error: Option<&AgentError>) {
        let Some(span) = self.trace.take() else {
            return;
        };
        let ended = TracedEnd {
            end,
            error: error.map(AgentError::class),
            session: self.traced_session(),
            finish: self.finish_reason,
            usage: self.usage.as_ref(),
            rounds: self.turn.machine.rounds(),
        };
        end_turn(span, ended);
    }

    /// Counts the turn, unless it is already counted.
    pub(super) fn count_turn(&mut self, end: TurnEnd) {
        if std::mem::replace(&mut self.counted, true) {
            return;
        }
        self.end_trace(end, None);
        let metrics = &self.parts.metrics;
        metrics.turn_ended(self.turn.machine.rounds(), end.as_str());
        // The last wait of a cancelled turn was not measured.
        if end != TurnEnd::Cancelled {
            metrics.turn_overhead(self.own_time());
        }
        self.log_turn(end);
    }

    /// Completes the figures of the turn, and writes its record to the log.
    fn log_turn(&self, end: TurnEnd) {
        let caller = &self.request.caller;
        caller.record.update(|figures| {
            figures.rounds = Some(self.turn.machine.rounds());
            figures.stop_reason = Some(end.as_str());
        });
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let figures = caller.record.figures();
        // A cancelled turn is dropped outside its span.
        let _entered = self.span.enter();
        tracing::info!(
            owner = caller.owner.name(),
            model = shown(&self.request.model),
            upstream = figures.upstream.as_deref(),
            input_tokens = figures.input_tokens,
            output_tokens = figures.output_tokens,
            rounds = self.turn.machine.rounds(),
            model_calls = self.turn.machine.model_calls(),
            ms = millis(self.started.elapsed()),
            own_ms = millis(self.own_time()),
            stop_reason = end.as_str(),
            "turn finished"
        );
    }

    /// Adds the token counts of a model call that an upstream has answered. Returns its tokens as limits count them.
    pub(super) fn count_answer(&mut self, reply: &ModelReply, upstream: &str) -> u64 {
        self.request.caller.record.answered_by(upstream);
        self.count(reply)
    }

    /// Adds the token counts of a model call. Returns its tokens as limits count them.
    pub(super) fn count(&mut self, reply: &ModelReply) -> u64 {
        if let Some(usage) = &reply.usage {
            let (prompt, completion) = (usage.prompt_tokens(), usage.completion_tokens());
            let caller = &self.request.caller;
            let of = ModelUse {
                model: &self.request.model,
                key: caller.owner.as_str(),
            };
            self.parts.metrics.tokens(of, prompt, completion);
            caller.record.update(|figures| {
                figures.input_tokens = Some(figures.input_tokens.unwrap_or(0) + prompt);
                figures.output_tokens = Some(figures.output_tokens.unwrap_or(0) + completion);
                figures.rounds = Some(self.turn.machine.rounds());
            });
            match &mut self.usage {
                Some(sum) => sum.add(usage),
                none => *none = Some(usage.clone()),
            }
        }
        let written = reply.usage.as_ref().map(Usage::completion_tokens);
        let written = written.unwrap_or_else(|| estimated_output(reply));
        self.turn.output_tokens = self.turn.output_tokens.saturating_add(written);
        self.usage_by_round.push(reply.usage.clone());
        let reported = reply.usage.as_ref().map(Usage::total_tokens);
        match reported.filter(|tokens| *tokens > 0) {
            Some(tokens) => tokens,
            None => self.estimated_tokens(reply),
        }
    }
}

/// The tokens of a reply whose upstream reports none: characters / 4.
fn estimated_output(reply: &ModelReply) -> u64 {
    let reasoning = reply.reasoning.as_ref().map_or(0, |(text, _)| text.len());
    let calls = reply.calls.iter().map(|call| call.call.arguments.len());
    let bytes = reply.text.len() + reasoning + calls.sum::<usize>();
    u64::try_from(bytes / 4).unwrap_or(u64::MAX)
}
