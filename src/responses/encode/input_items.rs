//! Messages of a history as the items that a request brings.

use serde_json::{Value, json};

use crate::openai::message::{Message, Role};

/// The items of a message. `id` makes an id from the prefix of its type and, for a call, the call's own id.
pub fn input_items(message: &Message, id: impl Fn(&str, Option<&str>) -> String) -> Vec<Value> {
    if let Some(call) = message.tool_call_id() {
        return vec![json!({
            "type": "function_call_output", "id": id("fco", None), "call_id": call,
            "output": output(message), "status": "completed",
        })];
    }
    let item = |prefix: &str, content: Value| {
        json!({
            "type": "message", "id": id(prefix, None), "role": message.role().as_str(),
            "status": "completed", "content": content,
        })
    };
    if *message.role() != Role::Assistant {
        return vec![item("in", content(message))];
    }
    let mut items = Vec::new();
    let parts = answer_parts(message);
    if !parts.is_empty() {
        items.push(item("msg", parts.into()));
    }
    items.extend(message.tool_calls().iter().map(|call| {
        json!({
            "type": "function_call", "id": id("fc", Some(&call.id)), "status": "completed",
            "call_id": call.id, "name": call.name, "arguments": call.arguments,
        })
    }));
    items
}

/// The parts of what an assistant message says: its text, and what it says instead of an answer.
pub fn answer_parts(message: &Message) -> Vec<Value> {
    let mut parts = Vec::new();
    let text = message.content_text();
    if !text.is_empty() {
        parts.push(json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}));
    }
    let value: Value = serde_json::from_str(message.json_str()).unwrap_or_default();
    let in_parts = value["content"].as_array().into_iter().flatten();
    let refusals = in_parts
        .chain([&value])
        .filter_map(|one| one["refusal"].as_str());
    let refusals = refusals.filter(|refusal| !refusal.is_empty());
    parts.extend(refusals.map(|refusal| json!({"type": "refusal", "refusal": refusal})));
    parts
}

/// The output of an item: a text, or parts if not all of them are texts.
fn output(message: &Message) -> Value {
    let parts = content(message);
    let is_text = |part: &Value| part["type"] == "input_text";
    match parts
        .as_array()
        .is_some_and(|parts| parts.iter().all(is_text))
    {
        true => message.content_text().into(),
        false => parts,
    }
}

/// The parts of the content of an item.
fn content(message: &Message) -> Value {
    let value: Value = serde_json::from_str(message.json_str()).unwrap_or_default();
    match &value["content"] {
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => json!([{"type": "input_text", "text": message.content_text()}]),
    }
}

/// A part of a chat message as a part of an item.
fn part(part: &Value) -> Value {
    let detail = |image: &Value| match &image["detail"] {
        Value::Null => json!("auto"),
        detail => detail.clone(),
    };
    match part["type"].as_str() {
        Some("text") => json!({"type": "input_text", "text": part["text"]}),
        Some("image_url") => {
            let image = &part["image_url"];
            json!({"type": "input_image", "image_url": image["url"], "detail": detail(image)})
        }
        Some("image_file") => {
            let image = &part["image_file"];
            json!({"type": "input_image", "file_id": image["file_id"], "detail": detail(image)})
        }
        Some("file") => {
            let mut item = json!({"type": "input_file"});
            for key in ["file_id", "file_data", "filename"] {
                if let Some(value) = part["file"].get(key) {
                    item[key] = value.clone();
                }
            }
            item
        }
        _ => part.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(message: &Value) -> Value {
        let message = Message::parse(&message.to_string()).unwrap();
        let id =
            |prefix: &str, call: Option<&str>| format!("{prefix}_7{}", call.unwrap_or_default());
        input_items(&message, id).into()
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
