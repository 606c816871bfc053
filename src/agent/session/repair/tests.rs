use serde_json::{Value, json};

use super::*;

fn message(value: &Value) -> Message {
    Message::parse(&value.to_string()).unwrap()
}

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}})
}

fn calls(ids: &[&str]) -> Value {
    let list: Vec<Value> = ids.iter().map(|id| call(id)).collect();
    json!({"role": "assistant", "content": null, "tool_calls": list})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn repaired(history: &[Value]) -> Vec<Value> {
    repair(history.iter().map(message).collect())
        .iter()
        .map(|message| serde_json::from_str(message.json_str()).unwrap())
        .collect()
}

#[track_caller]
fn check(history: &[Value], expected: &[Value]) {
    let out = repaired(history);
    assert_eq!(out, expected);
    assert_eq!(repaired(&out), expected, "not idempotent");
}

#[test]
fn a_valid_history_is_not_changed() {
    let texts = [
        r#"{"role":"system" , "content":"x"}"#,
        r#"{"role":"user","content":[{"type":"text","text":"null"}]}"#,
        r#"{ "role":"assistant","content":null,"tool_calls":[{"type":"function","id":"a","extra_content":{"g":1.0},"function":{"name":"f","arguments":"{ \"a\": 1 }"}},{"id":"b","type":"custom","custom":{"name":"c","input":"free text"}}]}"#,
        r#"{"role":"tool","tool_call_id":"a","content":""}"#,
        r#"{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"t"}]}"#,
        r#"{"role":"assistant","content":null,"refusal":"no"}"#,
        r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}}"#,
        r#"{"role":"function","name":"f","content":null}"#,
        r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"role":"tool","tool_call_id":"a","content":"again, in another round"}"#,
        r#"{"role":"assistant","content":"done","tool_calls":null}"#,
    ];
    let history: Vec<Message> = texts
        .iter()
        .map(|text| Message::parse(text).unwrap())
        .collect();
    let out = repair(history.clone());
    assert_eq!(out.iter().map(Message::json_str).collect::<Vec<_>>(), texts);
    // The buffers are the same: nothing was copied.
    assert!(
        out.iter()
            .zip(&history)
            .all(|(ours, theirs)| ours.json().as_ptr() == theirs.json().as_ptr())
    );
}

#[test]
fn results_are_put_in_the_order_of_the_calls() {
    check(
        &[calls(&["a", "b"]), result("b", "2"), result("a", "1")],
        &[calls(&["a", "b"]), result("a", "1"), result("b", "2")],
    );
}

#[test]
fn a_result_further_down_is_moved_to_its_call() {
    check(
        &[
            calls(&["a", "b"]),
            result("a", "1"),
            user("hi"),
            result("b", "2"),
        ],
        &[
            calls(&["a", "b"]),
            result("a", "1"),
            result("b", "2"),
            user("hi"),
        ],
    );
}

#[test]
fn a_result_behind_the_next_use_of_its_id_belongs_to_that_use() {
    check(
        &[calls(&["a"]), user("hi"), calls(&["a"]), result("a", "2")],
        &[
            calls(&["a"]),
            result("a", NO_RESULT),
            user("hi"),
            calls(&["a"]),
            result("a", "2"),
        ],
    );
}

#[test]
fn the_first_of_several_results_counts() {
    check(
        &[calls(&["a"]), result("a", "1"), result("a", "2"), user("x")],
        &[calls(&["a"]), result("a", "1"), user("x")],
    );
}

#[test]
fn a_call_without_a_result_gets_a_placeholder() {
    check(
        &[calls(&["a", "b"]), result("b", "2")],
        &[calls(&["a", "b"]), result("a", NO_RESULT), result("b", "2")],
    );
}

#[test]
fn a_result_without_a_call_is_quoted_by_the_user() {
    check(
        &[user("x"), result("z", "42"), calls(&["z"])],
        &[
            user("x"),
            user("Result of an earlier tool call: 42"),
            calls(&["z"]),
            result("z", NO_RESULT),
        ],
    );
}

#[test]
fn missing_ids_are_made_and_results_paired_by_order() {
    let out = repaired(&[
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": {"q": 1}}},
            {"function": {"name": "g", "arguments": {}}, "extra_content": {"signature": "s"}},
        ]}),
        json!({"role": "tool", "name": "f", "content": "1"}),
        json!({"role": "tool", "tool_call_id": "unknown", "content": "2"}),
    ]);
    let ids: Vec<&str> = (0..2)
        .map(|index| out[0]["tool_calls"][index]["id"].as_str().unwrap())
        .collect();
    assert!(ids.iter().all(|id| id.starts_with("call_")));
    assert_ne!(ids[0], ids[1]);
    assert_eq!(
        out,
        [
            json!({"role": "assistant", "content": "", "tool_calls": [
                {"id": ids[0], "type": "function", "function": {"name": "f", "arguments": "{\"q\":1}"}},
                {"id": ids[1], "type": "function", "function": {"name": "g", "arguments": "{}"},
                    "extra_content": {"signature": "s"}},
            ]}),
            json!({"role": "tool", "tool_call_id": ids[0], "name": "f", "content": "1"}),
            json!({"role": "tool", "tool_call_id": ids[1], "content": "2"}),
        ]
    );
}

#[test]
fn a_result_that_names_its_call_goes_before_one_that_does_not() {
    check(
        &[
            calls(&["a", "b"]),
            json!({"role": "tool", "content": "no id"}),
            result("a", "1"),
        ],
        &[
            calls(&["a", "b"]),
            result("a", "1"),
            json!({"role": "tool", "content": "no id", "tool_call_id": "b"}),
        ],
    );
}

#[test]
fn an_id_given_twice_in_one_message_is_replaced_with_its_result() {
    let out = repaired(&[calls(&["a", "a"]), result("a", "1"), result("a", "2")]);
    let second = out[0]["tool_calls"][1]["id"].as_str().unwrap();
    assert_ne!(second, "a");
    assert_eq!(out[1..], [result("a", "1"), result(second, "2")]);
}

#[test]
fn arguments_become_an_object() {
    for (arguments, expected) in [
        (json!(""), "{}"),
        (json!("{\"a\":"), "{}"),
        (json!("[1]"), "{}"),
        (json!("null"), "{}"),
        (json!("{} x"), "{}"),
        (json!({"a": 1}), "{\"a\":1}"),
        (json!(null), "{}"),
        (json!(" {\"a\":1} "), " {\"a\":1} "),
    ] {
        let mut history = calls(&["a"]);
        history["tool_calls"][0]["function"]["arguments"] = arguments.clone();
        let out = repaired(&[history, result("a", "")]);
        assert_eq!(
            out[0]["tool_calls"][0]["function"]["arguments"], expected,
            "{arguments}"
        );
        assert_eq!(out[0]["tool_calls"][0]["function"]["name"], "f");
    }
}

#[test]
fn an_empty_assistant_message_is_dropped() {
    for nothing in [
        json!({"role": "assistant"}),
        json!({"role": "assistant", "content": null}),
        json!({"role": "assistant", "content": ""}),
        json!({"role": "assistant", "content": [], "tool_calls": []}),
        json!({"role": "assistant", "content": null, "refusal": null, "reasoning": ""}),
    ] {
        check(&[user("x"), nothing], &[user("x")]);
    }
    check(
        &[json!({"role": "assistant", "content": "x", "tool_calls": []})],
        &[json!({"role": "assistant", "content": "x"})],
    );
}

#[test]
fn content_is_null_only_beside_calls() {
    check(
        &[
            json!({"role": "user", "content": null}),
            calls(&["a", "b"]),
            json!({"role": "tool", "tool_call_id": "a", "content": null}),
            json!({"role": "tool", "tool_call_id": "b"}),
        ],
        &[
            user(""),
            calls(&["a", "b"]),
            result("a", ""),
            result("b", ""),
        ],
    );
}

#[test]
fn a_repeated_field_is_written_once() {
    let id = "i".repeat(1 << 10);
    let repeated = |field: &str| format!(r#""{field}":null,"#).repeat(1 << 10);
    let history = [
        format!(
            r#"{{"role":"assistant",{}"tool_calls":[{{"id":"{id}","function":{{"name":"f","arguments":"{{}}"}}}},{{"function":{{"name":"g"}}}}]}}"#,
            repeated("tool_calls"),
        ),
        format!(
            r#"{{"role":"tool",{}"tool_call_id":"{id}","content":"1"}}"#,
            repeated("tool_call_id"),
        ),
        format!(
            r#"{{"role":"tool",{}"tool_call_id":"","content":"2"}}"#,
            repeated("tool_call_id"),
        ),
    ];
    let out = repair(
        history
            .iter()
            .map(|text| Message::parse(text).unwrap())
            .collect(),
    );
    assert_eq!(out.len(), 3);
    for (message, text) in out.iter().zip(&history) {
        assert!(message.json().len() < text.len() + 200);
    }
    assert_eq!(out[0].json_str().matches("tool_calls").count(), 1);
    assert_eq!(out[2].json_str().matches("tool_call_id").count(), 1);
}

/// The running time must be linear; quadratic code takes minutes.
#[test]
fn large_invalid_histories_are_repaired_in_linear_time() {
    const MANY: usize = 20_000;
    let parsed = |value: Value| message(&value);
    let ids: Vec<String> = (0..MANY).map(|number| format!("c{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let backwards = || ids.iter().rev().map(|id| parsed(result(id, "r")));
    let without_id = parsed(json!({"role": "tool", "content": "r"}));
    let unknown = parsed(result("unknown", "r"));
    let call_without_id = json!({"function": {"name": "f", "arguments": "{}"}});
    let without_ids =
        parsed(json!({"role": "assistant", "tool_calls": vec![call_without_id; MANY]}));
    let copies = |message: &Message| std::iter::repeat_n(message.clone(), MANY);
    for (history, expected) in [
        // One message with all calls, its results in the wrong order.
        (
            [parsed(calls(&ids))]
                .into_iter()
                .chain(backwards())
                .collect(),
            MANY + 1,
        ),
        // Rounds with all results at the end.
        (
            ids.iter()
                .map(|id| parsed(calls(&[id])))
                .chain(backwards())
                .collect(),
            2 * MANY,
        ),
        // One id in every call.
        (
            copies(&parsed(calls(&["a"])))
                .chain(copies(&parsed(result("a", "r"))))
                .collect(),
            2 * MANY,
        ),
        (
            [parsed(calls(&vec!["a"; MANY]))]
                .into_iter()
                .chain(copies(&parsed(result("a", "r"))))
                .collect(),
            MANY + 1,
        ),
        // Results that can only be assigned by order, of both kinds.
        (
            [without_ids]
                .into_iter()
                .chain((0..MANY).flat_map(|_| [without_id.clone(), unknown.clone()]))
                .collect(),
            2 * MANY + 1,
        ),
        (
            copies(&without_id)
                .chain(copies(&unknown))
                .collect::<Vec<_>>(),
            2 * MANY,
        ),
    ] {
        assert_eq!(repair(history).len(), expected);
    }
}

#[test]
fn a_result_without_a_call_keeps_its_parts() {
    let json = r#"{"role":"tool","tool_call_id":"x","name":"f","content":[{"type":"text","text":"a","y":1.0},{"type":"image_url","image_url":{"url":"data:,"}}],"cache_control":{"type":"ephemeral"}}"#;
    let expected = r#"{"role":"user","content":[{"type":"text","text":"Result of an earlier tool call: a","y":1.0},{"type":"image_url","image_url":{"url":"data:,"}}],"cache_control":{"type":"ephemeral"}}"#;
    let repaired = repair(vec![Message::parse(json).unwrap()]);
    assert_eq!(repaired[0].json_str(), expected);
}
