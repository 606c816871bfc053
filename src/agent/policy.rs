//! The policies of a turn: the rules that the machine asks before it decides.
//!
//! A policy is a small type without I/O and without a clock. [`Policies`] is built once for the server; a count of what an
//! owner has used across turns belongs there. Each turn has its own [`TurnPolicies`], made from it.
//!
//! The machine asks them in this order:
//!
//! | when | policy | answer |
//! |---|---|---|
//! | before a model call | [`budget`]: time, then tokens | the limit that forbids the call |
//! | | [`budget`]: rounds, then tool calls | the limit that forbids further tool calls |
//! | after a model call | [`budget`] | none; counts its tokens |
//! | for each call of an answer | [`permission`] | the call is denied |
//! | | [`budget`]: tool calls | the call is over the limit |
//! | | [`repeat`] | the call is suppressed |
//! | after a batch | [`budget`] | none; counts the round, and takes back the calls that did not run |
//! | | [`repeat`] | the turn ends |
//!
//! None of them applies to client tools. A check of a single call that has to be awaited (an approval, a hook) is part of
//! [`crate::tools::gate`], through which a call goes before it runs.

pub mod budget;
pub mod permission;
pub mod repeat;

use std::time::Duration;

use self::budget::Budget;
use self::repeat::{CallSignature, RepeatGuard};
use super::options::{OnLimit, Options, TurnLimits};
use super::settings::Settings;
use super::stop::StopReason;
use crate::ids::Owner;
use crate::openai::usage::Usage;
use crate::tools::gate::Permission;

/// The policies of the server, from which each turn makes its own.
#[derive(Debug, Clone)]
pub struct Policies {
    settings: Settings,
}

/// The turn that policies are made for.
#[derive(Debug, Clone, Copy)]
pub struct TurnFacts<'a> {
    /// The owner of the request.
    pub owner: &'a Owner,
    /// The options of the turn.
    pub options: &'a Options,
    /// When the turn began, in seconds since 1970.
    pub started_at: i64,
}

/// The rules of one turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnRules {
    /// Most rounds of server-side tools.
    pub max_rounds: u32,
    /// Limits on calls, time and tokens.
    pub limits: TurnLimits,
    /// What happens when a limit is reached.
    pub on_limit: OnLimit,
    /// What server-side tools may do.
    pub permission: Permission,
    /// The count from which on identical calls are suppressed.
    pub repeat_threshold: u32,
}

/// The policies of one turn, with their state.
#[derive(Debug)]
pub struct TurnPolicies {
    on_limit: OnLimit,
    permission: Permission,
    budget: Budget,
    repeats: RepeatGuard,
}

/// What the policies know of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFacts {
    /// A call of a server-side tool with usable arguments.
    Server(CallSignature),
    /// A call of a server-side tool whose arguments cannot be used.
    Unusable(CallSignature),
    /// A call of a client tool.
    Client,
    /// A call of a tool that does not exist.
    Unknown(CallSignature),
}

/// What is done with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallDecision {
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

impl Policies {
    /// The policies of these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// The policies of one turn.
    pub fn for_turn(&self, turn: TurnFacts<'_>) -> TurnPolicies {
        TurnPolicies::new(TurnRules {
            max_rounds: turn.options.max_tool_rounds,
            limits: turn.options.limits,
            on_limit: turn.options.on_limit,
            permission: permission::strictest(&[self.settings.permission, turn.options.permission]),
            repeat_threshold: self.settings.repeat_threshold,
        })
    }
}

impl TurnPolicies {
    /// Policies in their initial state.
    pub fn new(rules: TurnRules) -> Self {
        Self {
            on_limit: rules.on_limit,
            permission: rules.permission,
            budget: Budget::new(rules.max_rounds, rules.limits),
            repeats: RepeatGuard::new(rules.repeat_threshold),
        }
    }

    /// What server-side tools may do in this turn.
    pub fn permission(&self) -> Permission {
        self.permission
    }

    /// What happens at a limit.
    pub fn on_limit(&self) -> OnLimit {
        self.on_limit
    }

    /// The limit that forbids another model call. `elapsed` is the age of the turn.
    pub fn forbids_model_call(&self, elapsed: Duration) -> Option<StopReason> {
        self.budget.forbids_model_call(elapsed)
    }

    /// The limit that forbids further calls of server-side tools.
    pub fn forbids_tool_calls(&self) -> Option<StopReason> {
        self.budget.forbids_tool_calls()
    }

    /// Records that a model call begins.
    pub fn begin_model_call(&mut self) {
        self.budget.begin_model_call();
    }

    /// Records a finished model call and its tokens.
    pub fn model_called(&mut self, usage: Option<&Usage>) {
        self.budget
            .spend_tokens(usage.map_or(0, Usage::total_tokens));
    }

    /// Decides what is done with a call.
    pub fn decide(&mut self, call: CallFacts) -> CallDecision {
        if let Some(decision) = permission::decide(self.permission, call) {
            return decision;
        }
        match call {
            CallFacts::Client => CallDecision::HandOver,
            CallFacts::Server(_) if !self.budget.has_tool_call_left() => CallDecision::OverLimit,
            CallFacts::Server(signature)
            | CallFacts::Unusable(signature)
            | CallFacts::Unknown(signature)
                if !self.repeats.admit(signature) =>
            {
                CallDecision::Suppress
            }
            CallFacts::Server(_) => {
                self.budget.spend_tool_call();
                CallDecision::Run
            }
            CallFacts::Unusable(_) | CallFacts::Unknown(_) => CallDecision::Explain,
        }
    }

    /// Records a batch in which `ran` calls ran. Returns the reason if the turn has to end. A call that the gate refused did
    /// not run.
    pub fn batch_ended(&mut self, decisions: &[CallDecision], ran: usize) -> Option<StopReason> {
        let admitted = decisions
            .iter()
            .filter(|decision| **decision == CallDecision::Run)
            .count();
        self.budget.spend_round();
        self.budget.return_tool_calls(admitted.saturating_sub(ran));
        let all_suppressed = decisions
            .iter()
            .all(|decision| *decision == CallDecision::Suppress);
        self.repeats.batch_ended(all_suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(change: impl FnOnce(&mut TurnRules)) -> TurnPolicies {
        let mut rules = TurnRules {
            max_rounds: 8,
            limits: TurnLimits::default(),
            on_limit: OnLimit::FinalAnswer,
            permission: Permission::Auto,
            repeat_threshold: 2,
        };
        change(&mut rules);
        TurnPolicies::new(rules)
    }

    #[test]
    fn permission_comes_before_the_limit_and_the_limit_before_the_repeat_guard() {
        let signature = CallSignature::new("f", "{}");
        let server = CallFacts::Server(signature);
        let none = |rules: &mut TurnRules| rules.limits.max_tool_calls = Some(0);
        for (mut policies, decisions) in [
            (
                policies(|_| {}),
                [CallDecision::Run, CallDecision::Suppress],
            ),
            (policies(none), [CallDecision::OverLimit; 2]),
            (
                policies(|rules| {
                    none(rules);
                    rules.permission = Permission::Deny;
                }),
                [CallDecision::Deny; 2],
            ),
        ] {
            assert_eq!(
                [policies.decide(server), policies.decide(server)],
                decisions
            );
            assert_eq!(policies.decide(CallFacts::Client), CallDecision::HandOver);
        }
        let mut policies = policies(none);
        let unknown = CallFacts::Unknown(signature);
        assert_eq!(policies.decide(unknown), CallDecision::Explain);
        assert_eq!(policies.decide(unknown), CallDecision::Suppress);
    }

    #[test]
    fn a_call_that_the_gate_refused_is_not_counted() {
        let mut policies = policies(|rules| rules.limits.max_tool_calls = Some(1));
        let call = |arguments| CallFacts::Server(CallSignature::new("f", arguments));
        policies.begin_model_call();
        assert_eq!(policies.decide(call("1")), CallDecision::Run);
        assert_eq!(
            policies.forbids_tool_calls(),
            Some(StopReason::MaxToolCalls)
        );
        assert_eq!(policies.batch_ended(&[CallDecision::Run], 0), None);
        assert_eq!(policies.decide(call("2")), CallDecision::Run);
        assert_eq!(policies.batch_ended(&[CallDecision::Run], 1), None);
        assert_eq!(policies.decide(call("3")), CallDecision::OverLimit);
    }
}
