//! What section 6 of the wire contract promises to a tool server about every call.

use http::Method;
use serde_json::{Map, Value};

use super::described;
use super::webhook::Call;

/// Keys that every call has.
const REQUIRED: [&str; 7] = [
    "name",
    "arguments",
    "tool_call_id",
    "request_id",
    "round",
    "model",
    "timeout_ms",
];

/// Keys that a call may have.
const OPTIONAL: [&str; 4] = ["session_id", "session_key", "owner", "user"];

/// Everything that is wrong with a call, in words.
pub(crate) fn violations(call: &Call, before: &[Call]) -> Vec<String> {
    let Some(body) = call.body.as_object() else {
        return vec!["the body is not a JSON object".to_owned()];
    };
    let mut found = described::problems_of_call(&call.body);
    check_body(body, &mut found);
    let media = call.header("content-type").unwrap_or_default();
    if !media.starts_with("application/json") {
        found.push(format!("the content type is `{media}`"));
    }
    if !call
        .header("user-agent")
        .is_some_and(|agent| agent.starts_with("loopwright"))
    {
        found.push("the user agent is not loopwright".to_owned());
    }
    if !call.header("traceparent").is_some_and(is_traceparent) {
        found.push("no valid traceparent".to_owned());
    }
    let Some(key) = call.header("idempotency-key").filter(|key| !key.is_empty()) else {
        found.push("no idempotency key".to_owned());
        return found;
    };
    for other in before.iter().filter(|other| other.method == Method::POST) {
        let same_call = other.body == call.body;
        if same_call != (other.header("idempotency-key") == Some(key)) {
            found.push(format!("the idempotency key `{key}` is not one per call"));
        }
    }
    found
}

fn check_body(body: &Map<String, Value>, found: &mut Vec<String>) {
    for key in REQUIRED.iter().filter(|key| !body.contains_key(**key)) {
        found.push(format!("`{key}` is missing"));
    }
    for key in body.keys() {
        if !REQUIRED.contains(&key.as_str()) && !OPTIONAL.contains(&key.as_str()) {
            found.push(format!("`{key}` does not belong there"));
        }
    }
    for key in [
        "name",
        "tool_call_id",
        "request_id",
        "model",
        "session_id",
        "session_key",
        "owner",
        "user",
    ] {
        match body.get(key) {
            None => {}
            Some(Value::String(text)) if !text.is_empty() => {}
            // Of a call outside of a turn.
            Some(Value::String(_)) if key == "model" => {}
            // What is unknown may be said to be so.
            Some(Value::Null) if OPTIONAL.contains(&key) => {}
            Some(other) => found.push(format!("`{key}` is {other}")),
        }
    }
    if !body.get("arguments").is_none_or(Value::is_object) {
        found.push("`arguments` is not an object".to_owned());
    }
    for key in ["round", "timeout_ms"] {
        if !body.get(key).is_none_or(Value::is_u64) {
            found.push(format!("`{key}` is not a count"));
        }
    }
    if body.contains_key("session_id") != body.contains_key("session_key") {
        found.push("only one of `session_id` and `session_key`".to_owned());
    }
}

/// Whether this is a `traceparent` of version 00 as W3C has it.
fn is_traceparent(value: &str) -> bool {
    let fields: Vec<&str> = value.split('-').collect();
    let hex = |field: &str, length: usize| {
        field.len() == length
            && field
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let [version, trace, span, flags] = fields.as_slice() else {
        return false;
    };
    *version == "00"
        && hex(trace, 32)
        && hex(span, 16)
        && hex(flags, 2)
        && trace.bytes().any(|byte| byte != b'0')
        && span.bytes().any(|byte| byte != b'0')
}
