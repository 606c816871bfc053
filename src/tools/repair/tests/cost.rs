//! What hostile schemas and arguments may cost.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::*;
use crate::schema::SchemaCache;

/// What one repair may take, far above what it does take, as test builds are slow and share the machine.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 3000 } else { 200 });

#[track_caller]
fn measured(name: &str, schema: &Value, arguments: &str) -> Repaired {
    let cache = SchemaCache::default();
    let compiled = cache.get(&schema.to_string());
    let start = Instant::now();
    let repaired = repair_arguments(arguments, compiled.as_deref());
    let took = start.elapsed();
    assert!(took < LIMIT, "{name}: {took:?}");
    if let Err(error) = &repaired.arguments {
        assert!(error.message.len() < 8_000, "{name}");
    }
    repaired
}

fn repeated(text: &str, bytes: usize) -> String {
    vec![text; bytes / (text.len() + 1)].join(",")
}

/// A list of so many alternatives.
fn any_of(count: usize, one: impl Fn(usize) -> Value) -> Value {
    json!({"anyOf": (0..count).map(one).collect::<Vec<_>>()})
}

fn with_items(items: &Value) -> Value {
    json!({"properties": {"a": {"items": items}}})
}

const MIB: usize = 1024 * 1024 - 64;

#[test]
fn errors_are_not_gathered_without_bound() {
    let integers = any_of(1500, |_| json!({"type": "integer"}));
    let refused = |name, schema: &Value, arguments: &str| {
        measured(name, schema, arguments)
            .arguments
            .unwrap_err()
            .message
    };
    let list = format!(r#"{{"a":[{}]}}"#, repeated(r#""x""#, 5_000));
    let message = refused("many alternatives", &with_items(&integers), &list);
    assert!(message.contains("too large"), "{message}");
    let list = format!(r#"{{"a":[{}]}}"#, repeated(r#""x""#, 200_000));
    let message = refused(
        "many items",
        &with_items(&json!({"type": "integer"})),
        &list,
    );
    assert!(message.contains("at /a/0"), "{message}");
    // Errors with long pointers, many names and copies of the schema.
    let long = format!(
        r#"{{"a":{{"{}":[{}]}}}}"#,
        "k".repeat(MIB / 2),
        repeated("1", MIB / 4)
    );
    let texts =
        json!({"additionalProperties": {"additionalProperties": {"items": {"type": "string"}}}});
    refused("long pointers", &texts, &long);
    let names = (0..20_000).map(|i| format!("n{i}")).collect::<Vec<_>>();
    let empty = format!(r#"{{"a":[{}]}}"#, repeated("{}", 50_000));
    refused("required", &with_items(&json!({"required": names})), &empty);
    let not = json!({"not": {"enum": names, "not": false}, "type": "object"});
    refused(
        "not",
        &with_items(&json!({"allOf": [{"not": {}, "x": 1}, not]})),
        &empty,
    );
}

#[test]
fn validation_is_not_walked_without_bound() {
    let mut tree = any_of(
        4,
        |i| json!({"properties": {"a": {"$ref": "#"}}, "required": [format!("x{i}")]}),
    );
    let deep = |depth| (0..depth).fold("{}".to_owned(), |inner, _| format!(r#"{{"a":{inner}}}"#));
    measured("all ways at every level", &tree, &deep(60));
    tree["unevaluatedProperties"] = json!(false);
    measured("and marking", &tree, &deep(40));
    let mut nested = json!({"properties": {"a": {"items": {"type": "integer"}}}});
    for _ in 0..25 {
        nested = json!({"allOf": [nested], "unevaluatedProperties": false});
    }
    measured(
        "marking at every level",
        &nested,
        r#"{"a": [1, 2, "x"], "b": 1}"#,
    );
    let numbers = format!(r#"{{"a":[{}]}}"#, repeated("1", 300_000));
    let ways = any_of(1000, |i| json!({"const": format!("c{i}")}));
    measured("many ways for each item", &with_items(&ways), &numbers);
    let many = (0..7_000)
        .map(|i| (format!("p{i}"), json!({"type": "integer"})))
        .collect::<Map<_, _>>();
    let objects = format!(r#"{{"a":[{}]}}"#, repeated(r#"{"a":1}"#, 150_000));
    measured("wide", &with_items(&json!({"properties": many})), &objects);
    let lengths = any_of(1500, |i| json!({"maxLength": i}));
    let text = format!(r#"{{"a":["{}"]}}"#, "x".repeat(MIB));
    measured("lengths", &with_items(&lengths), &text);
    let steps = format!(r#"{{"a":["{}"]}}"#, "ab".repeat(MIB / 2));
    for pattern in [
        "[ab]*a[ab]{500}c",
        "(a|b|ab)*c",
        "^[ab]*a[ab]{9}c$",
        "(((a{9}){9}){5}|b)*c",
    ] {
        measured(pattern, &with_items(&json!({"pattern": pattern})), &steps);
    }
    let unique = json!({"items": {"$ref": "#/$defs/u"}, "$defs": {"u": {"uniqueItems": true, "items": {"$ref": "#/$defs/u"}}},
        "properties": {"a": {"$ref": "#/$defs/u"}}});
    let nest = (0..100).fold(repeated("1", 20_000), |inner, _| format!("[{inner}]"));
    measured("unique", &unique, &format!(r#"{{"a":{nest}}}"#));
}

#[test]
fn mending_is_not_done_without_bound() {
    let names = (0..20_000).map(|i| format!("n{i}")).collect::<Vec<_>>();
    let nulls = format!(
        "{{{}}}",
        (0..60_000)
            .map(|i| format!(r#""k{i}":null"#))
            .collect::<Vec<_>>()
            .join(",")
    );
    measured(
        "nulls",
        &json!({"required": names, "additionalProperties": {"type": "string"}}),
        &nulls,
    );
    let lists = (0..20_000)
        .map(|i| format!(r#""k{i}":"""#))
        .collect::<Vec<_>>()
        .join(",");
    let wanted = json!({"additionalProperties": {"type": "array"}, "required": ["x"]});
    measured("empty strings", &wanted, &format!("{{{lists}}}"));
    let dense = format!("[{}]", repeated(r#"{"":0}"#, MIB));
    let error = measured("dense", &json!({}), &format!(r#"{{"a":{dense}}}"#))
        .arguments
        .unwrap_err();
    assert!(error.message.contains("too many values"), "{error}");
    let inner = format!("[{}]", repeated("{}", MIB / 2));
    measured(
        "inside a string",
        &json!({"properties": {"a": {"type": "array"}}}),
        &json!({"a": inner}).to_string(),
    );
    let twice = Value::from(format!(r#"{{"a":{dense}}}"#)).to_string();
    measured("dense inside a string", &json!({}), &twice);
}

#[test]
fn large_ordinary_arguments_are_checked_and_mended() {
    let schema = json!({"type": "object", "required": ["edits"], "additionalProperties": false, "properties": {
        "edits": {"type": "array", "items": {"type": "object", "required": ["path", "line"], "additionalProperties": false,
            "properties": {"path": {"type": "string", "minLength": 1}, "line": {"type": "integer", "minimum": 1},
                "mode": {"anyOf": [{"type": "null"}, {"enum": ["add", "remove"]}]}, "text": {"type": "string"}}}}}});
    let edit =
        |line| json!({"path": "src/main.rs", "line": line, "mode": "add", "text": "x".repeat(60)});
    let good: Vec<_> = (1..8_000).map(|line| edit(json!(line))).collect();
    let repaired = measured("large", &schema, &json!({"edits": good}).to_string());
    assert!(repaired.arguments.is_ok(), "{repaired:?}");
    let mut mended = good;
    mended.truncate(600);
    mended[500] = edit(json!("77"));
    let repaired = measured("mended", &schema, &json!({"edits": mended}).to_string());
    assert_eq!(repaired.arguments.unwrap()["edits"][500]["line"], 77);
    let mut wrong = mended;
    wrong[300] = edit(json!("x"));
    let error = measured("wrong", &schema, &json!({"edits": wrong}).to_string())
        .arguments
        .unwrap_err();
    assert!(error.message.contains("at /edits/300/line"), "{error}");
    // A tree of alternatives that a model may well write.
    let alternatives = any_of(4, |i| {
        json!({"type": "object", "required": ["op"], "properties": {
        "op": {"const": format!("op{i}")}, "left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}, "value": {"type": "number"}}})
    });
    let tree = json!({"$defs": {"e": alternatives}, "properties": {"e": {"$ref": "#/$defs/e"}}});
    let expression = (0..4).fold(
        json!({"op": "op3", "value": 1}),
        |inner, i| json!({"op": format!("op{i}"), "left": inner, "right": inner}),
    );
    assert!(
        measured("expression", &tree, &json!({"e": expression}).to_string())
            .arguments
            .is_ok()
    );
}
