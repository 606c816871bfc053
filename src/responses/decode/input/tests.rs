use serde_json::{Value, json};

use super::*;

fn read(input: &Value) -> Result<InputFields, RequestError> {
    let body = json!({"input": input}).to_string();
    InputFields::read(
        &RawObject::parse(&body).unwrap(),
        &KnownHistory::default(),
        false,
    )
}

fn messages(input: &Value) -> Value {
    let fields = read(input).unwrap();
    let parse = |message: &String| serde_json::from_str::<Value>(message).unwrap();
    fields.messages.iter().map(parse).collect()
}

#[test]
fn a_text_is_a_message_of_the_user() {
    assert_eq!(
        messages(&json!("Hi")),
        json!([{"role": "user", "content": "Hi"}])
    );
    let parts = json!([{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]);
    assert_eq!(messages(&parts), json!([{"role": "user", "content": "Hi"}]));
}

#[test]
fn leading_instructions_are_joined() {
    let found = messages(&json!([
        {"role": "developer", "content": "a"},
        {"role": "system", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "user", "content": "Hi"},
        {"role": "developer", "content": "c"},
    ]));
    assert_eq!(
        found,
        json!([
            {"role": "system", "content": "a\n\nb"},
            {"role": "user", "content": "Hi"},
            {"role": "system", "content": "c"},
        ])
    );
}

#[test]
fn a_round_is_one_assistant_message() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let found = messages(&json!([
        {"role": "user", "content": "Go"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Wait.", "annotations": []}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": [
            {"type": "input_text", "text": "2"}, {"type": "input_image", "image_url": "data:x"}]},
        {"type": "message", "role": "assistant", "content": "Done."},
    ]));
    assert_eq!(
        found,
        json!([
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": "Wait.", "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]},
            {"role": "assistant", "content": "Done."},
        ])
    );
}

#[test]
fn hosted_calls_without_a_record_are_rebuilt() {
    let found = messages(&json!([
        {"role": "user", "content": "Go"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "loopwright", "name": "t", "arguments": "{}", "output": "r"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "message", "role": "assistant", "content": "Done."},
    ]));
    let names = |message: &Value| message["tool_calls"][0]["function"]["name"].clone();
    assert_eq!(names(&found[1]), "t");
    assert_eq!(
        found[1]["tool_calls"][1]["function"]["arguments"],
        r#"{"query":"q"}"#
    );
    assert_eq!(found[2]["content"], "r");
    assert_eq!(found[3]["tool_call_id"], "ws_1");
    assert_eq!(found[4]["content"], "Done.");
}

#[test]
fn an_output_without_its_call_is_noted() {
    let fields = read(&json!([{"type": "function_call_output", "call_id": "x", "output": "1"}]));
    assert_eq!(fields.unwrap().unknown_calls, ["x"]);
}

#[test]
fn errors_name_the_item() {
    for (input, param) in [
        (Value::Null, "input"),
        (json!(""), "input"),
        (json!([]), "input"),
        (json!(3), "input"),
        (json!([3]), "input[0]"),
        (json!([{"content": "x"}]), "input[0]"),
        (json!([{"role": "user"}]), "input[0]"),
        (json!([{"role": "robot", "content": "x"}]), "input[0].role"),
        (json!([{"type": "computer_call"}]), "input[0]"),
        (
            json!([{"type": "function_call", "name": "f", "arguments": ""}]),
            "input[0].call_id",
        ),
        (json!([{"type": "item_reference", "id": "x"}]), "input"),
        (
            json!([{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]),
            "input[0].content[0].file_id",
        ),
        (
            json!([{"role": "user", "content": [{"type": "video"}]}]),
            "input[0].content[0].type",
        ),
    ] {
        let error = read(&input).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{input}");
    }
}

#[test]
fn in_a_session_a_response_is_one_message() {
    let input = json!([
        {"role": "user", "content": "Go"},
        {"type": "message", "role": "assistant", "content": "Wait."},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "loopwright", "name": "t", "arguments": "{}"},
        {"type": "item_reference", "id": "msg_a_2"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    ]);
    let referred = json!({"type": "message", "role": "assistant", "content": "And?"}).to_string();
    let mut known = KnownHistory::default();
    known.items.insert(
        "msg_a_2".to_owned(),
        serde_json::from_str(&referred).unwrap(),
    );
    let body = json!({"input": input}).to_string();
    let found = InputFields::read(&RawObject::parse(&body).unwrap(), &known, true).unwrap();
    assert_eq!(found.messages.len(), 2);
    let message: Value = serde_json::from_str(&found.messages[1]).unwrap();
    assert_eq!(message["content"], "Wait.\n\nAnd?");
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 1);
}
