//! The decisions, table by table.

use proptest::prelude::*;

use super::super::options::TurnLimits;
use super::super::policy::TurnRules;
use super::super::policy::repeat::{AnsweredCall, CallSignature, ResultDigest};
use super::*;
use tools::ToolOutput;

fn machine(change: impl FnOnce(&mut TurnRules)) -> Machine {
    let mut rules = TurnRules {
        max_rounds: 256,
        limits: TurnLimits::default(),
        on_limit: OnLimit::FinalAnswer,
        forbids_calls: false,
        repeat_threshold: 3,
    };
    change(&mut rules);
    Machine::new(TurnPolicies::new(rules))
}

fn call(arguments: &str) -> CallFacts {
    CallFacts::Server {
        call: CallSignature::new("f", arguments),
        repeatable: false,
    }
}

/// An answer without text that asks for these calls.
fn asking(calls: &[CallFacts]) -> ReplyFacts<'_> {
    ReplyFacts {
        finish: &FinishReason::ToolCalls,
        tokens: 0,
        calls,
        has_answer: false,
        with_tools: true,
    }
}

/// An answer with text and without calls.
fn answering(finish: &FinishReason) -> ReplyFacts<'_> {
    ReplyFacts {
        finish,
        has_answer: true,
        ..asking(&[])
    }
}

/// The outcomes of a batch in which everything that may run runs, with one and the same result.
fn outcomes(calls: &[CallFacts], decisions: &[CallDecision]) -> Vec<CallOutcome> {
    let answered = |call| AnsweredCall {
        call,
        result: ResultDigest::of(&ToolOutput::default()),
        may_change: false,
    };
    let outcome = |(call, decision): (&CallFacts, &CallDecision)| CallOutcome {
        decision: *decision,
        ran: *decision == CallDecision::Run,
        terminate: false,
        answered: call
            .signature()
            .map(answered)
            .filter(|_| *decision == CallDecision::Run),
    };
    calls.iter().zip(decisions).map(outcome).collect()
}

/// One round: a model call that asks for the given calls, all of which run.
fn round(machine: &mut Machine, calls: &[CallFacts]) -> Vec<CallDecision> {
    assert!(matches!(
        machine.before_model_call(Duration::ZERO),
        BeforeModelCall::Call(_)
    ));
    let AfterModelCall::Batch(decisions) = machine.after_model_call(&asking(calls)) else {
        panic!("no batch")
    };
    machine.after_batch(&outcomes(calls, &decisions));
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
    machine.after_model_call(&asking(&[call("1")]));
    machine.after_batch(&outcomes(&[call("1")], &[CallDecision::Run]));
    assert_eq!(
        machine.before_model_call(Duration::ZERO),
        BeforeModelCall::Call(Offer::Unforced)
    );
    assert_eq!(
        machine.after_model_call(&answering(&FinishReason::Stop)),
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
        let calls = [call("3")];
        let reply = ReplyFacts {
            has_answer: true,
            ..asking(&calls)
        };
        (before, machine.after_model_call(&reply))
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
    let client = [CallFacts::Client];
    let after = machine.after_model_call(&asking(&client));
    assert_eq!(after, AfterModelCall::Batch(vec![CallDecision::HandOver]));
    assert_eq!(
        machine.after_batch(&outcomes(&client, &[CallDecision::HandOver])),
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
    machine.before_model_call(Duration::ZERO);
    let calls = [call("1")];
    let after = machine.after_model_call(&ReplyFacts {
        tokens: 11,
        ..asking(&calls)
    });
    assert_eq!(after, AfterModelCall::Batch(vec![CallDecision::Run]));
    machine.after_batch(&outcomes(&calls, &[CallDecision::Run]));
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
fn two_batches_in_a_row_of_repeated_calls_end_the_turn_as_a_limit_does() {
    let reason = StopReason::RepeatedCalls;
    for (on_limit, expected) in [
        (
            OnLimit::FinalAnswer,
            BeforeModelCall::Call(Offer::Withheld(reason)),
        ),
        (OnLimit::Stop, BeforeModelCall::Finish(reason)),
        (OnLimit::Error, BeforeModelCall::Fail(reason)),
    ] {
        let mut machine = machine(|rules| rules.on_limit = on_limit);
        let (run, held) = (CallDecision::Run, CallDecision::Suppress);
        for (calls, decisions) in [
            (&[call("1")][..], &[run][..]),
            (&[call("1")], &[run]),
            (&[call("1")], &[held]),
            (&[call("1"), call("2")], &[held, run]),
            (&[call("1")], &[held]),
            (&[call("1")], &[held]),
        ] {
            assert_eq!(round(&mut machine, calls), decisions);
        }
        assert_eq!(machine.before_model_call(Duration::ZERO), expected);
        assert_eq!(machine.rounds(), 3);
    }
}

#[test]
fn a_final_call_without_an_answer_is_made_once_more_without_tools() {
    let reason = StopReason::MaxToolRounds;
    let at_limit = || {
        let mut machine = machine(|rules| rules.max_rounds = 1);
        round(&mut machine, &[call("1")]);
        machine.before_model_call(Duration::ZERO);
        machine
    };
    for calls in [&[call("2")][..], &[]] {
        let mut machine = at_limit();
        let after = machine.after_model_call(&asking(calls));
        assert_eq!(after, AfterModelCall::AskAgain);
        let again = BeforeModelCall::Call(Offer::Removed(reason));
        assert_eq!(machine.before_model_call(Duration::MAX), again);
        let without = ReplyFacts {
            with_tools: false,
            ..asking(calls)
        };
        let after = machine.after_model_call(&without);
        assert_eq!(after, AfterModelCall::Finish(reason));
        assert_eq!(machine.model_calls(), 3);
    }
    // The tools were left out in the first place.
    let without = ReplyFacts {
        with_tools: false,
        ..asking(&[])
    };
    let after = at_limit().after_model_call(&without);
    assert_eq!(after, AfterModelCall::Finish(reason));
}

#[test]
fn the_turn_ends_with_the_tools_only_when_every_result_says_so() {
    let ended = |results: &[(CallDecision, bool)]| {
        let outcome = |&(decision, terminate): &(CallDecision, bool)| CallOutcome {
            decision,
            ran: decision == CallDecision::Run,
            terminate,
            answered: None,
        };
        let outcomes: Vec<_> = results.iter().map(outcome).collect();
        machine(|_| {}).after_batch(&outcomes)
    };
    let run = CallDecision::Run;
    assert_eq!(
        ended(&[(run, true), (run, true)]),
        AfterBatch::Finish(StopReason::TerminatedByTool)
    );
    for goes_on in [
        [(run, true), (run, false)],
        [(run, true), (CallDecision::Explain, true)],
    ] {
        assert_eq!(ended(&goes_on), AfterBatch::Continue);
    }
}

#[test]
fn an_answer_that_the_filter_stopped_runs_nothing() {
    let mut machine = machine(|_| {});
    machine.before_model_call(Duration::ZERO);
    let calls = [call("1")];
    let after = machine.after_model_call(&ReplyFacts {
        finish: &FinishReason::ContentFilter,
        ..asking(&calls)
    });
    assert_eq!(after, AfterModelCall::Abandon(StopReason::ContentFilter));
}

#[test]
fn a_turn_that_may_make_no_calls_takes_the_text_and_runs_nothing() {
    let forbidding = || {
        let mut machine = machine(|rules| {
            rules.forbids_calls = true;
            rules.limits.max_tool_calls = Some(0);
            rules.on_limit = OnLimit::Error;
        });
        let before = machine.before_model_call(Duration::ZERO);
        assert_eq!(before, BeforeModelCall::Call(Offer::Forbidden));
        machine
    };
    let calls = [call("1"), CallFacts::Client];
    for (finish, end) in [
        (FinishReason::ToolCalls, StopReason::Completed),
        (FinishReason::Stop, StopReason::Completed),
        (FinishReason::Length, StopReason::Length),
        (FinishReason::ContentFilter, StopReason::ContentFilter),
    ] {
        for calls in [&calls[..], &[]] {
            let reply = ReplyFacts {
                calls,
                ..answering(&finish)
            };
            let after = forbidding().after_model_call(&reply);
            assert_eq!(after, AfterModelCall::Finish(end), "{finish:?}");
        }
    }
    // The model's own end is no reason to ask again.
    for (finish, end) in [
        (FinishReason::Length, StopReason::Length),
        (FinishReason::ContentFilter, StopReason::ContentFilter),
    ] {
        let silent = ReplyFacts {
            finish: &finish,
            ..asking(&[])
        };
        let after = forbidding().after_model_call(&silent);
        assert_eq!(after, AfterModelCall::Finish(end));
    }
}

#[test]
fn a_turn_that_may_make_no_calls_is_asked_once_more_without_tools() {
    let client = [CallFacts::Client];
    for calls in [&[call("1")][..], &client, &[]] {
        let mut machine = machine(|rules| rules.forbids_calls = true);
        machine.before_model_call(Duration::ZERO);
        let after = machine.after_model_call(&asking(calls));
        assert_eq!(after, AfterModelCall::AskAgain);
        let again = BeforeModelCall::Call(Offer::Removed(StopReason::Completed));
        assert_eq!(machine.before_model_call(Duration::ZERO), again);
        let silent = ReplyFacts {
            with_tools: false,
            ..asking(calls)
        };
        let after = machine.after_model_call(&silent);
        assert_eq!(after, AfterModelCall::Finish(StopReason::Completed));
        assert_eq!((machine.rounds(), machine.model_calls()), (0, 2));
    }
}

proptest! {
    #[test]
    fn a_machine_that_was_stored_decides_the_same(
        rounds in prop::collection::vec(prop::collection::vec(0..3_u8, 1..4), 0..12),
    ) {
        let new = || machine(|rules| {
            rules.max_rounds = 8;
            rules.limits.max_tool_calls = Some(12);
            rules.limits.max_total_tokens = Some(60);
        });
        let (mut kept, mut stored) = (new(), new());
        for numbers in rounds {
            let text = serde_json::to_string(&stored).unwrap();
            stored = serde_json::from_str(&text).unwrap();
            let before = [&mut kept, &mut stored].map(|one| one.before_model_call(Duration::ZERO));
            prop_assert_eq!(before[0], before[1]);
            let calls: Vec<CallFacts> = numbers.iter().map(|number| call(&number.to_string())).collect();
            let reply = ReplyFacts { tokens: 7, ..asking(&calls) };
            let after = [&mut kept, &mut stored].map(|one| one.after_model_call(&reply));
            prop_assert_eq!(&after[0], &after[1]);
            let AfterModelCall::Batch(decisions) = &after[0] else { break };
            let outcomes = outcomes(&calls, decisions);
            prop_assert_eq!(kept.after_batch(&outcomes), stored.after_batch(&outcomes));
        }
    }
}
