//! What is different in a session export of mistral.rs.
//!
//! Its values are Rust's `Either`, written as `{"Left": text}` and `{"Right": [parts]}`. Calls and results have no ids,
//! arguments are objects instead of their text, and a part `{"type":"image"}` stands for the next of the top-level
//! `images`.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use super::super::repair::repair;
use crate::openai::message::{Message, Role};
use crate::openai::raw::{RawObject, push_entry, quoted};

/// The images of an export that no part has taken yet.
#[derive(Debug, Default)]
pub(super) struct Images(std::vec::IntoIter<String>);

impl Images {
    /// Reads the top-level `images`: base64 texts of PNG files. Anything else counts as none.
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

/// The message without `Left` and `Right`; any other is returned as it is.
pub(super) fn plain<'a>(message: &'a str, images: &mut Images) -> Cow<'a, str> {
    let Ok(object) = RawObject::parse(message) else {
        return message.into();
    };
    if !object.iter().any(|(_, value)| either(value).is_some()) {
        return message.into();
    }
    let mut json = String::from("{");
    for (key, value) in object.iter() {
        let value = either(value).unwrap_or(value);
        if key == "content" {
            push_entry(&mut json, key, &plain_content(value, images));
        } else {
            push_entry(&mut json, key, value.get());
        }
    }
    json.push('}');
    json.into()
}

/// Gives ids to calls and results that have none, and says of each message whether it is hidden: a client cannot have
/// seen a call under an id that was made here.
pub(super) fn with_ids(messages: Vec<Message>) -> Vec<(Message, bool)> {
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
            let made_here = match message.tool_call_id() {
                Some(id) => !known.contains(id),
                None => !calls.is_empty() && !calls.iter().any(|call| known.contains(&call.id)),
            };
            (message, made_here)
        })
        .collect()
}

fn plain_content<'a>(content: &'a RawValue, images: &mut Images) -> Cow<'a, str> {
    let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(content.get()) else {
        return content.get().into();
    };
    let parts: Vec<String> = parts
        .into_iter()
        .map(|part| plain_part(part, images))
        .collect();
    format!("[{}]", parts.join(",")).into()
}

fn plain_part(part: &RawValue, images: &mut Images) -> String {
    let Ok(object) = RawObject::parse(part.get()) else {
        return part.get().to_owned();
    };
    let mut json = String::from("{");
    for (key, value) in object.iter() {
        push_entry(&mut json, key, either(value).unwrap_or(value).get());
    }
    json.push('}');
    if json == r#"{"type":"image"}"# {
        return images.next_part();
    }
    json
}

/// The value inside `{"Left": …}` or `{"Right": …}`.
fn either(value: &RawValue) -> Option<&RawValue> {
    let object = RawObject::parse(value.get()).ok()?;
    let mut entries = object.iter();
    match (entries.next(), entries.next()) {
        (Some(("Left" | "Right", inner)), None) => Some(inner),
        _ => None,
    }
}
