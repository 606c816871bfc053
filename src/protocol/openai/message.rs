//! Chat messages: their JSON text, and the parsed fields that loopwright acts on.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::raw::{RawObject, push_entry, quoted};
use super::tool::{CallKind, CallMembers, ToolCall};

/// Replaces the text of a tool's result that has none. Many servers refuse a blank text.
pub const NO_OUTPUT: &str = "(no output)";

/// Fields in which model servers send and take reasoning, in order of preference.
pub const REASONING_FIELDS: [&str; 4] = [
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
];

/// The author of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// Instructions, under OpenAI's newer name.
    Developer,
    /// The end user.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// Any other role, such as the legacy `function`; sent unchanged.
    Other(Box<str>),
}

/// One message of a conversation; cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    role: Role,
    json: Bytes,
    tool_calls: Vec<ToolCall>,
    tool_call_id: Option<String>,
}

/// The parts from which an assistant message is built.
#[derive(Debug, Clone, Default)]
pub struct AssistantParts<'a> {
    /// The visible text; empty for none.
    pub text: &'a str,
    /// The content as the JSON text of a list, if it is more than the text.
    pub parts: Option<&'a str>,
    /// The name of the field for the reasoning text, and the text.
    pub reasoning: Option<(&'a str, &'a str)>,
    /// The tool calls.
    pub tool_calls: &'a [ToolCall],
    /// Other fields: key and JSON text.
    pub extra: &'a [(String, Box<str>)],
}

impl Role {
    /// Parses the value of `role`.
    pub(crate) fn parse(word: &str) -> Self {
        match word {
            "system" => Self::System,
            "developer" => Self::Developer,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            other => Self::Other(other.into()),
        }
    }

    /// The value of `role`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Other(word) => word,
        }
    }
}

impl Message {
    /// Parses a message and keeps its JSON text unchanged.
    ///
    /// # Errors
    /// When it is not an object with a `role`, or its `tool_calls` or `tool_call_id` have the wrong shape. The text is
    /// the problem, for the client.
    pub fn parse(json: &str) -> Result<Self, String> {
        Self::parse_shared(json, Bytes::copy_from_slice(json.as_bytes()))
    }

    /// As [`Self::parse`]; the message shares `bytes`, which are the bytes of the text.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_shared(json: &str, bytes: Bytes) -> Result<Self, String> {
        let object = RawObject::parse(json).map_err(|_| "must be an object".to_owned())?;
        let role = object.get_some("role").ok_or("has no role")?;
        let role: Cow<'_, str> =
            serde_json::from_str(role.get()).map_err(|_| "role must be a string")?;
        let tool_calls = match object.get_some("tool_calls") {
            Some(calls) => parse_calls(calls)?,
            None => Vec::new(),
        };
        let tool_call_id = object
            .get_some("tool_call_id")
            .map(|id| serde_json::from_str(id.get()).map_err(|_| "tool_call_id must be a string"))
            .transpose()?;
        Ok(Self {
            role: Role::parse(&role),
            json: bytes,
            tool_calls,
            tool_call_id,
        })
    }

    /// A message with a role and a text.
    pub fn text(role: Role, text: &str) -> Self {
        let json = format!(
            r#"{{"role":{},"content":{}}}"#,
            quoted(role.as_str()),
            quoted(text)
        );
        Self {
            role,
            json: json.into(),
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }

    /// The result of a tool call.
    pub fn tool_result(call_id: &str, text: &str) -> Self {
        let json = format!(
            r#"{{"role":"tool","tool_call_id":{},"content":{}}}"#,
            quoted(call_id),
            quoted(text)
        );
        Self {
            role: Role::Tool,
            json: json.into(),
            tool_calls: Vec::new(),
            tool_call_id: Some(call_id.to_owned()),
        }
    }

    /// An assistant message. As in OpenAI's messages, `content` is `null` if there are tool calls and no text.
    pub fn assistant(parts: &AssistantParts<'_>) -> Self {
        let mut json = String::from(r#"{"role":"assistant""#);
        let null = parts.text.is_empty() && !parts.tool_calls.is_empty();
        let content = match parts.parts {
            Some(list) => list.to_owned(),
            None if null => "null".to_owned(),
            None => quoted(parts.text),
        };
        push_entry(&mut json, "content", &content);
        if let Some((field, text)) = parts.reasoning {
            push_entry(&mut json, field, &quoted(text));
        }
        if !parts.tool_calls.is_empty() {
            let calls: Vec<String> = parts
                .tool_calls
                .iter()
                .map(|call| call.to_json(None))
                .collect();
            push_entry(&mut json, "tool_calls", &format!("[{}]", calls.join(",")));
        }
        for (key, value) in parts.extra {
            push_entry(&mut json, key, value);
        }
        json.push('}');
        Self {
            role: Role::Assistant,
            json: json.into(),
            tool_calls: parts.tool_calls.to_vec(),
            tool_call_id: None,
        }
    }

    /// The author.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The JSON text, as bytes.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The JSON text.
    pub fn json_str(&self) -> &str {
        std::str::from_utf8(&self.json).unwrap_or_default()
    }

    /// The tool calls of an assistant message.
    pub fn tool_calls(&self) -> &[ToolCall] {
        &self.tool_calls
    }

    /// The id of the call that a tool message answers.
    pub fn tool_call_id(&self) -> Option<&str> {
        self.tool_call_id.as_deref()
    }

    /// Whether it is a system or developer message.
    pub fn is_instruction(&self) -> bool {
        matches!(self.role, Role::System | Role::Developer)
    }

    /// The text of the content: the string, or the concatenated texts of the content parts.
    pub fn content_text(&self) -> String {
        let texts = |parts: Vec<&RawValue>| parts.into_iter().filter_map(text_of_part).collect();
        let Some(content) = self.content_json() else {
            return String::new();
        };
        match serde_json::from_str(content) {
            Ok(text) => text,
            Err(_) => serde_json::from_str(content).map_or_else(|_| String::new(), texts),
        }
    }

    /// A normal form of the content for comparing messages: white space at the ends is ignored, a list of text parts
    /// equals the same text as a string, and other parts are compared by their JSON.
    pub fn content_key(&self) -> String {
        let content = self.content_json().unwrap_or_default();
        // A value of each part and not of the whole, which takes forty times the memory of many short parts.
        let key = match serde_json::from_str::<Vec<&RawValue>>(content) {
            Ok(parts) => parts.into_iter().map(part_key).collect(),
            Err(_) => match serde_json::from_str(content) {
                // Content that is nested too deeply for the parser is compared by its JSON text.
                Err(_) => content.to_owned(),
                Ok(Value::Null) => String::new(),
                Ok(Value::String(text)) => text,
                Ok(other) => other.to_string(),
            },
        };
        match key.trim() {
            trimmed if trimmed.len() == key.len() => key,
            trimmed => trimmed.to_owned(),
        }
    }

    /// The message with some fields left out or replaced.
    #[must_use]
    pub fn with_fields(&self, change: impl Fn(&str) -> FieldChange) -> Self {
        let Ok(object) = RawObject::parse(self.json_str()) else {
            return self.clone();
        };
        let mut json = String::from("{");
        for (key, value) in object.iter() {
            match change(key) {
                FieldChange::Keep => push_entry(&mut json, key, value.get()),
                FieldChange::Drop => {}
                FieldChange::Set(text) => push_entry(&mut json, key, &text),
            }
        }
        json.push('}');
        Self::parse(&json).unwrap_or_else(|_| self.clone())
    }

    /// The message with this text, which has the same role, tool calls and `tool_call_id`.
    #[must_use]
    pub fn with_same_calls(self, json: String) -> Self {
        Self {
            json: json.into(),
            ..self
        }
    }

    /// The assistant message with other tool calls; without calls the field is left out.
    #[must_use]
    pub fn with_tool_calls(&self, calls: &[ToolCall]) -> Self {
        let list: Vec<String> = calls.iter().map(|call| call.to_json(None)).collect();
        self.with_fields(|key| match (key, calls.is_empty()) {
            ("tool_calls", true) => FieldChange::Drop,
            ("tool_calls", false) => FieldChange::Set(format!("[{}]", list.join(","))),
            _ => FieldChange::Keep,
        })
    }

    fn content_json(&self) -> Option<&str> {
        let object = RawObject::parse(self.json_str()).ok()?;
        object.get("content").map(RawValue::get)
    }
}

/// What [`Message::with_fields`] does with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldChange {
    /// The field stays.
    Keep,
    /// The field is left out.
    Drop,
    /// The value is replaced by this JSON text.
    Set(String),
}

fn part_key(part: &RawValue) -> String {
    text_of_part(part).unwrap_or_else(|| match serde_json::from_str::<Value>(part.get()) {
        Ok(value) => value.to_string(),
        Err(_) => part.get().to_owned(),
    })
}

fn text_of_part(part: &RawValue) -> Option<String> {
    let part = RawObject::parse(part.get()).ok()?;
    serde_json::from_str(part.get("text")?.get()).ok()
}

fn parse_calls(calls: &RawValue) -> Result<Vec<ToolCall>, String> {
    let entries: Vec<&RawValue> =
        serde_json::from_str(calls.get()).map_err(|_| "tool_calls must be an array")?;
    entries.into_iter().map(parse_call).collect()
}

/// Parses one call. A missing id or name becomes empty, and arguments that are not a string become their JSON text; the
/// repair of the history corrects such calls.
fn parse_call(entry: &RawValue) -> Result<ToolCall, String> {
    let object = RawObject::parse(entry.get()).map_err(|_| "tool_calls must hold objects")?;
    let text = |object: &RawObject<'_>, key: &str| -> Result<String, String> {
        object.get_some(key).map_or_else(
            || Ok(String::new()),
            |value| {
                serde_json::from_str(value.get())
                    .map_err(|_| format!("tool_calls: {key} must be a string"))
            },
        )
    };
    let (kind, body_key, argument_key) = match object.get_some("custom") {
        Some(_) => (CallKind::Custom, "custom", "input"),
        None => (CallKind::Function, "function", "arguments"),
    };
    let body = object
        .get_some(body_key)
        .ok_or("tool_calls: an entry has no function")?;
    let body =
        RawObject::parse(body.get()).map_err(|_| "tool_calls: function must be an object")?;
    let arguments = match body.get_some(argument_key) {
        Some(value) if value.get().starts_with('"') => text(&body, argument_key)?,
        Some(value) => value.get().to_owned(),
        None => String::new(),
    };
    Ok(ToolCall {
        id: text(&object, "id")?,
        name: text(&body, "name")?,
        arguments,
        kind,
        members: CallMembers {
            beside: CallMembers::of(&object),
            inside: CallMembers::of(&body),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_its_json_text() {
        let json = r#"{"role":"assistant","content":null,"x":1.0,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
        let message = Message::parse(json).unwrap();
        assert_eq!(message.json_str(), json);
        assert_eq!(message.role(), &Role::Assistant);
        assert_eq!(message.tool_calls()[0].name, "f");
    }

    #[test]
    fn errors_name_the_field_with_the_wrong_shape() {
        for (json, word) in [
            ("3", "object"),
            ("{}", "role"),
            (r#"{"role":1}"#, "role"),
            (r#"{"role":"assistant","tool_calls":{}}"#, "tool_calls"),
            (r#"{"role":"tool","tool_call_id":7}"#, "tool_call_id"),
        ] {
            assert!(Message::parse(json).unwrap_err().contains(word), "{json}");
        }
    }

    #[test]
    fn equal_content_has_equal_keys() {
        let key = |content: &str| {
            Message::parse(&format!(r#"{{"role":"user","content":{content}}}"#))
                .unwrap()
                .content_key()
        };
        assert_eq!(key(r#"" hi\n""#), "hi");
        assert_eq!(key(r#"[{"type":"text","text":"hi"}]"#), "hi");
        assert_eq!(key("null"), "");
        assert_ne!(
            key(r#"[{"type":"image_url","image_url":{"url":"a"}}]"#),
            key(r#"[{"type":"image_url","image_url":{"url":"b"}}]"#)
        );
    }

    #[test]
    fn an_assistant_message_is_written_as_openai_writes_it() {
        let call = ToolCall {
            id: "c".into(),
            name: "f".into(),
            arguments: "{}".into(),
            kind: CallKind::Function,
            members: CallMembers::default(),
        };
        let parts = AssistantParts {
            tool_calls: std::slice::from_ref(&call),
            ..AssistantParts::default()
        };
        let message = Message::assistant(&parts);
        assert!(
            message
                .json_str()
                .starts_with(r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c""#)
        );
        assert_eq!(Message::parse(message.json_str()).unwrap(), message);
        assert_eq!(
            message.with_tool_calls(&[]).json_str(),
            r#"{"role":"assistant","content":null}"#
        );
    }
}
