//! Every decision of the loop, and nothing else: no await, no I/O, no clock.
//!
//! The driver asks before a model call, reports the answer and what the calls are, reports the batch, and asks again.

use std::time::Duration;

use super::options::{Limits, OnLimit};
use super::repeat::{CallSignature, RepeatGuard};
use super::stop::StopReason;
use crate::openai::usage::{FinishReason, Usage};

/// What a run is allowed.
#[derive(Debug, Clone)]
pub struct Caps {
    /// Most rounds of server-side tools.
    pub max_rounds: u32,
    /// Other budgets.
    pub limits: Limits,
    /// What happens at a cap.
    pub on_limit: OnLimit,
    /// The how many-eth identical call is held back.
    pub repeat_threshold: u32,
}

/// The state of one turn.
#[derive(Debug)]
pub struct Machine {
    caps: Caps,
    repeats: RepeatGuard,
    batches: u32,
    rounds: u32,
    model_calls: u32,
    calls_run: u64,
    total_tokens: u64,
    all_repeated_before: bool,
    final_call: Option<StopReason>,
}

/// What comes before a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Call the model and offer the tools so.
    Call(Offer),
    /// The turn ends here.
    Finish(StopReason),
    /// The request fails at this limit.
    Fail(StopReason),
}

/// How tools are offered in a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// With the `tool_choice` that the request asks for.
    AsAsked,
    /// A forced `tool_choice` is over.
    Free,
    /// The model must answer in words; the limit that was reached.
    Withheld(StopReason),
}

/// What the driver found out about one call of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFacts {
    /// A server-side tool, whose arguments can be used.
    Server(CallSignature),
    /// A server-side tool, but the arguments cannot be used.
    Unusable(CallSignature),
    /// A server-side tool that is not permitted.
    Denied,
    /// The client's own tool.
    Client,
    /// Nobody's.
    Unknown(CallSignature),
}

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// It runs.
    Run,
    /// The client runs it.
    HandOver,
    /// The model is told what is wrong with it.
    Explain,
    /// The model is told that it is not permitted.
    Deny,
    /// The model is told that it repeats itself.
    Repeated,
    /// The model is told that the limit on calls is reached.
    OverLimit,
}

/// What follows a model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// The answer is the end; calls that it holds are not run and not kept.
    Finish(StopReason),
    /// The turn ends; the calls are stored as not run.
    Abandon(StopReason),
    /// The request fails at this limit; the calls are stored as not run.
    Fail(StopReason),
    /// The batch is dealt with like this, call by call.
    Batch(Vec<Plan>),
}

/// What follows a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask [`Machine::before_model_call`].
    Continue,
    /// The turn ends.
    Finish(StopReason),
}

impl Machine {
    /// The machine of a fresh turn.
    pub fn new(caps: Caps) -> Self {
        let repeats = RepeatGuard::new(caps.repeat_threshold);
        Self {
            caps,
            repeats,
            batches: 0,
            rounds: 0,
            model_calls: 0,
            calls_run: 0,
            total_tokens: 0,
            all_repeated_before: false,
            final_call: None,
        }
    }

    /// The number of the round that the next batch is, from 0.
    pub fn round(&self) -> u32 {
        self.batches
    }

    /// Rounds in which server-side tools ran.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Calls of the model.
    pub fn model_calls(&self) -> u32 {
        self.model_calls
    }

    /// Decides whether and how the model is called next.
    pub fn before_model_call(&mut self, elapsed: Duration) -> Before {
        let first = self.model_calls == 0;
        let budget = self.exhausted_budget(elapsed);
        let counted = self.exhausted_count();
        let offer = match (budget, counted, self.caps.on_limit) {
            _ if first && !self.no_calls_at_all() => Offer::AsAsked,
            (None, Some(_), OnLimit::Stop | OnLimit::Error) if first => Offer::AsAsked,
            (None, None, _) | (None, Some(_), OnLimit::Stop | OnLimit::Error) => Offer::Free,
            (Some(reason), _, OnLimit::FinalAnswer)
            | (None, Some(reason), OnLimit::FinalAnswer) => Offer::Withheld(reason),
            (Some(reason), _, OnLimit::Stop) => return Before::Finish(reason),
            (Some(reason), _, OnLimit::Error) => return Before::Fail(reason),
        };
        if let Offer::Withheld(reason) = offer {
            self.final_call = Some(reason);
        }
        self.model_calls += 1;
        Before::Call(offer)
    }

    /// Decides what follows the model's answer.
    pub fn after_model_call(
        &mut self,
        finish: &FinishReason,
        usage: Option<&Usage>,
        calls: &[CallFacts],
    ) -> After {
        let tokens = usage.map_or(0, Usage::total_tokens);
        self.total_tokens = self.total_tokens.saturating_add(tokens);
        if let Some(reason) = self.final_call {
            return After::Finish(reason);
        }
        if *finish == FinishReason::ContentFilter {
            return abandon_unless_empty(StopReason::ContentFilter, calls);
        }
        if calls.is_empty() {
            return After::Finish(if *finish == FinishReason::Length {
                StopReason::Length
            } else {
                StopReason::Completed
            });
        }
        let wants_server = calls.iter().any(|call| *call != CallFacts::Client);
        if wants_server && let Some(reason) = self.exhausted_count() {
            return match self.caps.on_limit {
                OnLimit::Error => After::Fail(reason),
                OnLimit::Stop | OnLimit::FinalAnswer => After::Abandon(reason),
            };
        }
        self.plan(calls)
    }

    /// Decides what follows a batch. `terminate` holds, for each call that ran, whether its result ends the turn.
    pub fn after_batch(&mut self, plans: &[Plan], terminate: &[bool]) -> Next {
        self.batches += 1;
        self.rounds += u32::from(!terminate.is_empty());
        if plans.contains(&Plan::HandOver) {
            return Next::Finish(StopReason::ClientTools);
        }
        if terminate.len() == plans.len() && terminate.iter().all(|flag| *flag) {
            return Next::Finish(StopReason::TerminatedByTool);
        }
        let all_repeated = plans.iter().all(|plan| *plan == Plan::Repeated);
        if all_repeated && self.all_repeated_before {
            return Next::Finish(StopReason::RepeatedCalls);
        }
        self.all_repeated_before |= all_repeated;
        Next::Continue
    }

    fn plan(&mut self, calls: &[CallFacts]) -> After {
        let mut plans: Vec<Plan> = Vec::with_capacity(calls.len());
        for call in calls {
            let plan = match *call {
                CallFacts::Client => Plan::HandOver,
                CallFacts::Denied => Plan::Deny,
                CallFacts::Unknown(signature) | CallFacts::Unusable(signature) => {
                    if self.repeats.admit(signature) {
                        Plan::Explain
                    } else {
                        Plan::Repeated
                    }
                }
                CallFacts::Server(_) if self.calls_left() == Some(0) => Plan::OverLimit,
                CallFacts::Server(signature) => {
                    if self.repeats.admit(signature) {
                        self.calls_run += 1;
                        Plan::Run
                    } else {
                        Plan::Repeated
                    }
                }
            };
            plans.push(plan);
        }
        After::Batch(plans)
    }

    /// Tools may be used, but not once: the first call of the model is the final one.
    fn no_calls_at_all(&self) -> bool {
        self.caps.limits.max_tool_calls == Some(0) && self.caps.max_rounds > 0
    }

    fn calls_left(&self) -> Option<u64> {
        self.caps
            .limits
            .max_tool_calls
            .map(|most| most.saturating_sub(self.calls_run))
    }

    /// A cap that lets the next call of the model be an ordinary one unless a final answer is asked for.
    fn exhausted_count(&self) -> Option<StopReason> {
        if self.batches >= self.caps.max_rounds {
            Some(StopReason::MaxToolRounds)
        } else if self.calls_left() == Some(0) {
            Some(StopReason::MaxToolCalls)
        } else {
            None
        }
    }

    /// A budget that forbids the next call of the model unless a final answer is asked for.
    fn exhausted_budget(&self, elapsed: Duration) -> Option<StopReason> {
        let limits = &self.caps.limits;
        if limits.max_duration.is_some_and(|most| elapsed >= most) {
            Some(StopReason::MaxSeconds)
        } else if limits
            .max_total_tokens
            .is_some_and(|most| self.total_tokens >= most)
        {
            Some(StopReason::MaxTotalTokens)
        } else {
            None
        }
    }
}

fn abandon_unless_empty(reason: StopReason, calls: &[CallFacts]) -> After {
    if calls.is_empty() {
        After::Finish(reason)
    } else {
        After::Abandon(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(change: impl FnOnce(&mut Caps)) -> Machine {
        let mut caps = Caps {
            max_rounds: 256,
            limits: Limits::default(),
            on_limit: OnLimit::FinalAnswer,
            repeat_threshold: 3,
        };
        change(&mut caps);
        Machine::new(caps)
    }

    fn call(arguments: &str) -> CallFacts {
        CallFacts::Server(CallSignature::new("f", arguments))
    }

    /// One round: a model call that asks for the given calls, all of which run.
    fn round(machine: &mut Machine, calls: &[CallFacts]) -> Vec<Plan> {
        assert!(matches!(
            machine.before_model_call(Duration::ZERO),
            Before::Call(_)
        ));
        let After::Batch(plans) = machine.after_model_call(&FinishReason::ToolCalls, None, calls)
        else {
            panic!("no batch")
        };
        let ran: Vec<bool> = plans
            .iter()
            .filter(|plan| **plan == Plan::Run)
            .map(|_| false)
            .collect();
        machine.after_batch(&plans, &ran);
        plans
    }

    #[test]
    fn a_turn_without_any_calls_is_one_call_without_tools() {
        let without = |on_limit| {
            let mut machine = machine(|caps| {
                caps.limits.max_tool_calls = Some(0);
                caps.on_limit = on_limit;
            });
            machine.before_model_call(Duration::ZERO)
        };
        assert_eq!(
            without(OnLimit::FinalAnswer),
            Before::Call(Offer::Withheld(StopReason::MaxToolCalls))
        );
        assert_eq!(without(OnLimit::Stop), Before::Call(Offer::AsAsked));
    }

    #[test]
    fn a_forced_tool_choice_binds_the_first_call_only() {
        let mut machine = machine(|_| {});
        assert_eq!(
            machine.before_model_call(Duration::ZERO),
            Before::Call(Offer::AsAsked)
        );
        machine.after_model_call(&FinishReason::ToolCalls, None, &[call("1")]);
        machine.after_batch(&[Plan::Run], &[false]);
        assert_eq!(
            machine.before_model_call(Duration::ZERO),
            Before::Call(Offer::Free)
        );
        assert_eq!(
            machine.after_model_call(&FinishReason::Stop, None, &[]),
            After::Finish(StopReason::Completed)
        );
        assert_eq!((machine.rounds(), machine.model_calls()), (1, 2));
    }

    #[test]
    fn at_the_round_cap_each_mode_does_what_the_contract_says() {
        let reason = StopReason::MaxToolRounds;
        let at_cap = |on_limit| {
            let mut machine = machine(|caps| (caps.max_rounds, caps.on_limit) = (2, on_limit));
            round(&mut machine, &[call("1")]);
            round(&mut machine, &[call("2")]);
            let before = machine.before_model_call(Duration::ZERO);
            (
                before,
                machine.after_model_call(&FinishReason::ToolCalls, None, &[call("3")]),
            )
        };
        let withheld = Before::Call(Offer::Withheld(reason));
        assert_eq!(
            at_cap(OnLimit::FinalAnswer),
            (withheld, After::Finish(reason))
        );
        assert_eq!(
            at_cap(OnLimit::Stop),
            (Before::Call(Offer::Free), After::Abandon(reason))
        );
        assert_eq!(
            at_cap(OnLimit::Error),
            (Before::Call(Offer::Free), After::Fail(reason))
        );
    }

    #[test]
    fn at_a_cap_the_clients_own_tools_still_go_to_the_client() {
        let mut machine = machine(|caps| (caps.max_rounds, caps.on_limit) = (1, OnLimit::Stop));
        round(&mut machine, &[call("1")]);
        machine.before_model_call(Duration::ZERO);
        let after = machine.after_model_call(&FinishReason::ToolCalls, None, &[CallFacts::Client]);
        assert_eq!(after, After::Batch(vec![Plan::HandOver]));
        assert_eq!(
            machine.after_batch(&[Plan::HandOver], &[]),
            Next::Finish(StopReason::ClientTools)
        );
    }

    #[test]
    fn time_and_tokens_end_the_turn_before_the_next_call() {
        let reason = StopReason::MaxSeconds;
        for (on_limit, expected) in [
            (OnLimit::FinalAnswer, Before::Call(Offer::Withheld(reason))),
            (OnLimit::Stop, Before::Finish(reason)),
            (OnLimit::Error, Before::Fail(reason)),
        ] {
            let mut machine = machine(|caps| {
                caps.on_limit = on_limit;
                caps.limits.max_duration = Some(Duration::from_secs(1));
            });
            round(&mut machine, &[call("1")]);
            assert_eq!(machine.before_model_call(Duration::from_secs(1)), expected);
        }
        let mut machine = machine(|caps| {
            caps.on_limit = OnLimit::Stop;
            caps.limits.max_total_tokens = Some(10);
        });
        let usage = Usage::parse(r#"{"total_tokens":11}"#);
        machine.before_model_call(Duration::ZERO);
        let after =
            machine.after_model_call(&FinishReason::ToolCalls, usage.as_ref(), &[call("1")]);
        assert_eq!(after, After::Batch(vec![Plan::Run]));
        machine.after_batch(&[Plan::Run], &[false]);
        assert_eq!(
            machine.before_model_call(Duration::ZERO),
            Before::Finish(StopReason::MaxTotalTokens)
        );
    }

    #[test]
    fn a_batch_past_the_call_limit_runs_as_far_as_the_limit_goes() {
        let mut machine = machine(|caps| caps.limits.max_tool_calls = Some(2));
        let plans = round(&mut machine, &[call("1"), call("2"), call("3")]);
        assert_eq!(plans, [Plan::Run, Plan::Run, Plan::OverLimit]);
        let withheld = Offer::Withheld(StopReason::MaxToolCalls);
        assert_eq!(
            machine.before_model_call(Duration::ZERO),
            Before::Call(withheld)
        );
    }

    #[test]
    fn a_model_that_only_repeats_itself_is_told_once_and_then_stopped() {
        let mut machine = machine(|_| {});
        assert_eq!(round(&mut machine, &[call("1")]), [Plan::Run]);
        assert_eq!(round(&mut machine, &[call("1")]), [Plan::Run]);
        assert_eq!(
            round(&mut machine, &[call("1"), call("2")]),
            [Plan::Repeated, Plan::Run]
        );
        assert_eq!(round(&mut machine, &[call("1")]), [Plan::Repeated]);
        machine.before_model_call(Duration::ZERO);
        let after = machine.after_model_call(&FinishReason::ToolCalls, None, &[call("1")]);
        assert_eq!(after, After::Batch(vec![Plan::Repeated]));
        assert_eq!(
            machine.after_batch(&[Plan::Repeated], &[]),
            Next::Finish(StopReason::RepeatedCalls)
        );
        assert_eq!(machine.rounds(), 3);
    }

    #[test]
    fn the_turn_ends_with_the_tools_only_when_every_result_says_so() {
        let two = [Plan::Run, Plan::Run];
        assert_eq!(
            machine(|_| {}).after_batch(&two, &[true, false]),
            Next::Continue
        );
        let ended = Next::Finish(StopReason::TerminatedByTool);
        assert_eq!(machine(|_| {}).after_batch(&two, &[true, true]), ended);
        assert_eq!(
            machine(|_| {}).after_batch(&[Plan::Run, Plan::Explain], &[true]),
            Next::Continue
        );
    }

    #[test]
    fn an_answer_that_the_filter_stopped_runs_nothing() {
        let mut machine = machine(|_| {});
        machine.before_model_call(Duration::ZERO);
        let after = machine.after_model_call(&FinishReason::ContentFilter, None, &[call("1")]);
        assert_eq!(after, After::Abandon(StopReason::ContentFilter));
    }
}
