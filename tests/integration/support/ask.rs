//! Bodies of chat requests.

use serde_json::{Value, json};

use super::upstream::MODEL;

/// A request with one user message.
pub(crate) fn ask(text: &str) -> Value {
    json!({"model": MODEL, "messages": [user(text)]})
}

/// A request with one user message and these function tools.
pub(crate) fn ask_with<const N: usize>(text: &str, tools: [&str; N]) -> Value {
    let mut body = ask(text);
    body["tools"] = tools.map(tool).to_vec().into();
    body
}

/// A user message.
pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// An assistant message.
pub(crate) fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// A function tool that takes any object.
pub(crate) fn tool(name: &str) -> Value {
    tool_with(name, json!({"type": "object", "properties": {}}))
}

/// A function tool with these parameters.
pub(crate) fn tool_with(name: &str, parameters: Value) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "A test tool.", "parameters": parameters}})
}

/// The body with another member.
pub(crate) fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}
