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

#[test]
fn texts_that_were_separate_values_stay_apart() {
    let parts = json!([
        {"type": "input_text", "text": "12"}, {"type": "input_text", "text": "34"},
        {"type": "input_image", "image_url": "data:x"},
    ]);
    let found = messages(&json!([
        {"role": "developer", "content": [{"type": "input_text", "text": "A"}, {"type": "input_text", "text": "B"}]},
        {"role": "user", "content": "Go"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": "x"},
        {"type": "function_call_output", "call_id": "a", "output": parts},
        {"type": "custom_tool_call_output", "call_id": "b", "output": parts},
        {"role": "assistant", "content": [{"type": "output_text", "text": "one "}, {"type": "output_text", "text": "text"}]},
        {"role": "system", "content": [{"type": "input_text", "text": "C"}, {"type": "input_text", "text": "D"}]},
    ]));
    let contents: Vec<&Value> = found.as_array().unwrap().iter().collect();
    let contents = contents.iter().map(|message| message["content"].clone());
    let image = json!({"type": "image_url", "image_url": {"url": "data:x"}});
    assert_eq!(
        contents.collect::<Vec<_>>(),
        [
            json!("A\nB"),
            json!("Go"),
            Value::Null,
            json!("12\n34"),
            json!("12\n34"),
            json!([image, image]),
            json!("one text"),
            json!("C\nD"),
        ]
    );
}

#[test]
fn an_output_before_its_call_comes_after_it() {
    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": [{"type": "input_text", "text": id}]});
    let user = || json!({"role": "user", "content": "Go"});
    for input in [
        json!([user(), output("a"), call("a"), user()]),
        json!([
            user(),
            output("a"),
            user(),
            call("a"),
            call("b"),
            output("b")
        ]),
        json!([
            output("a"),
            user(),
            call("b"),
            call("a"),
            output("b"),
            user()
        ]),
    ] {
        let fields = read(&input).unwrap();
        assert!(fields.unknown_calls.is_empty(), "{input}");
        let found = messages(&input);
        let found = found.as_array().unwrap();
        let at = |role: &str, id: &str| {
            found.iter().position(|message| {
                message["role"] == role
                    && (message["tool_call_id"] == id
                        || message["tool_calls"]
                            .to_string()
                            .contains(&format!("\"id\":\"{id}\"")))
            })
        };
        for id in ["a", "b"] {
            assert_eq!(
                at("assistant", id).is_some(),
                at("tool", id).is_some(),
                "{input}"
            );
            assert!(at("assistant", id) <= at("tool", id), "{found:?}");
        }
    }
}

#[test]
fn what_somebody_else_ran_is_a_text_in_its_place() {
    let cases = [
        (
            json!({"type": "local_shell_call", "call_id": "c", "status": "completed",
                   "action": {"type": "exec", "command": ["ls", "-la"], "env": {"TOKEN": "no"}}}),
            "The client ran a command:\nls -la",
        ),
        (
            json!({"type": "local_shell_call_output", "id": "c", "output": "a.rs\n"}),
            "The output of the client's command:\na.rs",
        ),
        (
            json!({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls", "pwd"]}}),
            "The client ran a command:\nls\npwd",
        ),
        (
            json!({"type": "shell_call_output", "call_id": "c", "output": [
                {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}},
                {"stdout": "", "stderr": "late", "outcome": {"type": "timeout"}}]}),
            "The output of the client's command:\na\nexit status 1\nlate\nIt did not end in time.",
        ),
        (
            json!({"type": "apply_patch_call", "call_id": "c",
                   "operation": {"type": "update_file", "path": "a.rs", "diff": "-a\n+b"}}),
            "The client changed a file with a patch (update_file a.rs):\n-a\n+b",
        ),
        (
            json!({"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such line"}),
            "The result of the client's patch: failed\nno such line",
        ),
        (
            json!({"type": "image_generation_call", "id": "i", "result": "aGVsbG8=", "revised_prompt": "a fox"}),
            "Another service generated an image: a fox",
        ),
        (
            json!({"type": "file_search_call", "id": "f", "queries": ["fox", "den"], "results": [
                {"file_id": "x", "filename": "a.md", "text": "Foxes dig."}]}),
            "Another service searched files for: fox, den\na.md: Foxes dig.",
        ),
        (
            json!({"type": "agent_message", "author": "planner", "content": [{"type": "input_text", "text": "Go on."}]}),
            "A message of another agent planner:\nGo on.",
        ),
        (
            json!({"type": "compaction", "id": "k", "encrypted_content": "c2VjcmV0"}),
            "Another service has shortened the conversation before this point. What it kept cannot be read here.",
        ),
    ];
    let mut all = vec![json!({"role": "user", "content": "Go"})];
    for (item, text) in cases {
        let found = messages(&json!([{"role": "user", "content": "Go"}, item]));
        assert_eq!(found[1], json!({"role": "user", "content": text}));
        all.push(item);
    }
    let notice = read(&json!(all)).unwrap().notice().unwrap();
    assert!(
        notice.message.starts_with("'input[1]' and 9 more items"),
        "{}",
        notice.message
    );
    assert!(read(&json!("Go")).unwrap().notice().is_none());
}
