//! Validates and repairs the entries of `tool_calls`.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::with_field;
use protocol::openai::message::Message;
use protocol::openai::raw::{RawObject, push_entry, quoted};
use protocol::openai::tool::{CallKind, ToolCall};

/// Whether every call has a unique id, a type and, for a function, a JSON object as arguments.
pub(super) fn are_valid(message: &Message) -> bool {
    let calls = message.tool_calls();
    let mut ids = HashSet::with_capacity(calls.len());
    if !calls
        .iter()
        .all(|call| !call.id.is_empty() && ids.insert(call.id.as_str()))
    {
        return false;
    }
    with_entries(message, |entries| {
        entries.len() == calls.len()
            && entries
                .iter()
                .zip(calls)
                .all(|(entry, call)| is_valid_entry(entry, call))
    })
    .unwrap_or(false)
}

/// The message with valid calls and these ids. Entries that are already valid keep their text.
pub(super) fn with_valid_calls(message: &Message, ids: &[String]) -> Message {
    if are_valid(message)
        && message
            .tool_calls()
            .iter()
            .map(|call| &call.id)
            .eq(ids.iter())
    {
        return message.clone();
    }
    let list = with_entries(message, |entries| {
        let repaired_entry: Vec<String> = entries
            .iter()
            .zip(message.tool_calls())
            .zip(ids)
            .map(|((entry, call), id)| repaired_entry(entry, call, id))
            .collect();
        format!("[{}]", repaired_entry.join(","))
    });
    let Some(list) = list else {
        return message.clone();
    };
    with_field(message, "tool_calls", list)
}

fn with_entries<T>(message: &Message, read: impl FnOnce(&[&RawValue]) -> T) -> Option<T> {
    let object = RawObject::parse(message.json_str()).ok()?;
    let list = object.get_some("tool_calls")?;
    let entries: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    Some(read(&entries))
}

fn is_valid_entry(entry: &RawValue, call: &ToolCall) -> bool {
    let read = || -> Option<bool> {
        let entry = RawObject::parse(entry.get()).ok()?;
        entry.get_some("type")?;
        match call.kind {
            CallKind::Custom => Some(true),
            CallKind::Function => {
                let function = RawObject::parse(entry.get_some("function")?.get()).ok()?;
                let is_text = function.get_some("arguments")?.get().starts_with('"');
                Some(is_text && is_object(&call.arguments))
            }
        }
    };
    read().unwrap_or(false)
}

fn repaired_entry(entry: &RawValue, call: &ToolCall, id: &str) -> String {
    if call.id == id && is_valid_entry(entry, call) {
        return entry.get().to_owned();
    }
    let Ok(object) = RawObject::parse(entry.get()) else {
        return call.to_json(None);
    };
    let id = quoted(id);
    match call.kind {
        CallKind::Custom => with_values(&object, &[("id", &id), ("type", "\"custom\"")]),
        CallKind::Function => {
            let arguments = if is_object(&call.arguments) {
                quoted(&call.arguments)
            } else {
                quoted("{}")
            };
            let function = object
                .get_some("function")
                .and_then(|function| RawObject::parse(function.get()).ok())
                .unwrap_or_default();
            let function = with_values(&function, &[("arguments", &arguments)]);
            let changes = [
                ("id", id.as_str()),
                ("type", "\"function\""),
                ("function", &function),
            ];
            with_values(&object, &changes)
        }
    }
}

/// The object with these values. Existing keys keep their position; new keys are added at the end.
fn with_values(object: &RawObject<'_>, changes: &[(&str, &str)]) -> String {
    let mut json = String::from("{");
    let mut left: Vec<&(&str, &str)> = changes.iter().collect();
    for (key, value) in object.iter() {
        if let Some(index) = left.iter().position(|(changed, _)| *changed == key) {
            push_entry(&mut json, key, left.remove(index).1);
        } else if !changes.iter().any(|(changed, _)| *changed == key) {
            push_entry(&mut json, key, value.get());
        }
    }
    for (key, value) in left {
        push_entry(&mut json, key, value);
    }
    json.push('}');
    json
}

fn is_object(text: &str) -> bool {
    RawObject::parse(text).is_ok()
}
