//! Tests of the rules, and what they share.

mod attacks;
mod commands;
mod compile;
mod decide;
mod matchers;
mod properties;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    CallCounts, Effect, Level, LevelName, Permissions, RuleDecision, RuleEntry, RuleSet, RuledCall,
    ToolClasses,
};

/// A tool of no class.
pub(super) const PLAIN: ToolClasses = ToolClasses {
    read_only: false,
    destructive: false,
    open_world: false,
};

/// A rule as it is written in JSON.
pub(super) fn rule(entry: Value) -> RuleEntry {
    serde_json::from_value(entry).expect("a rule")
}

/// Compiled rules.
pub(super) fn rules(entries: Value) -> RuleSet {
    let entries = serde_json::from_value(entries).expect("rules");
    RuleSet::compile(entries).expect("rules that compile")
}

pub(super) fn level(name: LevelName, entries: Value, word: Option<Effect>) -> Level {
    Level {
        name,
        rules: Arc::new(rules(entries)),
        word,
    }
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

/// The first decision about a call of the tool `t`.
pub(super) fn decide(permissions: &Permissions, arguments: Value) -> RuleDecision {
    let call = RuledCall {
        call_id: "c",
        tool: "t",
        classes: PLAIN,
        arguments: &object(arguments),
    };
    permissions.decide(&call, &mut CallCounts::default())
}

/// Whether a rule matches the argument `/x` that has this value.
pub(super) fn holds(effect: &str, kind: &str, patterns: &[&str], value: &Value) -> bool {
    let rules = rules(json!([{
        "argument": "/x", "match": kind, "patterns": patterns, "effect": effect,
    }]));
    let permissions = Permissions::new(vec![Level {
        name: LevelName::Server,
        rules: Arc::new(rules),
        word: None,
    }]);
    decide(&permissions, json!({ "x": value })).rule.is_some()
}

/// Whether an `allow` rule and a `deny` rule match the value.
pub(super) fn both(kind: &str, patterns: &[&str], value: &str) -> (bool, bool) {
    let value = Value::from(value);
    (
        holds("allow", kind, patterns, &value),
        holds("deny", kind, patterns, &value),
    )
}
