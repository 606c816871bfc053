//! Makes a history valid for strict upstreams.
//!
//! In a valid history, every call of an assistant message has exactly one result. The results follow the message
//! directly, in the order of the calls. There are no other tool messages. The calls of one message have different ids.
//! The arguments of functions are JSON objects. No assistant message is empty. A valid history is returned unchanged.
//! The legacy `function_call` and messages of unknown roles are not changed.

mod calls;
mod pairing;

use std::cell::Cell;

use self::calls::{are_valid, with_valid_calls};
use self::pairing::{MessageKind, Pairing};
use protocol::openai::content::{enclosed, rewritten};
use protocol::openai::message::{FieldChange, Message, Role};
use protocol::openai::raw::{RawObject, push_entry, quoted};
use protocol::openai::tool::ToolCall;

/// The text of the placeholder result of a call without a result.
pub(crate) const NO_RESULT: &str = "The result of this call is not available: the call was interrupted, or its result was \
                             never sent. It may have taken effect or not.";
/// Prefix of the user message that replaces a result whose call is not in the history.
const ORPHAN_PREFIX: &str = "Result of an earlier tool call: ";
/// Fields that count as content: an assistant message with one of them is not empty.
const OTHER_CONTENT_FIELDS: [&str; 10] = [
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

/// Repairs a history. A valid history is returned unchanged, after one pass without copies.
///
/// Results are moved directly after their call. Further results of a call are dropped. A missing result is replaced by
/// [`NO_RESULT`]. A result without a call becomes a user message with its content. Ids that are missing or repeated within
/// one message are replaced by new ones.
pub(crate) fn repair(messages: Vec<Message>) -> Vec<Message> {
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
                repaired.push(with_valid_calls(message, &group.ids));
                for (id, result) in group.ids.iter().zip(&group.results) {
                    let result = result.and_then(|index| messages.get(index));
                    repaired.push(result.map_or_else(
                        || Message::tool_result(id, NO_RESULT),
                        |result| with_call_id(result, id),
                    ));
                }
            }
            MessageKind::Result => {}
            MessageKind::Orphan => {
                let content = enclosed(message, ORPHAN_PREFIX, "");
                let keeps = |key: &str| !matches!(key, "tool_call_id" | "name");
                repaired.push(rewritten(message, &Role::User, &content, keeps));
            }
            MessageKind::Plain => repaired.extend(repair_plain(message)),
        }
    }
    repaired
}

/// Whether an assistant message has one of the [`OTHER_CONTENT_FIELDS`].
pub(super) fn has_other_content(message: &Message) -> bool {
    RawObject::parse(message.json_str()).is_ok_and(|object| holds_other_content(&object))
}

fn is_valid(messages: &[Message]) -> bool {
    let mut pending: &[ToolCall] = &[];
    for message in messages {
        if message.role() == &Role::Tool {
            match pending.split_first() {
                Some((call, rest)) if message.tool_call_id() == Some(&call.id) => pending = rest,
                _ => return false,
            }
        } else if !pending.is_empty() {
            return false;
        }
        let valid = match message.role() {
            Role::Assistant if message.tool_calls().is_empty() => plain_assistant_is_valid(message),
            Role::Assistant => {
                pending = message.tool_calls();
                are_valid(message)
            }
            Role::System | Role::Developer | Role::User | Role::Tool => !content_is_null(message),
            Role::Other(_) => true,
        };
        if !valid {
            return false;
        }
    }
    pending.is_empty()
}

/// Repairs a message that has no calls and is not a tool result; `None` if it is an empty assistant message.
fn repair_plain(message: &Message) -> Option<Message> {
    match message.role() {
        Role::Assistant if plain_assistant_is_valid(message) => Some(message.clone()),
        // The message is empty, or has an empty list of calls.
        Role::Assistant => RawObject::parse(message.json_str())
            .is_ok_and(|object| has_content(&object) || holds_other_content(&object))
            .then(|| message.with_tool_calls(&[])),
        Role::System | Role::Developer | Role::User | Role::Tool if content_is_null(message) => {
            Some(with_entry(message, "content", "\"\""))
        }
        Role::System | Role::Developer | Role::User | Role::Tool | Role::Other(_) => {
            Some(message.clone())
        }
    }
}

/// The result with the id of its call and with content.
fn with_call_id(result: &Message, id: &str) -> Message {
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

fn plain_assistant_is_valid(message: &Message) -> bool {
    RawObject::parse(message.json_str()).is_ok_and(|object| {
        object.get_some("tool_calls").is_none()
            && (has_content(&object) || holds_other_content(&object))
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

fn holds_other_content(object: &RawObject<'_>) -> bool {
    OTHER_CONTENT_FIELDS.iter().any(|key| {
        object
            .get_some(key)
            .is_some_and(|value| !matches!(value.get(), "\"\"" | "[]" | "{}"))
    })
}

/// Whether `content` is `null` or, for a tool message, missing. Strict upstreams refuse both.
fn content_is_null(message: &Message) -> bool {
    let json = message.json();
    let required = message.role() == &Role::Tool;
    // A text search avoids parsing most messages.
    let may_be_null = memchr::memmem::find(json, b"null").is_some()
        || (required && memchr::memmem::find(json, b"\"content\"").is_none());
    may_be_null
        && RawObject::parse(message.json_str()).is_ok_and(|object| match object.get("content") {
            Some(content) => content.get() == "null",
            None => required,
        })
}

/// The message with one field set. A new field is added at the end.
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

/// The message with a new value for an existing field.
///
/// If the field is repeated, the value is written once. Otherwise a message that repeats a field n times would grow by
/// n times the size of the value.
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
