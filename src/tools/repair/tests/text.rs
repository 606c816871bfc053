//! Repairs of the text around and at the end of an object, and texts that are none.

use super::*;

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
    for nothing in ["", " \n"] {
        mended(nothing, &json!({}), &json!({}), &[Repair::EmptyToObject]);
    }
    assert_eq!(repair_arguments(&encoded(&plain), None).text, plain);
}

#[test]
fn a_text_that_ends_after_a_whole_value_is_closed() {
    for (raw, closed) in [
        (
            r#"{"a": {"b": [1, {"c": "x""#,
            r#"{"a":{"b":[1,{"c":"x"}]}}"#,
        ),
        (r#"{"city":"Oslo""#, r#"{"city":"Oslo"}"#),
        ("{\"city\":\"Oslo\" \n\t", r#"{"city":"Oslo"}"#),
        (r#"{"a": "x]}\"{""#, r#"{"a":"x]}\"{"}"#),
        (r#"{"a": "x\\""#, r#"{"a":"x\\"}"#),
        (r#"{"a": "\u00e9""#, r#"{"a":"é"}"#),
        (r#"{"a": true"#, r#"{"a":true}"#),
        (r#"{"a": [null"#, r#"{"a":[null]}"#),
        (r#"{"a": [{"b": 1}"#, r#"{"a":[{"b":1}]}"#),
        (r#"{"a": [[]"#, r#"{"a":[[]]}"#),
        // White space ends a number.
        ("{\n  \"a\": 12\n", r#"{"a":12}"#),
        ("{\"a\": [1, 2 ", r#"{"a":[1,2]}"#),
        ("```json\n{\"a\": 12\n```", r#"{"a":12}"#),
        ("```json\n{\"a\": \"x\"\n", r#"{"a":"x"}"#),
        (r#""{\"a\": \"x\"""#, r#"{"a":"x"}"#),
        (r#""```{\"a\": \"x\"```""#, r#"{"a":"x"}"#),
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
fn a_text_that_ends_inside_a_value_or_before_one_is_refused() {
    let encoded = |text: &str| Value::from(text).to_string();
    let cut = [
        // A string, and an escape in it.
        r#"{"a": {"b": [1, {"c": "x"#,
        r#"{"path":"app.conf","content":"[server]\nport = 80"#,
        r#"{"a": ""#,
        r#"{"a": "x\"#,
        r#"{"a": "x\\\"#,
        r#"{"a": "x\u00e"#,
        r#"{"a": "x\u00e9"#,
        r#"{"a": "x\ud83d"#,
        r#"{"a": "x\ud83d\u"#,
        r#"{"a": "x,"#,
        r#"{"a": "x}"#,
        r#"{"a": "x\""#,
        // A number.
        r#"{"n":12"#,
        r#"{"n":12.5"#,
        r#"{"a": [1,2"#,
        r#"{"a": -"#,
        r#"{"a": -0"#,
        r#"{"a": 1."#,
        r#"{"a": 1e"#,
        r#"{"a": 1e+"#,
        r#"{"a": 1e5"#,
        // A word.
        r#"{"a": t"#,
        r#"{"a": [tru"#,
        r#"{"a": fals"#,
        r#"{"a": n"#,
        // A key, or a value that was to come.
        r#"{"a": 1, "b"#,
        r#"{"a": 1, "b""#,
        r#"{"a": 1, "b":"#,
        r#"{"a": 1, "b" : "#,
        r#"{"a": 1,"#,
        r#"{"a": 1, "#,
        r#"{"a": "x", "#,
        r#"{"a": ["x","#,
        "{",
        r#"{"a": {"#,
        r#"{"a": ["#,
        "[1, 2",
        // A JSON string.
        r#""{\"a\": 1"#,
        r#""{\"a\": \"x\"}"#,
    ];
    let layered = cut.iter().flat_map(|raw| {
        [
            (*raw).to_owned(),
            format!("```json\n{raw}"),
            encoded(raw),
            encoded(&format!("```\n{raw}")),
        ]
    });
    let with_end = cut.iter().filter(|raw| !raw.ends_with(char::is_whitespace));
    let fenced = with_end.map(|raw| format!("```json\n{raw}```"));
    let plain = ["[1, 2 ", r#"["a""#, "tru", "-"].map(str::to_owned);
    for raw in layered.chain(fenced).chain(plain) {
        let message = refused(&raw, &json!({}), "{}");
        says(&message, &["cut off", "not run", "Call the tool again"]);
    }
}

#[test]
fn a_value_that_was_cut_off_in_a_wrapper_is_not_completed() {
    let schema = search_schema();
    for key in ["arguments", "parameters", "input"] {
        mended(
            &format!(r#"{{"{key}": {{"query": "x""#),
            &schema,
            &json!({"query": "x"}),
            &[Repair::TruncationFixed, Repair::WrapperRemoved],
        );
        for inside in [r#"{"query": "x"#, r#"{"query": "x", "count": 1"#] {
            refused(&format!(r#"{{"{key}": {inside}"#), &schema, "{}");
            let raw = json!({key: inside}).to_string();
            refused(&raw, &schema, &raw);
        }
    }
    // The beginning of an array is not a text for an array.
    for inside in [r#"["a", "b"#, r#"["a""#, "["] {
        let raw = json!({"query": "x", "tags": inside}).to_string();
        says(&refused(&raw, &schema, &raw), &["at /tags"]);
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
    mended(
        r#"{"query": "some text""#,
        &schema,
        &json!({"query": "some text"}),
        &[Repair::TruncationFixed],
    );
    for raw in [
        r#"{"options": {"n": 3}"#,
        r#"{"query":"#,
        r#"{"query": "x", "options": {"site": "a""#,
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
