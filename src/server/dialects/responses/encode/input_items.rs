//! Items as JSON texts, and the messages of a history as the items of a request.
//!
//! A message may have hundreds of thousands of parts. They are converted one by one, and an item is a text: as JSON
//! values all of them take forty times the memory.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use protocol::openai::message::{Message, Role};
use protocol::openai::raw::{RawObject, quoted};

/// An item in OpenAI's shape of its type, as JSON text.
#[derive(Debug, Clone)]
pub(crate) struct ItemText {
    /// Its `id`; empty if it has none.
    pub(crate) id: String,
    /// Its `type`.
    pub(crate) kind: String,
    pub(crate) call_id: Option<String>,
    json: Box<RawValue>,
}

impl ItemText {
    /// The item with this JSON text; `None` if it is not an object.
    pub(crate) fn new(json: Box<RawValue>) -> Option<Self> {
        let object = RawObject::parse(json.get()).ok()?;
        let text = |key| serde_json::from_str(object.get_some(key)?.get()).ok();
        Some(Self {
            id: text("id").unwrap_or_default(),
            kind: text("type").unwrap_or_default(),
            call_id: text("call_id"),
            json,
        })
    }

    pub(crate) fn json(&self) -> &RawValue {
        &self.json
    }

    pub(crate) fn into_json(self) -> Box<RawValue> {
        self.json
    }

    fn of(json: String) -> Option<Self> {
        Self::new(RawValue::from_string(json).ok()?)
    }
}

impl Serialize for ItemText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl JsonSchema for ItemText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Map::<String, Value>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Map::<String, Value>::json_schema(generator)
    }

    fn inline_schema() -> bool {
        true
    }
}

/// The items of a message. `id` makes an id from the prefix of its type and, for a call, the call's own id.
pub(crate) fn input_items(
    message: &Message,
    id: impl Fn(&str, Option<&str>) -> String,
) -> Vec<ItemText> {
    let item = |prefix: &str, content: &str| {
        ItemText::of(format!(
            r#"{{"content":{content},"id":{},"role":{},"status":"completed","type":"message"}}"#,
            quoted(&id(prefix, None)),
            quoted(message.role().as_str()),
        ))
    };
    let mut items = Vec::new();
    if let Some(call) = message.tool_call_id() {
        items.push(ItemText::of(format!(
            r#"{{"call_id":{},"id":{},"output":{},"status":"completed","type":"function_call_output"}}"#,
            quoted(call),
            quoted(&id("fco", None)),
            output(message),
        )));
    } else if *message.role() == Role::Assistant {
        let parts = answer_parts(message);
        if !parts.is_empty() {
            items.push(item("msg", &format!("[{}]", parts.join(","))));
        }
        items.extend(message.tool_calls().iter().map(|call| {
            ItemText::of(
                json!({
                    "type": "function_call", "id": id("fc", Some(&call.id)), "status": "completed",
                    "call_id": call.id, "name": call.name, "arguments": call.arguments,
                })
                .to_string(),
            )
        }));
    } else {
        items.push(item("in", &content(message)));
    }
    items.into_iter().flatten().collect()
}

/// The items of an assistant message's text and calls, in the form of an answer. `result` finds the output of a
/// server-side call.
pub(crate) fn answer_items<'m>(
    message: &Message,
    id: impl Fn(&str, Option<&str>) -> String,
    result: impl Fn(&str) -> Option<&'m Message>,
) -> Vec<ItemText> {
    let mut items = Vec::new();
    let parts = answer_parts(message);
    if !parts.is_empty() {
        items.push(ItemText::of(format!(
            r#"{{"content":[{}],"id":{},"role":"assistant","status":"completed","type":"message"}}"#,
            parts.join(","),
            quoted(&id("msg", None)),
        )));
    }
    for call in message.tool_calls() {
        let item = match result(&call.id) {
            Some(result) => json!({
                "type": "mcp_call", "id": id("mcp", Some(&call.id)), "status": "completed",
                "server_label": super::calls::LABEL, "name": call.name, "arguments": call.arguments,
                "output": result.content_text(),
            }),
            None => json!({
                "type": "function_call", "id": id("fc", Some(&call.id)), "status": "completed",
                "call_id": call.id, "name": call.name, "arguments": call.arguments,
            }),
        };
        items.push(ItemText::of(item.to_string()));
    }
    items.into_iter().flatten().collect()
}

/// The items of a response; `None` if it is none.
pub(crate) fn output_items(response: &str) -> Option<Vec<ItemText>> {
    let object = RawObject::parse(response).ok()?;
    let items: Vec<&RawValue> = serde_json::from_str(object.get("output")?.get()).ok()?;
    let items = items.into_iter().map(|item| ItemText::new(item.to_owned()));
    items.collect()
}

/// The parts of an assistant message as JSON texts: its text and its refusal.
fn answer_parts(message: &Message) -> Vec<String> {
    let mut parts = Vec::new();
    let text = message.content_text();
    if !text.is_empty() {
        let text = quoted(&text);
        parts.push(format!(
            r#"{{"annotations":[],"logprobs":[],"text":{text},"type":"output_text"}}"#
        ));
    }
    let Ok(object) = RawObject::parse(message.json_str()) else {
        return parts;
    };
    let content = object.get_some("content");
    let in_parts: Vec<&RawValue> = content
        .and_then(|content| serde_json::from_str(content.get()).ok())
        .unwrap_or_default();
    let in_parts = in_parts.into_iter().filter_map(|part| {
        let part = RawObject::parse(part.get()).ok()?;
        refusal(&part)
    });
    let refusals = in_parts.chain(refusal(&object));
    parts.extend(refusals.map(|refusal| {
        let refusal = quoted(&refusal);
        format!(r#"{{"refusal":{refusal},"type":"refusal"}}"#)
    }));
    parts
}

fn refusal(object: &RawObject<'_>) -> Option<String> {
    let refusal: String = serde_json::from_str(object.get_some("refusal")?.get()).ok()?;
    (!refusal.is_empty()).then_some(refusal)
}

/// The output of an item: a text, or parts if not all of them are texts.
fn output(message: &Message) -> String {
    let parts = content_parts(message).unwrap_or_default();
    let is_text = |part: &&RawValue| {
        let part = RawObject::parse(part.get()).ok();
        let kind = part.and_then(|part| part.get("type"));
        kind.is_some_and(|kind| kind.get() == "\"text\"")
    };
    match parts.iter().all(is_text) {
        true => quoted(&message.content_text()),
        false => content(message),
    }
}

/// The parts of the content of an item.
fn content(message: &Message) -> String {
    let Some(parts) = content_parts(message) else {
        let text = quoted(&message.content_text());
        return format!(r#"[{{"text":{text},"type":"input_text"}}]"#);
    };
    let mut content = String::from("[");
    for part in parts {
        if content.len() > 1 {
            content.push(',');
        }
        content.push_str(&converted(part));
    }
    content.push(']');
    content
}

fn content_parts(message: &Message) -> Option<Vec<&RawValue>> {
    let object = RawObject::parse(message.json_str()).ok()?;
    serde_json::from_str(object.get("content")?.get()).ok()
}

/// A part of a chat message as a part of an item.
fn converted(part: &RawValue) -> String {
    let value: Value = serde_json::from_str(part.get()).unwrap_or_default();
    let detail = |image: &Value| match &image["detail"] {
        Value::Null => json!("auto"),
        detail => detail.clone(),
    };
    let item = match value["type"].as_str() {
        Some("text") => json!({"type": "input_text", "text": value["text"]}),
        Some("image_url") => {
            let image = &value["image_url"];
            json!({"type": "input_image", "image_url": image["url"], "detail": detail(image)})
        }
        Some("image_file") => {
            let image = &value["image_file"];
            json!({"type": "input_image", "file_id": image["file_id"], "detail": detail(image)})
        }
        Some("file") => {
            let mut item = json!({"type": "input_file"});
            for key in ["file_id", "file_data", "filename"] {
                if let Some(value) = value["file"].get(key) {
                    item[key] = value.clone();
                }
            }
            item
        }
        _ => return part.get().to_owned(),
    };
    item.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(message: &Value) -> Value {
        let message = Message::parse(&message.to_string()).unwrap();
        let id =
            |prefix: &str, call: Option<&str>| format!("{prefix}_7{}", call.unwrap_or_default());
        serde_json::to_value(input_items(&message, id)).unwrap()
    }

    #[test]
    fn a_message_becomes_the_items_that_it_came_from() {
        let parts = json!([
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
            {"type": "image_file", "image_file": {"file_id": "f", "detail": "auto"}},
            {"type": "file", "file": {"file_data": "d", "filename": "n"}},
        ]);
        assert_eq!(
            items(&json!({"role": "user", "content": parts})),
            json!([{"type": "message", "id": "in_7", "role": "user", "status": "completed", "content": [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "u", "detail": "low"},
                {"type": "input_image", "file_id": "f", "detail": "auto"},
                {"type": "input_file", "file_data": "d", "filename": "n"},
            ]}])
        );
        let call =
            json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let found = items(&json!({"role": "assistant", "content": "b", "tool_calls": [call]}));
        assert_eq!(found[0]["content"][0]["text"], "b");
        assert_eq!(
            (&found[1]["id"], &found[1]["call_id"]),
            (&json!("fc_7c"), &json!("c"))
        );
        let said = json!([{"type": "text", "text": "b"}, {"type": "refusal", "refusal": "d"}]);
        for (said, refusals) in [(said, json!(null)), (json!("b"), json!("d"))] {
            let found = items(&json!({"role": "assistant", "content": said, "refusal": refusals}));
            assert_eq!(found[0]["content"][0]["text"], "b");
            let refusal = json!({"type": "refusal", "refusal": "d"});
            assert_eq!(found[0]["content"][1], refusal);
        }
        let result = json!({"role": "tool", "tool_call_id": "c", "content": parts});
        assert_eq!(items(&result)[0]["output"][1]["image_url"], "u");
        let found = items(&json!({"role": "tool", "tool_call_id": "c", "content": "r"}));
        assert_eq!(
            (&found[0]["id"], &found[0]["output"]),
            (&json!("fco_7"), &json!("r"))
        );
    }
}
