//! The decisions of the loop: before a model call, after a model's answer and after a batch.
//!
//! Pure: no await, no I/O, no clock. The rules and the order in which they apply are in [`super::policy`]. The machine
//! holds the state of the turn, and its decisions say what the driver does next. It is a value that can be stored, so
//! another process can resume it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::OnLimit;
use super::policy::{CallDecision, CallFacts, CallOutcome, TurnPolicies};
use super::stop::StopReason;
use protocol::openai::usage::FinishReason;

/// The state of one turn.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    policies: TurnPolicies,
    batches: u32,
    rounds: u32,
    model_calls: u32,
    /// The reason for which the model was called for the last time: a limit, or `Completed` where the request forbids every
    /// call.
    final_call: Option<StopReason>,
}

/// The decision before a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BeforeModelCall {
    /// The model is called with this offer of tools.
    Call(Offer),
    /// The turn ends here.
    Finish(StopReason),
    /// The request fails at this limit.
    Fail(StopReason),
}

/// How a model call offers tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// With the `tool_choice` of the request.
    AsRequested,
    /// With a `tool_choice` that does not force a call.
    Unforced,
    /// With the `tool_choice` of the request, which forbids every call.
    Forbidden,
    /// The model must answer without calls, because this limit is reached.
    Withheld(StopReason),
    /// As above, and without tools, because a call with tools returned no answer.
    Removed(StopReason),
}

impl Offer {
    /// Whether the model must answer without calls. Calls in such an answer are not run.
    pub(crate) fn is_final(self) -> bool {
        match self {
            Self::AsRequested | Self::Unforced => false,
            Self::Forbidden | Self::Withheld(_) | Self::Removed(_) => true,
        }
    }
}

/// The facts about a model's answer that the machine decides on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyFacts<'a> {
    /// Why the model stopped.
    pub(crate) finish: &'a FinishReason,
    /// The tokens of the call, in and out.
    pub(crate) tokens: u64,
    /// The calls that the model asks for.
    pub(crate) calls: &'a [CallFacts],
    /// It has text, or something in its place.
    pub(crate) has_answer: bool,
    /// The model was offered tools.
    pub(crate) with_tools: bool,
}

/// The decision after a model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AfterModelCall {
    /// The turn ends with this answer. Calls in it are neither run nor stored.
    Finish(StopReason),
    /// The final call returned no answer. It is repeated once, without tools; this reply is neither run nor stored.
    AskAgain,
    /// The turn ends; the calls are stored as not run.
    Abandon(StopReason),
    /// The request fails at this limit; the calls are stored as not run.
    Fail(StopReason),
    /// A batch begins, with a decision about each call.
    Batch(Vec<CallDecision>),
}

/// The decision after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterBatch {
    /// The loop continues with [`Machine::before_model_call`].
    Continue,
    /// The turn ends.
    Finish(StopReason),
}

impl Machine {
    /// The machine of a new turn.
    pub(crate) fn new(policies: TurnPolicies) -> Self {
        Self {
            policies,
            batches: 0,
            rounds: 0,
            model_calls: 0,
            final_call: None,
        }
    }

    /// The number of the next batch, from 0.
    pub(crate) fn round(&self) -> u32 {
        self.batches
    }

    /// Rounds in which server-side tools ran.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    pub(crate) fn model_calls(&self) -> u32 {
        self.model_calls
    }

    /// Whether the request forbids every call.
    pub(crate) fn forbids_calls(&self) -> bool {
        self.policies.forbids_calls()
    }

    /// Decides whether and how the model is called next. `elapsed` is the age of the turn.
    pub(crate) fn before_model_call(&mut self, elapsed: Duration) -> BeforeModelCall {
        if let Some(reason) = self.final_call {
            self.model_calls += 1;
            return BeforeModelCall::Call(Offer::Removed(reason));
        }
        if self.policies.forbids_calls() {
            self.final_call = Some(StopReason::Completed);
            self.model_calls += 1;
            self.policies.begin_model_call();
            return BeforeModelCall::Call(Offer::Forbidden);
        }
        let first = self.model_calls == 0;
        let ordinary = if first {
            Offer::AsRequested
        } else {
            Offer::Unforced
        };
        let model_limit = self.policies.forbids_model_call(elapsed);
        let tool_limit = self.policies.forbids_tool_calls();
        let offer = match (model_limit, tool_limit, self.policies.on_limit()) {
            (None, None, _) | (None, Some(_), OnLimit::Stop | OnLimit::Error) => ordinary,
            (Some(reason), _, OnLimit::FinalAnswer)
            | (None, Some(reason), OnLimit::FinalAnswer) => Offer::Withheld(reason),
            (Some(reason), _, OnLimit::Stop) => return BeforeModelCall::Finish(reason),
            (Some(reason), _, OnLimit::Error) => return BeforeModelCall::Fail(reason),
        };
        if let Offer::Withheld(reason) = offer {
            self.final_call = Some(reason);
        }
        self.model_calls += 1;
        self.policies.begin_model_call();
        BeforeModelCall::Call(offer)
    }

    /// The model is not called after all, and the turn ends.
    pub(crate) fn model_not_called(&mut self) {
        self.model_calls = self.model_calls.saturating_sub(1);
    }

    /// Decides what follows a model's answer.
    pub(crate) fn after_model_call(&mut self, reply: &ReplyFacts<'_>) -> AfterModelCall {
        self.policies.model_called(reply.tokens);
        if let Some(reason) = self.final_call {
            return after_final_call(reason, reply);
        }
        let calls = reply.calls;
        if *reply.finish == FinishReason::ContentFilter {
            return match calls {
                [] => AfterModelCall::Finish(StopReason::ContentFilter),
                [..] => AfterModelCall::Abandon(StopReason::ContentFilter),
            };
        }
        if calls.is_empty() {
            return AfterModelCall::Finish(if *reply.finish == FinishReason::Length {
                StopReason::Length
            } else {
                StopReason::Completed
            });
        }
        let wants_server = calls.iter().any(|call| *call != CallFacts::Client);
        if wants_server && let Some(reason) = self.policies.forbids_tool_calls() {
            return match self.policies.on_limit() {
                OnLimit::Error => AfterModelCall::Fail(reason),
                OnLimit::Stop | OnLimit::FinalAnswer => AfterModelCall::Abandon(reason),
            };
        }
        let decide = |call: &CallFacts| self.policies.decide(*call);
        AfterModelCall::Batch(calls.iter().map(decide).collect())
    }

    /// Decides what follows a batch, given the outcomes in the order of the calls.
    pub(crate) fn after_batch(&mut self, outcomes: &[CallOutcome]) -> AfterBatch {
        self.batches += 1;
        self.rounds += u32::from(outcomes.iter().any(|outcome| outcome.ran));
        self.policies.batch_ended(outcomes);
        let hands_over = |outcome: &CallOutcome| outcome.decision == CallDecision::HandOver;
        if outcomes.iter().any(hands_over) {
            return AfterBatch::Finish(StopReason::ClientTools);
        }
        match outcomes.iter().all(|one| one.ran && one.terminate) {
            true => AfterBatch::Finish(StopReason::TerminatedByTool),
            false => AfterBatch::Continue,
        }
    }
}

/// Decides what follows the last answer of the turn, whose calls are not run. Where no limit is reached, the model's own end
/// counts.
fn after_final_call(reason: StopReason, reply: &ReplyFacts<'_>) -> AfterModelCall {
    let reason = match (reason, reply.finish) {
        (StopReason::Completed, FinishReason::ContentFilter) => StopReason::ContentFilter,
        (StopReason::Completed, FinishReason::Length)
            if reply.has_answer || reply.calls.is_empty() =>
        {
            StopReason::Length
        }
        _ if reply.with_tools && !reply.has_answer => return AfterModelCall::AskAgain,
        _ => reason,
    };
    AfterModelCall::Finish(reason)
}

#[cfg(test)]
mod tests;
