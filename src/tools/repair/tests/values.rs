//! Repairs of single values.

use super::*;

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
    // A required field stays, so that the error names it.
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
