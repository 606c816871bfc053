//! Making a history valid for strict upstreams.
//!
//! The repaired history is valid: every call of an assistant message is answered exactly once, directly after the
//! message and in the order of the calls; there is no other tool message; the ids of the calls of one message differ;
//! the arguments of functions are JSON objects; no assistant message is empty. A valid history is returned unchanged.
//! The legacy `function_call` and messages of unknown roles are left alone.

mod calls;
mod pairing;

use std::cell::Cell;

use self::calls::{are_sound, with_sound_calls};
use self::pairing::{MessageKind, Pairing};
use crate::openai::message::{FieldChange, Message, Role};
use crate::openai::raw::{RawObject, push_entry, quoted};
use crate::openai::tool::ToolCall;

/// The result text of a call that has none.
pub const NO_RESULT: &str = "The result of this call is not available: the call was interrupted, or its result was \
                             never sent. It may have taken effect or not.";
/// Prefix of the text of a result whose call is not in the history.
const ORPHAN: &str = "Result of an earlier tool call: ";
/// Fields that keep an assistant message without content and calls from being dropped.
const SUBSTANCE: [&str; 10] = [
    "refusal",
    "audio",
    "function_call",
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
    "images",
];

/// Repairs a history; one that is valid already is returned as it is, after one pass that copies nothing.
///
/// Results that stand elsewhere behind their call are moved to it, second results of a call are dropped, missing ones
/// get a placeholder ([`NO_RESULT`]), and a result without a call becomes a user message that quotes it. Ids that are
/// missing, or given twice in one message, are replaced by fresh ones.
pub fn repair(messages: Vec<Message>) -> Vec<Message> {
    if is_valid(&messages) {
        return messages;
    }
    let pairing = Pairing::of(&messages);
    let mut groups = pairing.groups.iter();
    let mut repaired = Vec::with_capacity(messages.len());
    for (message, kind) in messages.iter().zip(&pairing.kinds) {
        match kind {
            MessageKind::Calls => {
                let Some(group) = groups.next() else { continue };
                repaired.push(with_sound_calls(message, &group.ids));
                for (id, result) in group.ids.iter().zip(&group.results) {
                    let result = result.and_then(|index| messages.get(index));
                    repaired.push(result.map_or_else(
                        || Message::tool_result(id, NO_RESULT),
                        |result| answering(result, id),
                    ));
                }
            }
            MessageKind::Result => {}
            MessageKind::Orphan => {
                let text = format!("{ORPHAN}{}", message.content_text());
                repaired.push(Message::text(Role::User, &text));
            }
            MessageKind::Plain => repaired.extend(plain(message)),
        }
    }
    repaired
}

/// Whether an assistant message holds something besides content and calls that is worth keeping.
pub(super) fn has_other_content(message: &Message) -> bool {
    RawObject::parse(message.json_str()).is_ok_and(|object| holds_substance(&object))
}

fn is_valid(messages: &[Message]) -> bool {
    let mut awaited: &[ToolCall] = &[];
    for message in messages {
        if message.role() == &Role::Tool {
            match awaited.split_first() {
                Some((call, rest)) if message.tool_call_id() == Some(&call.id) => awaited = rest,
                _ => return false,
            }
        } else if !awaited.is_empty() {
            return false;
        }
        let sound = match message.role() {
            Role::Assistant if message.tool_calls().is_empty() => plain_assistant_is_sound(message),
            Role::Assistant => {
                awaited = message.tool_calls();
                are_sound(message)
            }
            Role::System | Role::Developer | Role::User | Role::Tool => !content_is_null(message),
            Role::Other(_) => true,
        };
        if !sound {
            return false;
        }
    }
    awaited.is_empty()
}

/// A message without calls that is no tool result, or `None` where it is empty.
fn plain(message: &Message) -> Option<Message> {
    match message.role() {
        Role::Assistant if plain_assistant_is_sound(message) => Some(message.clone()),
        // What is left when the content is missing is an empty list of calls, or nothing.
        Role::Assistant => RawObject::parse(message.json_str())
            .is_ok_and(|object| has_content(&object) || holds_substance(&object))
            .then(|| message.with_tool_calls(&[])),
        Role::System | Role::Developer | Role::User | Role::Tool if content_is_null(message) => {
            Some(with_entry(message, "content", "\"\""))
        }
        Role::System | Role::Developer | Role::User | Role::Tool | Role::Other(_) => {
            Some(message.clone())
        }
    }
}

/// The result under the id of the call that it answers.
fn answering(result: &Message, id: &str) -> Message {
    let named = if result.tool_call_id() == Some(id) {
        result.clone()
    } else {
        with_entry(result, "tool_call_id", &quoted(id))
    };
    if content_is_null(&named) {
        with_entry(&named, "content", "\"\"")
    } else {
        named
    }
}

fn plain_assistant_is_sound(message: &Message) -> bool {
    RawObject::parse(message.json_str()).is_ok_and(|object| {
        object.get_some("tool_calls").is_none()
            && (has_content(&object) || holds_substance(&object))
    })
}

fn has_content(object: &RawObject<'_>) -> bool {
    object.get_some("content").is_some_and(|content| {
        let text = content.get();
        let empty_list = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'))
            .is_some_and(|inner| inner.trim().is_empty());
        text != "\"\"" && !empty_list
    })
}

fn holds_substance(object: &RawObject<'_>) -> bool {
    SUBSTANCE.iter().any(|key| {
        object
            .get_some(key)
            .is_some_and(|value| !matches!(value.get(), "\"\"" | "[]" | "{}"))
    })
}

/// Whether `content` is `null` or, for a tool message, missing, neither of which strict servers take.
fn content_is_null(message: &Message) -> bool {
    let json = message.json();
    let must_be_there = message.role() == &Role::Tool;
    // Reading the object is only worth it where one of both can be the case.
    let suspicious = memchr::memmem::find(json, b"null").is_some()
        || (must_be_there && memchr::memmem::find(json, b"\"content\"").is_none());
    suspicious
        && RawObject::parse(message.json_str()).is_ok_and(|object| match object.get("content") {
            Some(content) => content.get() == "null",
            None => must_be_there,
        })
}

/// The message with one field set, in its place or at the end.
fn with_entry(message: &Message, field: &str, value: &str) -> Message {
    let Ok(object) = RawObject::parse(message.json_str()) else {
        return message.clone();
    };
    if object.get(field).is_some() {
        return with_field(message, field, value.to_owned());
    }
    let mut json = object.to_json();
    json.pop();
    push_entry(&mut json, field, value);
    json.push('}');
    Message::parse(&json).unwrap_or_else(|_| message.clone())
}

/// The message with another value for a field that it has.
///
/// The value is written once, however often the field is repeated: a short message that repeats a field and ends with a
/// large value must not grow by their product.
fn with_field(message: &Message, field: &str, value: String) -> Message {
    let value = Cell::new(Some(value));
    message.with_fields(|key| {
        if key == field {
            value.take().map_or(FieldChange::Drop, FieldChange::Set)
        } else {
            FieldChange::Keep
        }
    })
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
