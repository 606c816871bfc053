//! What a strict model server refuses in a chat request: the protocol invariants that loopwright must keep.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Fields that belong to loopwright and must never reach a model server.
const OWN_FIELDS: [&str; 7] = [
    "session_id",
    "max_tool_rounds",
    "enable_code_execution",
    "files",
    "agent_permission",
    "code_execution_permission",
    "agent",
];

/// Everything that is wrong with a request, in words.
pub(crate) fn violations(body: &Value) -> Vec<String> {
    let Some(body) = body.as_object() else {
        return vec!["the body is not a JSON object".to_owned()];
    };
    let mut found = Vec::new();
    for field in OWN_FIELDS {
        if body.contains_key(field) {
            found.push(format!("loopwright's own field `{field}` came along"));
        }
    }
    if body.get("model").and_then(Value::as_str).is_none() {
        found.push("`model` is missing".to_owned());
    }
    let streams = body.get("stream") == Some(&Value::Bool(true));
    if body.contains_key("stream_options") && !streams {
        found.push("`stream_options` without `stream`".to_owned());
    }
    check_tools(body, &mut found);
    match body.get("messages").and_then(Value::as_array) {
        Some(messages) if !messages.is_empty() => check_messages(messages, &mut found),
        _ => found.push("`messages` is not a list with messages".to_owned()),
    }
    found
}

fn check_tools(body: &Map<String, Value>, found: &mut Vec<String>) {
    let Some(tools) = body.get("tools").filter(|tools| !tools.is_null()) else {
        for field in ["tool_choice", "parallel_tool_calls"] {
            if body.get(field).is_some_and(|value| !value.is_null()) {
                found.push(format!("`{field}` without `tools`"));
            }
        }
        return;
    };
    let Some(tools) = tools.as_array().filter(|tools| !tools.is_empty()) else {
        found.push("`tools` is not a list with tools".to_owned());
        return;
    };
    let mut names = HashSet::new();
    for tool in tools {
        match tool["type"].as_str() {
            Some("function") => check_function(&tool["function"], &mut names, found),
            Some(_) => {}
            None => found.push(format!("a tool without a type: {tool}")),
        }
    }
    let choice = body.get("tool_choice").unwrap_or(&Value::Null);
    if let Some(name) = choice["function"]["name"].as_str()
        && !names.contains(name)
    {
        found.push(format!(
            "`tool_choice` names `{name}`, which is not offered"
        ));
    }
}

fn check_function<'a>(function: &'a Value, names: &mut HashSet<&'a str>, found: &mut Vec<String>) {
    let name = function["name"].as_str().unwrap_or_default();
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(valid) {
        found.push(format!("`{name}` is no name for a function"));
    }
    if !names.insert(name) {
        found.push(format!("the function `{name}` is offered twice"));
    }
    if !matches!(function["parameters"], Value::Null | Value::Object(_)) {
        found.push(format!("the parameters of `{name}` are not an object"));
    }
}

fn check_messages(messages: &[Value], found: &mut Vec<String>) {
    let mut seen = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (position, message) in messages.iter().enumerate() {
        let mut wrong = |text: String| found.push(format!("messages[{position}]: {text}"));
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            check_result(message, &mut open, &mut wrong);
            continue;
        }
        for id in open.drain(..) {
            wrong(format!("the call `{id}` before it was not answered"));
        }
        match role {
            "assistant" => open = check_assistant(message, &mut seen, &mut wrong),
            "system" | "developer" | "user" if !has_content(message) => {
                wrong(format!("a {role} message without content"));
            }
            "system" | "developer" | "user" => {}
            other => wrong(format!("the role `{other}`")),
        }
    }
    for id in open {
        found.push(format!("the call `{id}` at the end was not answered"));
    }
}

fn check_result(message: &Value, open: &mut Vec<&str>, wrong: &mut impl FnMut(String)) {
    let id = message["tool_call_id"].as_str().unwrap_or_default();
    if !matches!(message["content"], Value::String(_) | Value::Array(_)) {
        wrong(format!("the result of `{id}` has no content"));
    }
    match open.iter().position(|waiting| *waiting == id) {
        Some(0) => {
            open.remove(0);
        }
        Some(place) => {
            wrong(format!("the result of `{id}` is out of order"));
            open.remove(place);
        }
        None => wrong(format!("the result of `{id}` answers no call before it")),
    }
}

/// Checks an assistant message and says which calls now wait for their results.
fn check_assistant<'a>(
    message: &'a Value,
    seen: &mut HashSet<&'a str>,
    wrong: &mut impl FnMut(String),
) -> Vec<&'a str> {
    let calls = match &message["tool_calls"] {
        Value::Null => [].as_slice(),
        Value::Array(calls) if !calls.is_empty() => calls.as_slice(),
        _ => {
            wrong("`tool_calls` is not a list with calls".to_owned());
            [].as_slice()
        }
    };
    let says = ["refusal", "audio", "function_call"]
        .iter()
        .any(|field| !message[field].is_null());
    if calls.is_empty() && !has_content(message) && !says {
        wrong("an empty assistant message".to_owned());
    }
    let mut open = Vec::new();
    for call in calls {
        let id = call["id"].as_str().unwrap_or_default();
        if id.is_empty() {
            wrong("a call without an id".to_owned());
        }
        if !seen.insert(id) {
            wrong(format!("the call id `{id}` is used twice"));
        }
        open.push(id);
        if call["type"] != "function" {
            continue;
        }
        if call["function"]["name"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
        {
            wrong(format!("the call `{id}` has no name"));
        }
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        if serde_json::from_str::<Map<String, Value>>(arguments).is_err() {
            wrong(format!(
                "the arguments of `{id}` are no JSON object: {arguments}"
            ));
        }
    }
    open
}

fn has_content(message: &Value) -> bool {
    match &message["content"] {
        Value::String(text) => !text.is_empty(),
        Value::Array(parts) => !parts.is_empty(),
        _ => false,
    }
}
