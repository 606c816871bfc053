mod cost;
mod errors;
mod properties;
mod text;
mod values;

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::schema::SchemaCache;

fn compiled(schema: &Value) -> Arc<CompiledSchema> {
    SchemaCache::default()
        .get(&schema.to_string())
        .unwrap_or_else(|| panic!("not a usable schema: {schema}"))
}

fn repair(raw: &str, schema: &Value) -> Repaired {
    repair_arguments(raw, Some(&compiled(schema)))
}

/// The text is mended to this object by these repairs.
#[track_caller]
fn mended(raw: &str, schema: &Value, expected: &Value, repairs: &[Repair]) {
    let repaired = repair(raw, schema);
    assert_eq!(
        repaired.arguments.map(Value::Object),
        Ok(expected.clone()),
        "{raw}"
    );
    assert_eq!(repaired.text, expected.to_string(), "{raw}");
    assert_eq!(repaired.repairs, repairs, "{raw}");
}

/// The text is left as it is, and the model's text with it; gives the error text.
#[track_caller]
fn refused(raw: &str, schema: &Value, text: &str) -> String {
    let repaired = repair(raw, schema);
    assert_eq!(repaired.text, text, "{raw}");
    assert_eq!(repaired.repairs, [], "{raw}");
    repaired.arguments.expect_err(raw).message
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in:\n{message}");
    }
}

fn search_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "count": {"type": "integer", "minimum": 1},
            "ratio": {"type": "number"},
            "deep": {"type": "boolean"},
            "options": {"type": "object", "properties": {
                "site": {"type": "string"}, "after": {"type": ["string", "null"]}, "n": {"type": "integer"}},
                "required": ["n"]},
            "path": {"type": "string", "pattern": "^[^\\[]*$"},
            "paths": {"type": "array", "items": {"type": "string"}},
            "either": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}
        },
        "required": ["query"],
        "additionalProperties": false
    })
}

#[test]
fn usable_arguments_are_not_touched() {
    for raw in [
        r#"{"query":"x"}"#,
        " {\n  \"query\" : \"\\u0078\" , \"count\": 1.0e0 }\n",
        r#"{"query":"[1]","options":{"n":1,"after":null}}"#,
        r#"{"query":"a","query":"b"}"#,
        r#"{"query":"[x](http://x)","either":null}"#,
    ] {
        let repaired = repair(raw, &search_schema());
        assert!(repaired.arguments.is_ok(), "{raw}");
        assert_eq!((repaired.text.as_str(), repaired.repairs.len()), (raw, 0));
    }
    // Without a schema every object is usable.
    let raw = r#"{"arguments": {"a": null, "path": "[x](http://x)"}}"#;
    let repaired = repair_arguments(raw, None);
    assert_eq!((repaired.text.as_str(), repaired.repairs.len()), (raw, 0));
}

#[test]
fn no_text_means_no_arguments() {
    for raw in ["", " ", "\n\t "] {
        for schema in [None, Some(&*compiled(&json!({"type": "object"})))] {
            let repaired = repair_arguments(raw, schema);
            assert_eq!(repaired.arguments, Ok(Map::new()));
            let (text, repairs) = (repaired.text.as_str(), &repaired.repairs[..]);
            assert_eq!((text, repairs), ("{}", &[Repair::EmptyToObject][..]));
        }
        let repaired = repair(raw, &search_schema());
        assert_eq!(repaired.repairs, [Repair::EmptyToObject]);
        let message = repaired.arguments.expect_err(raw).message;
        says(&message, &["\"query\" is a required property"]);
    }
}

#[test]
fn words_on_the_wire_are_distinct() {
    let all = Repair::ALL;
    let words: std::collections::HashSet<_> = all.iter().map(|repair| repair.as_str()).collect();
    assert_eq!(words.len(), all.len());
    for repair in all {
        // The word is the variant's name in snake case.
        let plain = repair.as_str().replace('_', "");
        assert_eq!(plain, format!("{repair:?}").to_lowercase());
    }
}
