//! Decisions over rules and levels.

use serde_json::json;

use super::{PLAIN, decide, level, object};
use crate::rules::{
    CallCounts, Effect, LevelDecision, LevelName, Permissions, RuleDecision, RuleRef, RuledCall,
    ToolClasses,
};

fn server(rules: serde_json::Value, word: Option<Effect>) -> Permissions {
    Permissions::new(vec![level(LevelName::Server, rules, word)])
}

#[test]
fn without_levels_every_call_is_allowed() {
    let permissions = Permissions::default();
    let decision = decide(&permissions, json!({}));
    assert_eq!(
        decision,
        RuleDecision {
            effect: Effect::Allow,
            rule: None,
            reason: None,
            levels: vec![],
            position: None,
        }
    );
    assert_eq!(decision, decide(&server(json!([]), None), json!({})));
    assert_eq!(permissions.denies_whatever("t", PLAIN), None);
}

#[test]
fn the_strictest_matching_rule_decides_and_then_the_word() {
    let permissions = server(
        json!([
            { "argument": "/x", "match": "prefix", "patterns": ["a"], "effect": "allow" },
            { "argument": "/x", "match": "prefix", "patterns": ["ab"], "effect": "deny", "reason": "first" },
            { "argument": "/x", "match": "prefix", "patterns": ["abc"], "effect": "deny", "reason": "second" },
            { "tool": "other", "effect": "deny" },
        ]),
        Some(Effect::Ask),
    );
    for (value, effect, rule, reason) in [
        ("a", Effect::Allow, Some(0), None),
        ("ab", Effect::Deny, Some(1), Some("first")),
        ("abc", Effect::Deny, Some(1), Some("first")),
        ("b", Effect::Ask, None, None),
    ] {
        let decision = decide(&permissions, json!({ "x": value }));
        assert_eq!(decision.effect, effect, "{value}");
        assert_eq!(
            decision.rule,
            rule.map(|index| RuleRef {
                level: LevelName::Server,
                index
            }),
            "{value}"
        );
        assert_eq!(decision.reason.as_deref(), reason, "{value}");
        assert_eq!(
            decision.levels,
            [LevelDecision {
                level: LevelName::Server,
                effect,
                rule
            }],
            "{value}"
        );
    }
}

#[test]
fn the_highest_of_equally_strict_levels_is_named() {
    let ask = json!([{ "effect": "ask", "reason": "r" }]);
    let mut permissions = Permissions::new(vec![
        level(LevelName::Request, ask.clone(), None),
        level(LevelName::Key, ask.clone(), None),
        level(LevelName::Profile, json!([]), Some(Effect::Allow)),
        level(LevelName::Server, json!([]), None),
    ]);
    let decision = decide(&permissions, json!({}));
    assert_eq!(
        decision.rule,
        Some(RuleRef {
            level: LevelName::Key,
            index: 0
        })
    );
    assert_eq!(decision.position, Some(1));
    let said: Vec<_> = decision.levels.iter().map(|said| said.level).collect();
    assert_eq!(
        said,
        [LevelName::Request, LevelName::Key, LevelName::Profile]
    );
    permissions.push(level(LevelName::Request, json!([]), Some(Effect::Deny)));
    let decision = decide(&permissions, json!({}));
    assert_eq!(
        (decision.effect, decision.rule, decision.position),
        (Effect::Deny, None, Some(4))
    );
    assert_eq!(permissions.levels().len(), 5);
}

#[test]
fn risks_restrict_rules() {
    let permissions = server(json!([{ "risk": "destructive", "effect": "deny" }]), None);
    let arguments = object(json!({}));
    for (read_only, destructive, effect) in [
        (false, true, Effect::Deny),
        (false, false, Effect::Allow),
        (true, true, Effect::Allow),
    ] {
        let classes = ToolClasses {
            read_only,
            destructive,
            open_world: true,
        };
        let call = RuledCall {
            call_id: "c",
            tool: "t",
            classes,
            arguments: &arguments,
        };
        let decision = permissions.decide(&call, &mut CallCounts::default());
        assert_eq!(decision.effect, effect);
        assert_eq!(
            permissions.denies_whatever("t", classes).is_some(),
            effect == Effect::Deny
        );
    }
}

#[test]
fn from_call_counts_matching_calls_once() {
    let permissions = server(
        json!([
            { "effect": "ask" },
            { "argument": "/x", "match": "glob", "patterns": ["a*"], "from_call": 3, "effect": "deny" },
            { "from_call": 1, "effect": "ask" },
        ]),
        None,
    );
    assert_eq!(permissions.denies_whatever("t", PLAIN), None);
    let mut counts = CallCounts::default();
    let mut effect = |call_id: &str, value: &str| {
        let arguments = object(json!({ "x": value }));
        let call = RuledCall {
            call_id,
            tool: "t",
            classes: PLAIN,
            arguments: &arguments,
        };
        let text = serde_json::to_string(&counts).expect("JSON");
        counts = serde_json::from_str(&text).expect("counts");
        let decided = permissions.decide(&call, &mut counts).effect;
        let kept = counts.clone();
        assert_eq!(permissions.decide(&call, &mut counts).effect, decided);
        assert_eq!(counts, kept);
        decided
    };
    assert_eq!(effect("1", "a"), Effect::Ask);
    assert_eq!(effect("2", "b"), Effect::Ask);
    assert_eq!(effect("1", "a"), Effect::Ask);
    assert_eq!(effect("3", "ab"), Effect::Ask);
    assert_eq!(effect("4", "b"), Effect::Ask);
    assert_eq!(effect("5", "abc"), Effect::Deny);
    assert_eq!(effect("1", "a"), Effect::Ask);
    assert_eq!(effect("6", "a"), Effect::Deny);
    assert_eq!(effect("5", "abc"), Effect::Deny);
    // No more is kept than is needed.
    let text = serde_json::to_string(&counts).expect("JSON");
    assert_eq!(
        text,
        r#"{"rules":[{"level":0,"rule":1,"calls":["1","3"]}]}"#
    );
}

#[test]
fn counts_go_on_where_a_stricter_rule_decides() {
    let permissions = server(
        json!([
            { "argument": "/x", "match": "glob", "patterns": ["a"], "effect": "deny" },
            { "from_call": 2, "effect": "ask" },
        ]),
        None,
    );
    let mut counts = CallCounts::default();
    let mut effect = |call_id: &str, value: &str| {
        let arguments = object(json!({ "x": value }));
        let call = RuledCall {
            call_id,
            tool: "t",
            classes: PLAIN,
            arguments: &arguments,
        };
        permissions.decide(&call, &mut counts).effect
    };
    assert_eq!(effect("1", "a"), Effect::Deny);
    assert_eq!(effect("2", "b"), Effect::Ask);
}

#[test]
fn tools_that_are_denied_whatever_are_recognised() {
    let conditional =
        json!({ "argument": "/x", "match": "glob", "patterns": ["a"], "effect": "deny" });
    let milder = |effect: &str| json!({ "tool": "t", "argument": "/x", "match": "glob", "patterns": ["a"], "effect": effect });
    for (rules, word, denied) in [
        (json!([{ "effect": "deny" }]), None, Some(Some(0))),
        (json!([{ "tool": "u", "effect": "deny" }]), None, None),
        (
            json!([conditional, { "effect": "deny" }]),
            None,
            Some(Some(1)),
        ),
        (
            json!([milder("allow"), { "effect": "deny" }]),
            None,
            Some(Some(1)),
        ),
        (json!([conditional]), None, None),
        (json!([conditional]), Some(Effect::Deny), Some(None)),
        (json!([]), Some(Effect::Deny), Some(None)),
        (json!([]), Some(Effect::Ask), None),
        (json!([milder("allow")]), Some(Effect::Deny), None),
        (json!([milder("ask")]), Some(Effect::Deny), None),
        (
            json!([{ "tool": "u", "effect": "allow" }]),
            Some(Effect::Deny),
            Some(None),
        ),
        (
            json!([{ "from_call": 1, "effect": "deny" }]),
            None,
            Some(Some(0)),
        ),
        (json!([{ "from_call": 2, "effect": "deny" }]), None, None),
    ] {
        let permissions = server(rules.clone(), word);
        let decision = permissions.denies_whatever("t", PLAIN);
        let rule = decision.map(|decision| decision.rule.map(|rule| rule.index));
        assert_eq!(rule, denied, "{rules} {word:?}");
    }
}

#[test]
fn asking_is_possible_only_with_a_rule_or_a_word() {
    for (rules, word, expected) in [
        (json!([]), None, false),
        (json!([{ "effect": "deny" }]), Some(Effect::Allow), false),
        (json!([{ "effect": "ask" }]), None, true),
        (json!([]), Some(Effect::Ask), true),
    ] {
        assert_eq!(server(rules, word).may_ask(), expected);
    }
}

#[test]
fn the_value_that_was_compared_is_found() {
    let asks = |pointer: &str| json!([{ "argument": pointer, "match": "glob", "patterns": ["a*"], "effect": "ask" }]);
    let permissions = Permissions::new(vec![
        level(LevelName::Request, json!([]), Some(Effect::Allow)),
        level(LevelName::Request, asks("/a~1b/0"), None),
    ]);
    let arguments = object(json!({ "a/b": ["abc"] }));
    let decision = decide(&permissions, json!({ "a/b": ["abc"] }));
    assert_eq!(
        decision.asked_value(&permissions, &arguments),
        Some(&json!("abc"))
    );
    let decision = decide(&permissions, json!({}));
    assert_eq!(decision.effect, Effect::Ask);
    assert_eq!(decision.asked_value(&permissions, &object(json!({}))), None);
    let plain = server(json!([{ "effect": "ask" }]), None);
    let decision = decide(&plain, json!({ "a/b": ["abc"] }));
    assert_eq!(decision.asked_value(&plain, &arguments), None);
}

#[test]
fn decisions_are_written_without_the_position() {
    let permissions = server(json!([{ "effect": "deny", "reason": "no" }]), None);
    let written = serde_json::to_value(decide(&permissions, json!({}))).expect("JSON");
    assert_eq!(
        written,
        json!({
            "effect": "deny", "rule": { "level": "server", "index": 0 }, "reason": "no",
            "levels": [{ "level": "server", "effect": "deny", "rule": 0 }],
        })
    );
}
