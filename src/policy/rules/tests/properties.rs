//! What holds for all rules and calls.

use std::num::NonZeroU32;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::rules::{
    CallCounts, Effect, Level, LevelName, MatchKind, Permissions, Risk, RuleEntry, RuleSet,
    RuledCall, ToolClasses, shell,
};

fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![Just(Effect::Allow), Just(Effect::Ask), Just(Effect::Deny)]
}

fn argument() -> impl Strategy<Value = (MatchKind, &'static str)> {
    prop_oneof![
        Just((MatchKind::Glob, "a*")),
        Just((MatchKind::Prefix, "/a")),
        Just((MatchKind::Regex, "b")),
        Just((MatchKind::Host, "*.b")),
        Just((MatchKind::Path, "/a/**")),
        Just((MatchKind::Command, "a b")),
    ]
}

prop_compose! {
    fn entry()(
        tool in prop_oneof![Just("*"), Just("t"), Just("u*")],
        risk in proptest::option::weighted(0.2, prop_oneof![Just(Risk::ReadOnly), Just(Risk::Destructive)]),
        argument in proptest::option::of(argument()),
        from_call in proptest::option::weighted(0.3, 1_u32..4),
        effect in effect(),
    ) -> RuleEntry {
        RuleEntry {
            tool: tool.into(),
            risk,
            argument: argument.map(|_| "/x".into()),
            match_kind: argument.map(|(kind, _)| kind),
            patterns: argument.map(|(_, pattern)| pattern.into()).into_iter().collect(),
            from_call: from_call.and_then(NonZeroU32::new),
            effect,
            reason: None,
            must_match: Vec::new(),
            must_not_match: Vec::new(),
        }
    }
}

fn level(entries: Vec<RuleEntry>, word: Option<Effect>, name: LevelName) -> Level {
    let rules = RuleSet::compile(entries).expect("rules");
    Level {
        name,
        rules: Arc::new(rules),
        word,
    }
}

fn name() -> impl Strategy<Value = LevelName> {
    prop_oneof![
        Just(LevelName::Server),
        Just(LevelName::Key),
        Just(LevelName::Profile),
        Just(LevelName::Request),
    ]
}

fn any_level() -> impl Strategy<Value = Level> {
    (
        proptest::collection::vec(entry(), 0..4),
        proptest::option::of(effect()),
        name(),
    )
        .prop_map(|(entries, word, name)| level(entries, word, name))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(1)),
        "[a-b./ $]{0,6}".prop_map(Value::from),
        Just(json!("https://a.b/")),
        Just(json!("a b; c")),
        Just(json!("/x/../a")),
    ]
}

/// A tool name, its classes and its arguments.
type AnyCall = (&'static str, ToolClasses, Map<String, Value>);

fn call() -> impl Strategy<Value = AnyCall> {
    let tool = prop_oneof![Just("t"), Just("u1"), Just("v")];
    (tool, any::<(bool, bool)>(), value()).prop_map(|(tool, (read_only, destructive), value)| {
        let classes = ToolClasses {
            read_only,
            destructive,
            open_world: false,
        };
        (tool, classes, Map::from_iter([("x".to_owned(), value)]))
    })
}

/// The effects for the calls of a turn, one after another.
fn effects(permissions: &Permissions, calls: &[AnyCall]) -> Vec<Effect> {
    let mut counts = CallCounts::default();
    (calls.iter().enumerate())
        .map(|(index, (tool, classes, arguments))| {
            let id = index.to_string();
            let call = RuledCall {
                call_id: &id,
                tool,
                classes: *classes,
                arguments,
            };
            let decision = permissions.decide(&call, &mut counts);
            let again = permissions.decide(&call, &mut counts);
            assert_eq!(decision, again, "decided twice");
            decision.effect
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_further_level_never_allows_more(
        levels in proptest::collection::vec(any_level(), 0..4),
        further in any_level(),
        at in 0_usize..4,
        calls in proptest::collection::vec(call(), 1..6),
    ) {
        let before = effects(&Permissions::new(levels.clone()), &calls);
        let mut more = levels.clone();
        more.insert(at.min(levels.len()), further);
        for (after, before) in effects(&Permissions::new(more), &calls).into_iter().zip(before) {
            prop_assert!(after >= before);
        }
    }

    #[test]
    fn the_order_of_rules_does_not_matter(
        entries in proptest::collection::vec(entry(), 0..6),
        word in proptest::option::of(effect()),
        rotated in 0_usize..6,
        calls in proptest::collection::vec(call(), 1..6),
    ) {
        let mut others = entries.clone();
        others.reverse();
        let turn = rotated.min(others.len());
        others.rotate_left(turn);
        let one = Permissions::new(vec![level(entries, word, LevelName::Key)]);
        let other = Permissions::new(vec![level(others, word, LevelName::Key)]);
        prop_assert_eq!(effects(&one, &calls), effects(&other, &calls));
    }

    #[test]
    fn what_is_denied_whatever_is_denied(
        levels in proptest::collection::vec(any_level(), 0..4),
        calls in proptest::collection::vec(call(), 1..6),
    ) {
        let permissions = Permissions::new(levels);
        for ((tool, classes, _), effect) in calls.iter().zip(effects(&permissions, &calls)) {
            if let Some(decision) = permissions.denies_whatever(tool, *classes) {
                prop_assert_eq!(decision.effect, Effect::Deny);
                prop_assert_eq!(effect, Effect::Deny);
            }
            if effect == Effect::Ask {
                prop_assert!(permissions.may_ask());
            }
        }
    }

    #[test]
    fn any_line_is_split_or_not(
        line in "([a-c '\"`$(){};|&<>\\\\\n#!\\[\\]=~*é]|\\$\\(|<<E|\nE\n|if |then |fi|do |done){0,40}",
    ) {
        let Some(split) = shell::split(&line) else { return Ok(()) };
        for words in &split.commands {
            prop_assert!(!words.is_empty());
        }
        // What can be split can be split with a command after it, or ends in a comment.
        let longer = shell::split(&format!("{line}\nzz"));
        if let Some(longer) = longer {
            prop_assert!(longer.commands.len() >= split.commands.len());
        }
    }
}
