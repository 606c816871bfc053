//! Decodes tool calls from all known variants of a delta.

use serde_json::value::RawValue;

use super::DecodeError;
use super::text::{Halves, TextOf, lossy_string};
use super::wire::{BoundedList, Delta};
use crate::assemble::MAX_CALLS;
use protocol::openai::event::ToolCallDelta;
use protocol::openai::raw::RawObject;
use protocol::openai::tool::{CallKind, CallMembers};

/// The tool-call deltas of a delta: its `tool_calls`, or else its legacy `function_call`. Servers that send both send
/// the same call in both.
pub(super) fn of_delta(
    delta: &Delta<'_>,
    whole: bool,
    halves: &mut Halves,
) -> Result<Vec<ToolCallDelta>, DecodeError> {
    let calls = match delta.tool_calls {
        Some(calls) => tool_calls(calls, whole, halves)?,
        None => Vec::new(),
    };
    if !calls.is_empty() {
        return Ok(calls);
    }
    let legacy = delta.function_call;
    let legacy = legacy.and_then(|call| legacy_call(call, whole, halves));
    Ok(legacy.into_iter().collect())
}

fn tool_calls(
    value: &RawValue,
    whole: bool,
    halves: &mut Halves,
) -> Result<Vec<ToolCallDelta>, DecodeError> {
    let entries = if value.get().starts_with('[') {
        serde_json::from_str::<BoundedList<'_, MAX_CALLS>>(value.get())
            .map_err(|_| DecodeError::Malformed(format!("more than {MAX_CALLS} tool calls")))?
            .0
    } else {
        vec![value]
    };
    let several = entries.len() > 1;
    Ok(entries
        .iter()
        .enumerate()
        .filter_map(|(position, entry)| {
            let mut call = tool_call(&RawObject::parse(entry.get()).ok()?, whole, halves)?;
            if call.index.is_none() && (whole || several) {
                call.index = u32::try_from(position).ok();
            }
            Some(call)
        })
        .collect())
}

fn tool_call(entry: &RawObject<'_>, whole: bool, halves: &mut Halves) -> Option<ToolCallDelta> {
    let text = |key: &str| {
        entry
            .get_some(key)
            .and_then(lossy_string)
            .filter(|text| !text.is_empty())
    };
    let custom = entry.get_some("custom");
    let kind = if custom.is_some() || text("type").as_deref() == Some("custom") {
        CallKind::Custom
    } else {
        CallKind::Function
    };
    // Some servers omit the inner object and put the name next to the id.
    let body = custom
        .or_else(|| entry.get_some("function"))
        .and_then(|body| RawObject::parse(body.get()).ok());
    let index = entry.get_some("index").and_then(index);
    let (name, arguments, object) = call_body(body.as_ref().unwrap_or(entry), index, halves);
    let members = CallMembers {
        beside: CallMembers::of(entry),
        inside: body.as_ref().map(CallMembers::of).unwrap_or_default(),
    };
    let call = ToolCallDelta {
        index,
        id: text("id"),
        name,
        whole: object || (whole && arguments.is_some()),
        arguments,
        kind,
        text_form: None,
        members,
    };
    let is_used = call.id.is_some()
        || call.name.is_some()
        || call.arguments.is_some()
        || call.members != CallMembers::default();
    is_used.then_some(call)
}

fn legacy_call(value: &RawValue, whole: bool, halves: &mut Halves) -> Option<ToolCallDelta> {
    let body = RawObject::parse(value.get()).ok()?;
    let (name, arguments, object) = call_body(&body, Some(0), halves);
    (name.is_some() || arguments.is_some()).then(|| ToolCallDelta {
        index: Some(0),
        name,
        whole: object || (whole && arguments.is_some()),
        arguments,
        members: CallMembers {
            beside: Vec::new(),
            inside: CallMembers::of(&body),
        },
        ..ToolCallDelta::default()
    })
}

/// The name, the arguments, and whether the arguments were an object instead of a string.
fn call_body(
    body: &RawObject<'_>,
    index: Option<u32>,
    halves: &mut Halves,
) -> (Option<String>, Option<String>, bool) {
    let name = body
        .get_some("name")
        .and_then(lossy_string)
        .filter(|name| !name.is_empty());
    let Some(value) = body
        .get_some("arguments")
        .or_else(|| body.get_some("input"))
    else {
        return (name, None, false);
    };
    match halves.read(TextOf::Arguments(index), value) {
        Some(text) => (name, Some(text).filter(|text| !text.is_empty()), false),
        None => (name, Some(value.get().to_owned()), true),
    }
}

fn index(value: &RawValue) -> Option<u32> {
    let text = value.get();
    text.parse()
        .ok()
        .or_else(|| text.trim_matches('"').parse().ok())
}
