//! The limits of one turn: rounds, tool calls, time and tokens.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::limits::TurnLimits;
use super::super::stop::StopReason;

/// The limits of one turn, and what is spent of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Budget {
    max_rounds: u32,
    limits: TurnLimits,
    /// The first model call has begun.
    begun: bool,
    rounds: u32,
    tool_calls: u64,
    tokens: u64,
}

impl Budget {
    /// A budget with nothing spent.
    pub(crate) fn new(max_rounds: u32, limits: TurnLimits) -> Self {
        Self {
            max_rounds,
            limits,
            begun: false,
            rounds: 0,
            tool_calls: 0,
            tokens: 0,
        }
    }

    /// The limit on time or tokens that is reached.
    pub(crate) fn forbids_model_call(&self, elapsed: Duration) -> Option<StopReason> {
        if self.is_exempt() {
            return None;
        }
        let TurnLimits {
            max_duration,
            max_total_tokens,
            ..
        } = self.limits;
        if max_duration.is_some_and(|most| elapsed >= most) {
            Some(StopReason::MaxSeconds)
        } else if max_total_tokens.is_some_and(|most| self.tokens >= most) {
            Some(StopReason::MaxTotalTokens)
        } else {
            None
        }
    }

    /// The limit on rounds or tool calls that is reached.
    pub(crate) fn forbids_tool_calls(&self) -> Option<StopReason> {
        if self.is_exempt() {
            None
        } else if self.rounds >= self.max_rounds {
            Some(StopReason::MaxToolRounds)
        } else if !self.has_tool_call_left() {
            Some(StopReason::MaxToolCalls)
        } else {
            None
        }
    }

    /// Whether another tool call is within the limit.
    pub(crate) fn has_tool_call_left(&self) -> bool {
        let most = self.limits.max_tool_calls;
        most.is_none_or(|most| self.tool_calls < most)
    }

    /// Records that a model call begins.
    pub(crate) fn begin_model_call(&mut self) {
        self.begun = true;
    }

    /// Counts a tool call.
    pub(crate) fn spend_tool_call(&mut self) {
        self.tool_calls = self.tool_calls.saturating_add(1);
    }

    /// Takes back tool calls that were counted but did not run.
    pub(crate) fn return_tool_calls(&mut self, count: usize) {
        self.tool_calls = self.tool_calls.saturating_sub(count as u64);
    }

    /// Counts a round.
    pub(crate) fn spend_round(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
    }

    /// Counts tokens, in and out.
    pub(crate) fn spend_tokens(&mut self, count: u64) {
        self.tokens = self.tokens.saturating_add(count);
    }

    /// Whether the limits do not apply yet. They do not apply to the first model call, except if rounds are allowed but no
    /// tool call is: then the first model call is the final one.
    fn is_exempt(&self) -> bool {
        let is_final = self.max_rounds > 0 && self.limits.max_tool_calls == Some(0);
        !self.begun && !is_final
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(tool_calls: Option<u64>, seconds: Option<u64>, tokens: Option<u64>) -> TurnLimits {
        TurnLimits {
            max_tool_calls: tool_calls,
            max_duration: seconds.map(Duration::from_secs),
            max_total_tokens: tokens,
            max_output_tokens: None,
        }
    }

    #[test]
    fn time_comes_before_tokens() {
        let (time, tokens) = (StopReason::MaxSeconds, StopReason::MaxTotalTokens);
        for (limits, elapsed, spent, expected) in [
            (limits(None, None, None), 1000, 1_000_000, None),
            (limits(None, Some(5), None), 4, 0, None),
            (limits(None, Some(5), None), 5, 0, Some(time)),
            (limits(None, None, Some(10)), 0, 9, None),
            (limits(None, None, Some(10)), 0, 10, Some(tokens)),
            (limits(None, None, Some(10)), 0, 11, Some(tokens)),
            (limits(None, Some(5), Some(10)), 5, 10, Some(time)),
            (limits(Some(0), None, None), 0, 0, None),
        ] {
            let mut budget = Budget::new(1, limits);
            budget.begin_model_call();
            budget.spend_tokens(spent);
            let reached = budget.forbids_model_call(Duration::from_secs(elapsed));
            assert_eq!(reached, expected, "{limits:?} {elapsed} {spent}");
        }
    }

    #[test]
    fn rounds_come_before_tool_calls() {
        let (rounds, calls) = (StopReason::MaxToolRounds, StopReason::MaxToolCalls);
        for (max_rounds, max_calls, spent_rounds, spent_calls, expected) in [
            (2, None, 1, 100, None),
            (2, None, 2, 0, Some(rounds)),
            (2, Some(3), 1, 2, None),
            (2, Some(3), 1, 3, Some(calls)),
            (2, Some(3), 2, 3, Some(rounds)),
            (2, Some(0), 0, 0, Some(calls)),
            (0, Some(0), 0, 0, Some(rounds)),
        ] {
            let mut budget = Budget::new(max_rounds, limits(max_calls, None, None));
            budget.begin_model_call();
            (0..spent_rounds).for_each(|_| budget.spend_round());
            (0..spent_calls).for_each(|_| budget.spend_tool_call());
            assert_eq!(budget.forbids_tool_calls(), expected);
        }
    }

    #[test]
    fn a_tool_call_that_did_not_run_is_taken_back() {
        let mut budget = Budget::new(2, limits(Some(2), None, None));
        budget.spend_tool_call();
        budget.spend_tool_call();
        assert!(!budget.has_tool_call_left());
        budget.return_tool_calls(1);
        assert!(budget.has_tool_call_left());
    }

    #[test]
    fn only_a_turn_that_may_offer_tools_but_not_call_them_is_limited_from_its_first_call() {
        let (rounds, calls) = (StopReason::MaxToolRounds, StopReason::MaxToolCalls);
        for (max_rounds, max_calls, first, later) in [
            (1, Some(0), Some(calls), Some(calls)),
            (1, Some(1), None, None),
            (1, None, None, None),
            (0, None, None, Some(rounds)),
            (0, Some(0), None, Some(rounds)),
        ] {
            let mut budget = Budget::new(max_rounds, limits(max_calls, Some(0), None));
            let time = first.map(|_| StopReason::MaxSeconds);
            assert_eq!(budget.forbids_tool_calls(), first);
            assert_eq!(budget.forbids_model_call(Duration::ZERO), time);
            budget.begin_model_call();
            assert_eq!(budget.forbids_tool_calls(), later);
            let time = Some(StopReason::MaxSeconds);
            assert_eq!(budget.forbids_model_call(Duration::ZERO), time);
        }
    }
}
