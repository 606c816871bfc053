mod cost;

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tools::schema::SchemaCache;

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
            assert_eq!((repaired.text.as_str(), repaired.repairs.len()), ("{}", 0));
        }
        says(
            &refused(raw, &search_schema(), "{}"),
            &["\"query\" is a required property"],
        );
    }
}

#[test]
fn what_stands_around_an_object_is_taken_off() {
    use Repair::{CodeFenceRemoved, DoubleEncodingRemoved};
    let object = json!({"query": "a ``` b"});
    let plain = object.to_string();
    let encoded = |text: &str| Value::from(text).to_string();
    let schema = search_schema();
    for fenced in [
        format!("```json\n{plain}\n```"),
        format!("```\n{plain}\n```\n"),
        format!(" ```JSON {plain}```"),
        format!("```{plain}```"),
        format!("```json\n{plain}"),
    ] {
        mended(&fenced, &schema, &object, &[CodeFenceRemoved]);
        mended(
            &encoded(&fenced),
            &schema,
            &object,
            &[DoubleEncodingRemoved, CodeFenceRemoved],
        );
        let fenced_string = format!("```\n{}\n```", encoded(&plain));
        mended(
            &fenced_string,
            &schema,
            &object,
            &[CodeFenceRemoved, DoubleEncodingRemoved],
        );
    }
    mended(&encoded(&plain), &schema, &object, &[DoubleEncodingRemoved]);
    mended(
        &encoded(&encoded(&plain)),
        &schema,
        &object,
        &[DoubleEncodingRemoved],
    );
    mended(r#""""#, &json!({}), &json!({}), &[DoubleEncodingRemoved]);
    assert_eq!(repair_arguments(&encoded(&plain), None).text, plain);
}

#[test]
fn a_text_that_was_cut_off_is_closed() {
    for (raw, closed) in [
        (
            r#"{"a": {"b": [1, {"c": "x"#,
            r#"{"a":{"b":[1,{"c":"x"}]}}"#,
        ),
        (r#"{"a": 1"#, r#"{"a":1}"#),
        (r#"{"a": 1, "#, r#"{"a":1}"#),
        (r#"{"a": [1,"#, r#"{"a":[1]}"#),
        (r#"{"a": 1, "b":"#, r#"{"a":1,"b":null}"#),
        (r#"{"a": 1, "b" : "#, r#"{"a":1,"b":null}"#),
        (r#"{"a": "x]}\"{"#, r#"{"a":"x]}\"{"}"#),
        (r#"{"a": "x\"#, r#"{"a":"x"}"#),
        (r#"{"a": "x\u00e"#, r#"{"a":"x"}"#),
        (r#"{"a": "x\u00e9"#, r#"{"a":"xé"}"#),
        (r#"{"a": "x,"#, r#"{"a":"x,"}"#),
        (r#"{"a": "x:"#, r#"{"a":"x:"}"#),
        ("{", "{}"),
        (r#""{\"a\": 1"#, r#"{"a":1}"#),
    ] {
        let repaired = repair_arguments(raw, None);
        assert_eq!(repaired.text, closed, "{raw}");
        assert!(repaired.repairs.contains(&Repair::TruncationFixed), "{raw}");
        assert_eq!(
            Value::Object(repaired.arguments.unwrap()).to_string(),
            closed
        );
    }
}

#[test]
fn a_text_that_closing_does_not_mend_is_refused() {
    for raw in [
        r#"{"a": tru"#,
        r#"{"a": 1, "b"#,
        r#"{"a": 1, "b""#,
        r#"{"a": -"#,
        r#"{"a": [1}"#,
        r#"{"a": 1}}"#,
        r#"{"a": 1,}"#,
        r#"{"a": 1} {"b""#,
        "{'a': 1",
        "[1, 2",
        "tru",
        "```json",
    ] {
        let repaired = repair_arguments(raw, None);
        assert_eq!(
            (repaired.text.as_str(), repaired.repairs.len()),
            ("{}", 0),
            "{raw}"
        );
        let message = repaired.arguments.expect_err(raw).message;
        says(
            &message,
            &["not valid JSON", "line 1 column", raw, "not run"],
        );
    }
}

#[test]
fn a_text_that_was_cut_off_must_fit_when_closed() {
    let schema = search_schema();
    let fixed = [Repair::TruncationFixed];
    mended(
        r#"{"query": "some te"#,
        &schema,
        &json!({"query": "some te"}),
        &fixed,
    );
    mended(
        r#"{"query": "x", "count":"#,
        &schema,
        &json!({"query": "x"}),
        &[Repair::TruncationFixed, Repair::NullStripped],
    );
    for raw in [
        r#"{"count": 3"#,
        r#"{"query":"#,
        r#"{"query": "x", "options": {"site": "a"#,
    ] {
        says(
            &refused(raw, &schema, "{}"),
            &["cut off", "line 1 column", raw, "smaller calls"],
        );
    }
}

#[test]
fn a_wrapper_is_taken_off_where_the_schema_knows_none() {
    let schema = search_schema();
    let wrapped = [Repair::WrapperRemoved];
    for key in ["arguments", "parameters", "input"] {
        let raw = json!({key: {"query": "x"}}).to_string();
        mended(&raw, &schema, &json!({"query": "x"}), &wrapped);
    }
    mended(
        r#"{"arguments": "{\"query\": \"x\"}"}"#,
        &schema,
        &json!({"query": "x"}),
        &[Repair::WrapperRemoved, Repair::DoubleEncodingRemoved],
    );
    mended(
        r#"{"input": {"query": "x", "count": "3"}}"#,
        &schema,
        &json!({"query": "x", "count": 3}),
        &[Repair::WrapperRemoved, Repair::StringToNumber],
    );
    for raw in [
        r#"{"args":{"query":"x"}}"#,
        r#"{"input":{"query":"x"},"count":1}"#,
        r#"{"input":{"count":1}}"#,
        r#"{"input":["x"]}"#,
    ] {
        refused(raw, &schema, raw);
    }
    let own =
        json!({"properties": {"input": {"type": "object", "required": ["a"]}}, "required": ["b"]});
    refused(r#"{"input":{"b":1}}"#, &own, r#"{"input":{"b":1}}"#);
}

#[test]
fn nulls_for_optional_fields_are_left_out() {
    let schema = search_schema();
    mended(
        r#"{"query":"x","count":null,"options":{"n":1,"site":null,"after":null},"more":null,"either":null}"#,
        &schema,
        &json!({"query": "x", "options": {"n": 1, "after": null}, "either": null}),
        &[Repair::NullStripped],
    );
    let listed = json!({"properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}},
        "$defs": {"row": {"properties": {"a": {"enum": [1, 2]}, "b": {}}}}});
    mended(
        r#"{"rows":[{"a":null,"b":null},{"a":1}]}"#,
        &listed,
        &json!({"rows": [{"b": null}, {"a": 1}]}),
        &[Repair::NullStripped],
    );
    let raw = r#"{"query":null}"#;
    says(
        &refused(raw, &schema, raw),
        &["at /query", "value: null", "instead of null"],
    );
    let raw = r#"{"query":"x","options":{"n":null}}"#;
    says(&refused(raw, &schema, raw), &["at /options/n"]);
}

#[test]
fn values_of_a_neighbouring_type_are_converted() {
    use Repair::{
        BareStringToArray, DoubleEncodingRemoved, EmptyStringRemoved, JsonStringToArray,
        ObjectToArray, StringToBoolean, StringToNumber,
    };
    let schema = search_schema();
    for (key, value, expected, repair) in [
        (
            "tags",
            json!("[\"a\", \"b\"]"),
            json!(["a", "b"]),
            JsonStringToArray,
        ),
        ("tags", json!(" [] "), json!([]), JsonStringToArray),
        ("tags", json!({}), json!([]), ObjectToArray),
        ("tags", json!("a, b"), json!(["a, b"]), BareStringToArray),
        (
            "tags",
            json!("[draft] a"),
            json!(["[draft] a"]),
            BareStringToArray,
        ),
        ("either", json!("[1]"), json!([1]), JsonStringToArray),
        ("count", json!("3"), json!(3), StringToNumber),
        (
            "count",
            json!("18446744073709551615"),
            json!(u64::MAX),
            StringToNumber,
        ),
        ("ratio", json!("-3"), json!(-3), StringToNumber),
        ("ratio", json!("0.25"), json!(0.25), StringToNumber),
        ("ratio", json!("-1.50"), json!(-1.5), StringToNumber),
        ("deep", json!("true"), json!(true), StringToBoolean),
        ("deep", json!("false"), json!(false), StringToBoolean),
        (
            "options",
            json!("{\"n\": 1}"),
            json!({"n": 1}),
            DoubleEncodingRemoved,
        ),
    ] {
        let raw = json!({"query": "x", key: value}).to_string();
        mended(
            &raw,
            &schema,
            &json!({"query": "x", key: expected}),
            &[repair],
        );
    }
    for key in ["options", "tags"] {
        let raw = json!({"query": "x", key: ""}).to_string();
        mended(&raw, &schema, &json!({"query": "x"}), &[EmptyStringRemoved]);
    }
}

#[test]
fn values_that_could_mean_something_else_are_refused() {
    let schema = search_schema();
    for (key, value, hint) in [
        ("count", json!("007"), "without quotes"),
        ("count", json!("1e5"), "without quotes"),
        ("count", json!("3.0"), "without quotes"),
        ("count", json!("+3"), "without quotes"),
        ("count", json!("-0"), "without quotes"),
        ("count", json!("three"), "without quotes"),
        ("count", json!(""), "without quotes"),
        ("count", json!("0"), "without quotes"),
        ("count", json!("18446744073709551616"), "without quotes"),
        ("ratio", json!("1e5"), "without quotes"),
        ("ratio", json!("00.5"), "without quotes"),
        ("ratio", json!(".5"), "without quotes"),
        ("ratio", json!("1."), "without quotes"),
        ("ratio", json!("NaN"), "without quotes"),
        ("ratio", json!("inf"), "without quotes"),
        ("ratio", json!("0.10000000000000000001"), "without quotes"),
        ("deep", json!("True"), "true or false"),
        ("deep", json!("1"), "true or false"),
        ("deep", json!("yes"), "true or false"),
        ("tags", json!("['a', 'b']"), "not a string"),
        ("tags", json!("[1]"), "not a string"),
        ("tags", json!({"a": "b"}), "not an object"),
        ("tags", json!(3), "a JSON array"),
        ("options", json!("x"), "a JSON object"),
        ("options", json!({}), "missing field \"n\""),
        ("query", json!(3), "a JSON string"),
    ] {
        let mut object = json!({"query": "x"});
        object[key] = value.clone();
        let raw = object.to_string();
        let message = refused(&raw, &schema, &raw);
        says(
            &message,
            &[&format!("at /{key}: "), &format!("value: {value}\n"), hint],
        );
    }
    // A required field stays, so that the model hears of it.
    let required = json!({"properties": {"o": {"type": "object"}}, "required": ["o"]});
    refused(r#"{"o":""}"#, &required, r#"{"o":""}"#);
}

#[test]
fn a_path_is_taken_out_of_a_link() {
    let schema = search_schema();
    let found = [Repair::MdLinkUnwrapped];
    for (link, path) in [
        ("[a/b.md](http://a/b.md)", "a/b.md"),
        ("[b.md](https://example.com/a/b.md)", "b.md"),
        ("[/etc/hosts](https:///etc/hosts)", "/etc/hosts"),
    ] {
        let raw = json!({"query": link, "path": link}).to_string();
        mended(&raw, &schema, &json!({"query": link, "path": path}), &found);
        let hinted = json!({"properties": {"f": {"type": "string", "maxLength": 10, "format": "absolute_path"}}});
        let raw = json!({"f": link}).to_string();
        mended(&raw, &hinted, &json!({"f": path}), &found);
    }
    mended(
        r#"{"query": "x", "paths": "[\"[a](http://a)\"]", "dir": null}"#,
        &schema,
        &json!({"query": "x", "paths": ["[a](http://a)"]}),
        &[Repair::NullStripped, Repair::JsonStringToArray],
    );
    for link in [
        "[b.md](http://example.com/ab.md)",
        "[x](ftp://x)",
        "see [x](http://x)",
        "[](http://)",
    ] {
        let raw = json!({"path": link, "query": "x"}).to_string();
        refused(&raw, &schema, &raw);
    }
}

#[test]
fn several_repairs_are_listed_once_in_their_order() {
    mended(
        "```json\n{\"query\":\"x\",\"count\":\"1\",\"ratio\":\"2\",\"tags\":\"a\",\"deep\":null,\"either\":{}\n",
        &search_schema(),
        &json!({"query": "x", "count": 1, "ratio": 2, "tags": ["a"], "either": []}),
        &[
            Repair::CodeFenceRemoved,
            Repair::TruncationFixed,
            Repair::NullStripped,
            Repair::StringToNumber,
            Repair::ObjectToArray,
            Repair::BareStringToArray,
        ],
    );
    // What a first fix brings to light is fixed too.
    let nested = json!({"properties": {"n": {"type": "array", "items": {"type": "integer"}}}});
    mended(
        r#"{"n": "[\"1\", \"2\"]"}"#,
        &nested,
        &json!({"n": [1, 2]}),
        &[Repair::JsonStringToArray, Repair::StringToNumber],
    );
}

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
        for (start, most) in [("  expected: ", 300), ("  value: ", 200)] {
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

#[test]
fn json_that_is_no_object_is_refused() {
    for (raw, kind) in [
        ("[{\"a\":1}]", "an array"),
        ("null", "null"),
        ("7", "a number"),
        ("true", "a boolean"),
        ("\"hello\"", "a string"),
    ] {
        let message = refused(raw, &json!({}), "{}");
        says(
            &message,
            &[&format!("must be a JSON object, not {kind}"), raw],
        );
    }
}

#[test]
fn an_object_that_was_unpacked_but_does_not_fit_stays_visible() {
    let repaired = repair("```json\n{\"query\": 3}\n```", &search_schema());
    assert_eq!(repaired.text, r#"{"query":3}"#);
    assert_eq!(repaired.repairs, [Repair::CodeFenceRemoved]);
    says(&repaired.arguments.unwrap_err().message, &["at /query"]);
}

#[test]
fn deep_nesting_and_large_texts_are_survived() {
    for open in ["[", "{\"a\":", "[{\"a\":", "\"[", "```"] {
        let raw = open.repeat(100_000);
        let repaired = repair_arguments(&raw, None);
        assert!(repaired.arguments.is_err());
        assert_eq!(repaired.text, "{}");
    }
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(120), "]".repeat(120));
    assert_eq!(repair(&deep, &json!({"type": "object"})).text, deep);
    let recursive = json!({"anyOf": [{"anyOf": [{"anyOf": [{"anyOf": [{"anyOf": [{"anyOf": [
        {"anyOf": [{"type": "object"}]}]}]}]}]}]}], "additionalProperties": {"$ref": "#"}, "items": {"$ref": "#"}});
    let deep = format!("{}1{}", "{\"a\":".repeat(126), "}".repeat(126));
    says(&refused(&deep, &recursive, &deep), &["nested too deep"]);
}

#[test]
fn a_very_large_text_is_checked_but_not_mended() {
    let long = "x".repeat(MAX_REPAIRED_BYTES);
    let schema = search_schema();
    let usable = json!({"query": long}).to_string();
    assert_eq!(repair(&usable, &schema).arguments.unwrap()["query"], long);
    let mendable = json!({"query": long, "count": "3"}).to_string();
    says(&refused(&mendable, &schema, &mendable), &["at /count"]);
    says(
        &refused(&format!("{{\"query\": \"{long}"), &schema, "{}"),
        &["not valid JSON"],
    );
    says(
        &refused(&json!([long]).to_string(), &schema, "{}"),
        &["not an array"],
    );
}

#[test]
fn words_on_the_wire_are_distinct() {
    use Repair::*;
    let all = [
        TruncationFixed,
        NullStripped,
        JsonStringToArray,
        ObjectToArray,
        BareStringToArray,
        MdLinkUnwrapped,
        StringToNumber,
        StringToBoolean,
        DoubleEncodingRemoved,
        CodeFenceRemoved,
        WrapperRemoved,
        EmptyStringRemoved,
    ];
    let words: std::collections::HashSet<_> = all.iter().map(|repair| repair.as_str()).collect();
    assert_eq!(words.len(), all.len());
    for repair in all {
        // The word is the variant's name in snake case.
        let plain = repair.as_str().replace('_', "");
        assert_eq!(plain, format!("{repair:?}").to_lowercase());
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c\\[\\]{}\"0-9]{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["", "3", "true", "[1]", "{}", "[x](http://x)"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            any_object_of(inner),
        ]
    })
}

fn any_object_of(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec!["a", "b", "path", "input", "arguments"]);
    prop::collection::btree_map(keys, values, 0..4).prop_map(|entries| {
        Value::Object(
            entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        )
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let types = vec![
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];
    let leaf = prop_oneof![
        Just(json!({})),
        prop::sample::select(types.clone()).prop_map(|name| json!({"type": name})),
        prop::sample::subsequence(types, 1..3).prop_map(|names| json!({"type": names})),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let object = (
            any_object_of(inner.clone()),
            any::<bool>(),
            prop::sample::subsequence(vec!["a", "b"], 0..=2),
        )
            .prop_map(|(properties, open, required)| {
                json!({"type": "object", "properties": properties, "required": required,
                    "additionalProperties": open})
            });
        prop_oneof![
            4 => object,
            1 => inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            1 => prop::collection::vec(inner, 1..3).prop_map(|branches| json!({"anyOf": branches})),
        ]
    })
}

/// A schema that the value surely fits.
fn schema_of(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let properties: Map<_, _> = entries
                .iter()
                .map(|(key, value)| (key.clone(), schema_of(value)))
                .collect();
            json!({"type": "object", "properties": properties, "additionalProperties": false})
        }
        Value::Array(_) => json!({"type": "array"}),
        other => json!({"enum": [other]}),
    }
}

proptest! {
    #[test]
    fn usable_objects_never_change(
        object in any_object_of(any_value()), other in any_schema(), own in any::<bool>(), pretty in any::<bool>(),
    ) {
        let schema = if own { schema_of(&object) } else { other };
        let compiled = compiled(&schema);
        let raw = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
        let repaired = repair_arguments(&raw, Some(&compiled));
        if compiled.is_valid(&object) {
            prop_assert_eq!(repaired.arguments.map(Value::Object), Ok(object));
            prop_assert_eq!(repaired.text, raw);
            prop_assert_eq!(repaired.repairs, []);
        } else {
            prop_assert!(!own, "the schema is one that the object fits");
            // Changed or not, what is accepted fits and is what the history holds; what is refused stays.
            match repaired.arguments {
                Ok(arguments) => {
                    let value = Value::Object(arguments);
                    prop_assert!(compiled.is_valid(&value));
                    prop_assert!(!repaired.repairs.is_empty());
                    prop_assert_eq!(value.to_string(), repaired.text);
                }
                Err(_) => {
                    prop_assert_eq!(repaired.text, raw);
                    prop_assert_eq!(repaired.repairs, []);
                }
            }
        }
    }

    #[test]
    fn any_text_gives_the_text_of_an_object(
        raw in prop_oneof![".*", "[\\[\\]{}\"\\\\:,`a1 \\n]{0,40}", "```(json)?\\PC{0,20}"], schema in any_schema(),
    ) {
        for schema in [None, Some(compiled(&schema))] {
            let repaired = repair_arguments(&raw, schema.as_deref());
            let text: Result<Map<String, Value>, _> = serde_json::from_str(&repaired.text);
            prop_assert!(text.is_ok(), "{}", repaired.text);
            let words: std::collections::HashSet<_> = repaired.repairs.iter().collect();
            prop_assert_eq!(words.len(), repaired.repairs.len());
            if let Ok(arguments) = repaired.arguments {
                prop_assert_eq!(Ok(arguments), text.map_err(|error| error.to_string()));
            }
        }
    }

    #[test]
    fn a_text_cut_anywhere_is_never_made_into_something_unfit(
        object in any_object_of(any_value()), at in any::<prop::sample::Index>(), schema in any_schema(),
    ) {
        let whole = object.to_string();
        let raw: String = whole.chars().take(at.index(whole.chars().count())).collect();
        let compiled = compiled(&schema);
        let repaired = repair_arguments(&raw, Some(&compiled));
        match repaired.arguments {
            Ok(arguments) => prop_assert!(compiled.is_valid(&Value::Object(arguments))),
            Err(_) => prop_assert_eq!(repaired.text, "{}"),
        }
    }
}
