//! The policies of a turn: the rules that the machine asks before it decides.
//!
//! A policy is a small type without I/O and without a clock. Each turn has its own [`TurnPolicies`].
//!
//! The machine asks them in this order:
//!
//! | when | policy | answer |
//! |---|---|---|
//! | before a model call | the request's choice of tools | it forbids every call: the model is asked for an answer |
//! | | [`budget`]: time, then tokens | the limit that forbids the call |
//! | | [`repeat`] | the turn ends, as at such a limit |
//! | | [`budget`]: rounds, then tool calls | the limit that forbids further tool calls |
//! | after a model call | [`budget`] | none; counts its tokens |
//! | for each call of an answer | [`budget`]: tool calls | the call is over the limit |
//! | | [`repeat`] | the call is suppressed |
//! | after a batch | [`budget`] | none; counts the round, and takes back the calls that did not run |
//! | | [`repeat`] | none; remembers the calls and their results |
//!
//! Except for the choice, these policies do not apply to client tools. A tool that the choice leaves out counts as one
//! that does not exist ([`CallFacts::Unknown`]), for server-side and client tools alike. A check of a single call that
//! has to be awaited (an approval, a hook) is part of [`tools::gate`], which every call passes before it runs.

pub(crate) mod budget;
pub(crate) mod repeat;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::budget::Budget;
use self::repeat::{AnsweredCall, CallSignature, RepeatGuard};
use super::limits::{OnLimit, TurnLimits};
use super::options::Options;
use super::stop::StopReason;

/// The rules of one turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnRules {
    /// Most rounds of server-side tools.
    pub(crate) max_rounds: u32,
    /// Limits on calls, time and tokens.
    pub(crate) limits: TurnLimits,
    /// What happens when a limit is reached.
    pub(crate) on_limit: OnLimit,
    /// The request's choice of tools forbids every call.
    pub(crate) forbids_calls: bool,
    /// Which identical call is suppressed; 0 for none.
    pub(crate) repeat_threshold: u32,
}

/// The policies of one turn, with their state.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TurnPolicies {
    on_limit: OnLimit,
    forbids_calls: bool,
    budget: Budget,
    repeats: RepeatGuard,
}

/// The facts about one call that the policies decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallFacts {
    /// A call of a server-side tool with usable arguments.
    Server {
        call: CallSignature,
        /// Its tool is exempt from the repeat guard.
        repeatable: bool,
    },
    /// A call of a server-side tool whose arguments cannot be used.
    Unusable(CallSignature),
    /// A call of a server-side tool that the rules deny whatever its arguments.
    Denied(CallSignature),
    /// A call of a client tool.
    Client,
    /// A call of a tool that does not exist, or that the request's choice of tools leaves out.
    Unknown(CallSignature),
}

/// What is done with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallDecision {
    /// It goes to the gate and runs if the gate admits it.
    Run,
    /// It is handed to the client.
    HandOver,
    /// It is answered with a description of its problem.
    Explain,
    /// It is answered as not permitted.
    Deny,
    /// It is answered as a repeated call.
    Suppress,
    /// It is answered as over the limit on tool calls.
    OverLimit,
    /// It is answered as not run, because it could not be stored before.
    Unwritten,
}

/// What became of one call of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallOutcome {
    /// What was decided about it.
    pub(crate) decision: CallDecision,
    /// It ran. A call that the gate refused did not.
    pub(crate) ran: bool,
    /// Its result asks for the end of the turn.
    pub(crate) terminate: bool,
    /// The call and its result, if the repeat guard is to remember them.
    pub(crate) answered: Option<AnsweredCall>,
}

impl CallFacts {
    /// The call, unless it is the client's.
    pub(crate) fn signature(self) -> Option<CallSignature> {
        match self {
            Self::Server { call, .. }
            | Self::Unusable(call)
            | Self::Denied(call)
            | Self::Unknown(call) => Some(call),
            Self::Client => None,
        }
    }
}

impl TurnRules {
    /// The rules of a turn with these options.
    pub(crate) fn of(options: &Options, forbids_calls: bool) -> Self {
        Self {
            max_rounds: options.max_tool_rounds,
            limits: options.limits,
            on_limit: options.on_limit,
            forbids_calls,
            repeat_threshold: options.repeat_threshold.unwrap_or_default(),
        }
    }
}

impl TurnPolicies {
    /// Policies in their initial state.
    pub(crate) fn new(rules: TurnRules) -> Self {
        Self {
            on_limit: rules.on_limit,
            forbids_calls: rules.forbids_calls,
            budget: Budget::new(rules.max_rounds, rules.limits),
            repeats: RepeatGuard::new(rules.repeat_threshold),
        }
    }

    /// What happens at a limit.
    pub(crate) fn on_limit(&self) -> OnLimit {
        self.on_limit
    }

    /// Whether the request's choice of tools forbids every call.
    pub(crate) fn forbids_calls(&self) -> bool {
        self.forbids_calls
    }

    /// The limit that forbids another model call. `elapsed` is the age of the turn.
    pub(crate) fn forbids_model_call(&self, elapsed: Duration) -> Option<StopReason> {
        let repeated = || {
            self.repeats
                .ends_turn()
                .then_some(StopReason::RepeatedCalls)
        };
        self.budget.forbids_model_call(elapsed).or_else(repeated)
    }

    /// The limit that forbids further calls of server-side tools.
    pub(crate) fn forbids_tool_calls(&self) -> Option<StopReason> {
        self.budget.forbids_tool_calls()
    }

    /// Records that a model call begins.
    pub(crate) fn begin_model_call(&mut self) {
        self.budget.begin_model_call();
    }

    /// Records a finished model call and its tokens.
    pub(crate) fn model_called(&mut self, tokens: u64) {
        self.budget.spend_tokens(tokens);
    }

    /// Decides what is done with a call.
    pub(crate) fn decide(&mut self, call: CallFacts) -> CallDecision {
        match call {
            CallFacts::Client => CallDecision::HandOver,
            CallFacts::Denied(_) => CallDecision::Deny,
            CallFacts::Server { .. } if !self.budget.has_tool_call_left() => {
                CallDecision::OverLimit
            }
            CallFacts::Server { call, repeatable } if repeatable || self.repeats.admits(call) => {
                self.budget.spend_tool_call();
                CallDecision::Run
            }
            CallFacts::Unusable(call) | CallFacts::Unknown(call) if self.repeats.admits(call) => {
                CallDecision::Explain
            }
            CallFacts::Server { .. } | CallFacts::Unusable(_) | CallFacts::Unknown(_) => {
                CallDecision::Suppress
            }
        }
    }

    /// Records a batch, with the outcomes in the order of the calls.
    pub(crate) fn batch_ended(&mut self, outcomes: &[CallOutcome]) {
        let admitted = |outcome: &&CallOutcome| outcome.decision == CallDecision::Run;
        let stopped = outcomes.iter().filter(admitted).filter(|one| !one.ran);
        self.budget.spend_round();
        self.budget.return_tool_calls(stopped.count());
        for answered in outcomes.iter().filter_map(|outcome| outcome.answered) {
            self.repeats.answered(answered);
        }
        let suppressed = |outcome: &CallOutcome| outcome.decision == CallDecision::Suppress;
        self.repeats.batch_ended(outcomes.iter().all(suppressed));
    }
}

#[cfg(test)]
mod tests {
    use super::repeat::ResultDigest;
    use super::*;
    use tools::ToolOutput;

    fn policies(change: impl FnOnce(&mut TurnRules)) -> TurnPolicies {
        let mut rules = TurnRules {
            max_rounds: 8,
            limits: TurnLimits::default(),
            on_limit: OnLimit::FinalAnswer,
            forbids_calls: false,
            repeat_threshold: 2,
        };
        change(&mut rules);
        TurnPolicies::new(rules)
    }

    fn server(arguments: &str) -> CallFacts {
        CallFacts::Server {
            call: CallSignature::new("f", arguments),
            repeatable: false,
        }
    }

    /// The end of a batch of one call that was decided so.
    fn end_batch(policies: &mut TurnPolicies, call: CallFacts, decision: CallDecision, ran: bool) {
        let answered = |call| AnsweredCall {
            call,
            result: ResultDigest::of(&ToolOutput::default()),
            may_change: false,
        };
        let counts = ran || decision == CallDecision::Explain;
        policies.batch_ended(&[CallOutcome {
            decision,
            ran,
            terminate: false,
            answered: call.signature().map(answered).filter(|_| counts),
        }]);
    }

    #[test]
    fn a_denial_comes_before_the_limit_and_the_limit_before_the_repeat_guard() {
        let none = |rules: &mut TurnRules| rules.limits.max_tool_calls = Some(0);
        let (run, held) = (CallDecision::Run, CallDecision::Suppress);
        for (mut policies, decisions) in [
            (policies(|_| {}), [run, held]),
            (policies(none), [CallDecision::OverLimit; 2]),
        ] {
            for expected in decisions {
                let decision = policies.decide(server("{}"));
                assert_eq!(decision, expected);
                end_batch(&mut policies, server("{}"), decision, decision == run);
            }
            assert_eq!(policies.decide(CallFacts::Client), CallDecision::HandOver);
            let denied = CallFacts::Denied(CallSignature::new("f", "{}"));
            assert_eq!(policies.decide(denied), CallDecision::Deny);
        }
    }

    #[test]
    fn a_call_of_a_tool_that_does_not_exist_is_explained_until_it_is_repeated() {
        let mut policies = policies(|rules| rules.limits.max_tool_calls = Some(0));
        let unknown = CallFacts::Unknown(CallSignature::new("g", "{}"));
        assert_eq!(policies.decide(unknown), CallDecision::Explain);
        end_batch(&mut policies, unknown, CallDecision::Explain, false);
        assert_eq!(policies.decide(unknown), CallDecision::Suppress);
    }

    #[test]
    fn a_repeatable_tool_is_exempt_from_the_guard() {
        let mut policies = policies(|_| {});
        let call = CallFacts::Server {
            call: CallSignature::new("f", "{}"),
            repeatable: true,
        };
        for _ in 0..4 {
            assert_eq!(policies.decide(call), CallDecision::Run);
            end_batch(&mut policies, call, CallDecision::Run, true);
        }
        assert_eq!(policies.forbids_model_call(Duration::ZERO), None);
    }

    #[test]
    fn a_call_that_the_gate_refused_is_not_counted() {
        let mut policies = policies(|rules| rules.limits.max_tool_calls = Some(1));
        policies.begin_model_call();
        assert_eq!(policies.decide(server("1")), CallDecision::Run);
        assert_eq!(
            policies.forbids_tool_calls(),
            Some(StopReason::MaxToolCalls)
        );
        end_batch(&mut policies, server("1"), CallDecision::Run, false);
        assert_eq!(policies.decide(server("2")), CallDecision::Run);
        end_batch(&mut policies, server("2"), CallDecision::Run, true);
        assert_eq!(policies.decide(server("3")), CallDecision::OverLimit);
    }
}
