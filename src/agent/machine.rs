//! The decisions of the loop: before a model call, after a model's answer and after a batch.
//!
//! Pure: no await, no I/O, no clock. The rules and the order in which they apply are in [`super::policy`]. The machine
//! holds the state of the turn, and its decisions say what the driver does next.

use std::time::Duration;

use super::options::OnLimit;
use super::policy::{CallDecision, CallFacts, TurnPolicies};
use super::stop::StopReason;
use crate::openai::usage::{FinishReason, Usage};
use crate::tools::gate::Permission;

/// The state of one turn.
#[derive(Debug)]
pub struct Machine {
    policies: TurnPolicies,
    batches: u32,
    rounds: u32,
    model_calls: u32,
    final_call: Option<StopReason>,
}

/// The decision before a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeModelCall {
    /// The model is called with this offer of tools.
    Call(Offer),
    /// The turn ends here.
    Finish(StopReason),
    /// The request fails at this limit.
    Fail(StopReason),
}

/// How a model call offers tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// With the `tool_choice` of the request.
    AsRequested,
    /// With a `tool_choice` that does not force a call.
    Unforced,
    /// The model must answer without calls, because this limit is reached.
    Withheld(StopReason),
}

/// The decision after a model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterModelCall {
    /// The turn ends with this answer. Calls in it are neither run nor stored.
    Finish(StopReason),
    /// The turn ends; the calls are stored as not run.
    Abandon(StopReason),
    /// The request fails at this limit; the calls are stored as not run.
    Fail(StopReason),
    /// A batch begins, with a decision about each call.
    Batch(Vec<CallDecision>),
}

/// The decision after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterBatch {
    /// The loop goes on with [`Machine::before_model_call`].
    Continue,
    /// The turn ends.
    Finish(StopReason),
}

impl Machine {
    /// The machine of a new turn.
    pub fn new(policies: TurnPolicies) -> Self {
        Self {
            policies,
            batches: 0,
            rounds: 0,
            model_calls: 0,
            final_call: None,
        }
    }

    /// The number of the next batch, from 0.
    pub fn round(&self) -> u32 {
        self.batches
    }

    /// Rounds in which server-side tools ran.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The number of model calls.
    pub fn model_calls(&self) -> u32 {
        self.model_calls
    }

    /// What server-side tools may do in this turn.
    pub fn permission(&self) -> Permission {
        self.policies.permission()
    }

    /// Decides whether and how the model is called next. `elapsed` is the age of the turn.
    pub fn before_model_call(&mut self, elapsed: Duration) -> BeforeModelCall {
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

    /// Decides what follows a model's answer.
    pub fn after_model_call(
        &mut self,
        finish: &FinishReason,
        usage: Option<&Usage>,
        calls: &[CallFacts],
    ) -> AfterModelCall {
        self.policies.model_called(usage);
        if let Some(reason) = self.final_call {
            return AfterModelCall::Finish(reason);
        }
        if *finish == FinishReason::ContentFilter {
            return match calls {
                [] => AfterModelCall::Finish(StopReason::ContentFilter),
                [..] => AfterModelCall::Abandon(StopReason::ContentFilter),
            };
        }
        if calls.is_empty() {
            return AfterModelCall::Finish(if *finish == FinishReason::Length {
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

    /// Decides what follows a batch. `terminate` has one entry for each call that ran: whether its result asks for the end of
    /// the turn.
    pub fn after_batch(&mut self, decisions: &[CallDecision], terminate: &[bool]) -> AfterBatch {
        self.batches += 1;
        self.rounds += u32::from(!terminate.is_empty());
        let ended = self.policies.batch_ended(decisions, terminate.len());
        if decisions.contains(&CallDecision::HandOver) {
            return AfterBatch::Finish(StopReason::ClientTools);
        }
        if terminate.len() == decisions.len() && terminate.iter().all(|flag| *flag) {
            return AfterBatch::Finish(StopReason::TerminatedByTool);
        }
        ended.map_or(AfterBatch::Continue, AfterBatch::Finish)
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::TurnLimits;
    use super::super::policy::TurnRules;
    use super::super::policy::repeat::CallSignature;
    use super::*;

    fn machine(change: impl FnOnce(&mut TurnRules)) -> Machine {
        let mut rules = TurnRules {
            max_rounds: 256,
            limits: TurnLimits::default(),
            on_limit: OnLimit::FinalAnswer,
            permission: Permission::Auto,
            repeat_threshold: 3,
        };
        change(&mut rules);
        Machine::new(TurnPolicies::new(rules))
    }

    fn call(arguments: &str) -> CallFacts {
        CallFacts::Server(CallSignature::new("f", arguments))
    }

    /// One round: a model call that asks for the given calls, all of which run.
    fn round(machine: &mut Machine, calls: &[CallFacts]) -> Vec<CallDecision> {
        assert!(matches!(
            machine.before_model_call(Duration::ZERO),
            BeforeModelCall::Call(_)
        ));
        let AfterModelCall::Batch(decisions) =
            machine.after_model_call(&FinishReason::ToolCalls, None, calls)
        else {
            panic!("no batch")
        };
        let ran: Vec<bool> = decisions
            .iter()
            .filter(|decision| **decision == CallDecision::Run)
            .map(|_| false)
            .collect();
        machine.after_batch(&decisions, &ran);
        decisions
    }

    #[test]
    fn a_turn_without_any_calls_is_one_call_without_tools() {
        let without = |on_limit| {
            let mut machine = machine(|rules| {
                rules.limits.max_tool_calls = Some(0);
                rules.on_limit = on_limit;
            });
            machine.before_model_call(Duration::ZERO)
        };
        assert_eq!(
            without(OnLimit::FinalAnswer),
            BeforeModelCall::Call(Offer::Withheld(StopReason::MaxToolCalls))
        );
        assert_eq!(
            without(OnLimit::Stop),
            BeforeModelCall::Call(Offer::AsRequested)
        );
    }

    #[test]
    fn a_forced_tool_choice_binds_the_first_call_only() {
        let mut machine = machine(|_| {});
        assert_eq!(
            machine.before_model_call(Duration::ZERO),
            BeforeModelCall::Call(Offer::AsRequested)
        );
        machine.after_model_call(&FinishReason::ToolCalls, None, &[call("1")]);
        machine.after_batch(&[CallDecision::Run], &[false]);
        assert_eq!(
            machine.before_model_call(Duration::ZERO),
            BeforeModelCall::Call(Offer::Unforced)
        );
        assert_eq!(
            machine.after_model_call(&FinishReason::Stop, None, &[]),
            AfterModelCall::Finish(StopReason::Completed)
        );
        assert_eq!((machine.rounds(), machine.model_calls()), (1, 2));
    }

    #[test]
    fn each_mode_has_its_own_decision_at_the_limit_on_rounds() {
        let reason = StopReason::MaxToolRounds;
        let at_limit = |on_limit| {
            let mut machine = machine(|rules| (rules.max_rounds, rules.on_limit) = (2, on_limit));
            round(&mut machine, &[call("1")]);
            round(&mut machine, &[call("2")]);
            let before = machine.before_model_call(Duration::ZERO);
            (
                before,
                machine.after_model_call(&FinishReason::ToolCalls, None, &[call("3")]),
            )
        };
        let withheld = BeforeModelCall::Call(Offer::Withheld(reason));
        assert_eq!(
            at_limit(OnLimit::FinalAnswer),
            (withheld, AfterModelCall::Finish(reason))
        );
        assert_eq!(
            at_limit(OnLimit::Stop),
            (
                BeforeModelCall::Call(Offer::Unforced),
                AfterModelCall::Abandon(reason)
            )
        );
        assert_eq!(
            at_limit(OnLimit::Error),
            (
                BeforeModelCall::Call(Offer::Unforced),
                AfterModelCall::Fail(reason)
            )
        );
    }

    #[test]
    fn client_calls_go_to_the_client_even_at_a_limit() {
        let mut machine = machine(|rules| (rules.max_rounds, rules.on_limit) = (1, OnLimit::Stop));
        round(&mut machine, &[call("1")]);
        machine.before_model_call(Duration::ZERO);
        let after = machine.after_model_call(&FinishReason::ToolCalls, None, &[CallFacts::Client]);
        assert_eq!(after, AfterModelCall::Batch(vec![CallDecision::HandOver]));
        assert_eq!(
            machine.after_batch(&[CallDecision::HandOver], &[]),
            AfterBatch::Finish(StopReason::ClientTools)
        );
    }

    #[test]
    fn time_and_tokens_end_the_turn_before_the_next_call() {
        let reason = StopReason::MaxSeconds;
        for (on_limit, expected) in [
            (
                OnLimit::FinalAnswer,
                BeforeModelCall::Call(Offer::Withheld(reason)),
            ),
            (OnLimit::Stop, BeforeModelCall::Finish(reason)),
            (OnLimit::Error, BeforeModelCall::Fail(reason)),
        ] {
            let mut machine = machine(|rules| {
                rules.on_limit = on_limit;
                rules.limits.max_duration = Some(Duration::from_secs(1));
            });
            round(&mut machine, &[call("1")]);
            assert_eq!(machine.before_model_call(Duration::from_secs(1)), expected);
        }
        let mut machine = machine(|rules| {
            rules.on_limit = OnLimit::Stop;
            rules.limits.max_total_tokens = Some(10);
        });
        let usage = Usage::parse(r#"{"total_tokens":11}"#);
        machine.before_model_call(Duration::ZERO);
        let after =
            machine.after_model_call(&FinishReason::ToolCalls, usage.as_ref(), &[call("1")]);
        assert_eq!(after, AfterModelCall::Batch(vec![CallDecision::Run]));
        machine.after_batch(&[CallDecision::Run], &[false]);
        assert_eq!(
            machine.before_model_call(Duration::ZERO),
            BeforeModelCall::Finish(StopReason::MaxTotalTokens)
        );
    }

    #[test]
    fn a_batch_past_the_call_limit_runs_as_far_as_the_limit_goes() {
        let mut machine = machine(|rules| rules.limits.max_tool_calls = Some(2));
        let decisions = round(&mut machine, &[call("1"), call("2"), call("3")]);
        assert_eq!(
            decisions,
            [
                CallDecision::Run,
                CallDecision::Run,
                CallDecision::OverLimit
            ]
        );
        let withheld = Offer::Withheld(StopReason::MaxToolCalls);
        assert_eq!(
            machine.before_model_call(Duration::ZERO),
            BeforeModelCall::Call(withheld)
        );
    }

    #[test]
    fn the_second_batch_of_repeated_calls_ends_the_turn() {
        let mut machine = machine(|_| {});
        assert_eq!(round(&mut machine, &[call("1")]), [CallDecision::Run]);
        assert_eq!(round(&mut machine, &[call("1")]), [CallDecision::Run]);
        assert_eq!(
            round(&mut machine, &[call("1"), call("2")]),
            [CallDecision::Suppress, CallDecision::Run]
        );
        assert_eq!(round(&mut machine, &[call("1")]), [CallDecision::Suppress]);
        machine.before_model_call(Duration::ZERO);
        let after = machine.after_model_call(&FinishReason::ToolCalls, None, &[call("1")]);
        assert_eq!(after, AfterModelCall::Batch(vec![CallDecision::Suppress]));
        assert_eq!(
            machine.after_batch(&[CallDecision::Suppress], &[]),
            AfterBatch::Finish(StopReason::RepeatedCalls)
        );
        assert_eq!(machine.rounds(), 3);
    }

    #[test]
    fn the_turn_ends_with_the_tools_only_when_every_result_says_so() {
        let two = [CallDecision::Run, CallDecision::Run];
        assert_eq!(
            machine(|_| {}).after_batch(&two, &[true, false]),
            AfterBatch::Continue
        );
        let ended = AfterBatch::Finish(StopReason::TerminatedByTool);
        assert_eq!(machine(|_| {}).after_batch(&two, &[true, true]), ended);
        assert_eq!(
            machine(|_| {}).after_batch(&[CallDecision::Run, CallDecision::Explain], &[true]),
            AfterBatch::Continue
        );
    }

    #[test]
    fn an_answer_that_the_filter_stopped_runs_nothing() {
        let mut machine = machine(|_| {});
        machine.before_model_call(Duration::ZERO);
        let after = machine.after_model_call(&FinishReason::ContentFilter, None, &[call("1")]);
        assert_eq!(after, AfterModelCall::Abandon(StopReason::ContentFilter));
    }
}
