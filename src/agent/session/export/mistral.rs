//! Converts session exports of mistral.rs.
//!
//! Values are a serialized Rust `Either`: `{"Left": text}` or `{"Right": [parts]}`. Calls and results have no ids.
//! Arguments are objects instead of JSON text. A part `{"type":"image"}` refers to the next entry of the top-level
//! `images`.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use super::super::repair::repair;
use protocol::openai::message::{Message, Role};
use protocol::openai::raw::{RawObject, push_entry, quoted};

/// The images of an export that no part has used yet.
#[derive(Debug, Default)]
pub(super) struct PendingImages(std::vec::IntoIter<String>);

impl PendingImages {
    /// Reads the top-level `images`: base64 texts of PNG files. A value of another type is treated as an empty list.
    pub(super) fn of(export: &RawObject<'_>) -> Self {
        let list: Option<Vec<String>> = export
            .get_some("images")
            .and_then(|list| serde_json::from_str(list.get()).ok());
        Self(list.unwrap_or_default().into_iter())
    }

    fn next_part(&mut self) -> String {
        self.0.next().map_or_else(
            || r#"{"type":"text","text":"[image]"}"#.to_owned(),
            |base64| {
                let url = quoted(&format!("data:image/png;base64,{base64}"));
                format!(r#"{{"type":"image_url","image_url":{{"url":{url}}}}}"#)
            },
        )
    }
}

/// The message with its `Either` values unwrapped; a message without such values is returned unchanged.
pub(super) fn unwrap_message<'a>(message: &'a str, images: &mut PendingImages) -> Cow<'a, str> {
    let Ok(object) = RawObject::parse(message) else {
        return message.into();
    };
    if !object.iter().any(|(_, value)| unwrapped(value).is_some()) {
        return message.into();
    }
    let mut json = String::from("{");
    for (key, value) in object.iter() {
        let value = unwrapped(value).unwrap_or(value);
        if key == "content" {
            push_entry(&mut json, key, &unwrap_content(value, images));
        } else {
            push_entry(&mut json, key, value.get());
        }
    }
    json.push('}');
    json.into()
}

/// Adds ids to calls and results that have none. The flag of a message is true if its ids were generated here: the
/// client does not know these ids, so the message is hidden.
pub(super) fn with_call_ids(messages: Vec<Message>) -> Vec<(Message, bool)> {
    let lacks_ids = messages.iter().any(|message| {
        message.tool_calls().iter().any(|call| call.id.is_empty())
            || (message.role() == &Role::Tool && message.tool_call_id().is_none_or(str::is_empty))
    });
    if !lacks_ids {
        return messages.into_iter().map(|one| (one, false)).collect();
    }
    let known: HashSet<String> = messages
        .iter()
        .flat_map(Message::tool_calls)
        .map(|call| call.id.clone())
        .collect();
    repair(messages)
        .into_iter()
        .map(|message| {
            let calls = message.tool_calls();
            let generated = match message.tool_call_id() {
                Some(id) => !known.contains(id),
                None => !calls.is_empty() && !calls.iter().any(|call| known.contains(&call.id)),
            };
            (message, generated)
        })
        .collect()
}

fn unwrap_content<'a>(content: &'a RawValue, images: &mut PendingImages) -> Cow<'a, str> {
    let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(content.get()) else {
        return content.get().into();
    };
    let parts: Vec<String> = parts
        .into_iter()
        .map(|part| unwrap_part(part, images))
        .collect();
    format!("[{}]", parts.join(",")).into()
}

fn unwrap_part(part: &RawValue, images: &mut PendingImages) -> String {
    let Ok(object) = RawObject::parse(part.get()) else {
        return part.get().to_owned();
    };
    let mut json = String::from("{");
    for (key, value) in object.iter() {
        push_entry(&mut json, key, unwrapped(value).unwrap_or(value).get());
    }
    json.push('}');
    if json == r#"{"type":"image"}"# {
        return images.next_part();
    }
    json
}

/// The value inside `{"Left": …}` or `{"Right": …}`.
fn unwrapped(value: &RawValue) -> Option<&RawValue> {
    let object = RawObject::parse(value.get()).ok()?;
    let mut entries = object.iter();
    match (entries.next(), entries.next()) {
        (Some(("Left" | "Right", inner)), None) => Some(inner),
        _ => None,
    }
}
