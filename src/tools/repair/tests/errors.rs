//! The error text for arguments that cannot be repaired.

use super::*;

#[test]
fn the_error_says_what_is_expected_where() {
    let schema = json!({"type": "object", "properties": {
        "level": {"enum": ["low", "high"]}, "items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
        "required": ["level", "name"], "additionalProperties": false,
        "$defs": {"item": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}}}});
    let raw = r#"{"level":"mid","items":[{"n":1},{"n":12}],"extra":1}"#;
    says(
        &refused(raw, &schema, raw),
        &[
            "do not fit the tool's schema",
            "not run",
            "at the arguments as a whole: \"name\" is a required property",
            "add the missing field \"name\"",
            "Additional properties are not allowed ('extra' was unexpected)",
            "leave out the fields",
            "at /level: ",
            "expected: {\"enum\":[\"low\",\"high\"]}",
            "one of the listed values",
            "at /items/1/n: the value is greater than the maximum of 9",
            "expected: {\"maximum\":9,\"type\":\"integer\"}",
            "value: 12",
        ],
    );
}

#[test]
fn what_was_mended_is_not_complained_of() {
    let raw = r#"{"query":"x","count":"3","deep":"maybe"}"#;
    let message = refused(raw, &search_schema(), raw);
    says(&message, &["at /deep"]);
    assert!(!message.contains("/count"), "{message}");
}

#[test]
fn a_required_field_that_says_nothing_is_complained_of_beside_others() {
    let mut schema = search_schema();
    schema["required"] = json!(["query", "options"]);
    let raw = r#"{"query":null,"options":"","deep":"maybe"}"#;
    says(
        &refused(raw, &schema, raw),
        &["at /query", "at /options", "at /deep"],
    );
}

#[test]
fn arguments_never_become_an_array() {
    for raw in ["{}", r#"{"input":{}}"#] {
        says(
            &refused(raw, &json!({"type": "array"}), raw),
            &["a JSON array, not an object"],
        );
    }
}

#[test]
fn an_error_text_is_bounded() {
    let key = |i: usize| format!("{i}{}", "é".repeat(500));
    let properties: Map<String, Value> = (0..20)
        .map(|i| {
            (
                key(i),
                json!({"type": "integer", "description": "é".repeat(5000)}),
            )
        })
        .collect();
    let object: Map<String, Value> = (0..20)
        .map(|i| (key(i), json!(["é".repeat(50_000)])))
        .collect();
    let raw = Value::Object(object).to_string();
    let message = refused(&raw, &json!({"properties": properties}), &raw);
    assert_eq!(message.matches("\n- at ").count(), 5);
    says(&message, &["- and 15 more", "…"]);
    assert!(
        message.chars().count() < 6000,
        "{}",
        message.chars().count()
    );
    for line in message.lines() {
        for (start, most) in [("  expected: ", 200), ("  value: ", 200)] {
            if let Some(shown) = line.strip_prefix(start) {
                assert_eq!(shown.chars().count(), most);
            }
        }
    }
    let message = refused(&format!("é{}", "é".repeat(5000)), &json!({}), "{}");
    assert!(message.chars().count() < 500, "{message}");
    says(
        &message,
        &["line 1 column 1", &format!("{}…", "é".repeat(199))],
    );
}
