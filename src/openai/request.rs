//! The body of a chat request: the fields that loopwright acts on, the others as the text they came in.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::{Message, Role};
use super::raw::{RawObject, push_entry};
use super::tool::{ToolDefinition, ToolDefinitionError};

/// What is wrong with a request, for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The field at fault.
    pub param: Option<String>,
    /// The field, the value's problem and the remedy.
    pub message: String,
    /// The field names a thing that does not exist.
    pub missing: bool,
}

/// A chat request's body, read once; values are parsed when they are asked for.
#[derive(Debug)]
pub struct ChatBody<'a> {
    object: RawObject<'a>,
}

impl RequestError {
    /// An error about one field.
    pub fn field(param: &str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.to_owned()),
            message: message.into(),
            missing: false,
        }
    }

    /// An error about the body as a whole.
    pub fn body(message: impl Into<String>) -> Self {
        Self {
            param: None,
            message: message.into(),
            missing: false,
        }
    }
}

impl<'a> ChatBody<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// When it is not one JSON object in UTF-8.
    pub fn parse(body: &'a [u8]) -> Result<Self, RequestError> {
        let text = std::str::from_utf8(body)
            .map_err(|_| RequestError::body("the body is not UTF-8; send JSON encoded as UTF-8"))?;
        let object = RawObject::parse(text).map_err(|error| {
            RequestError::body(format!(
                "the body is not a JSON object ({error}); send one JSON object"
            ))
        })?;
        Ok(Self { object })
    }

    /// A field as JSON text, unless it is absent or `null`.
    pub fn field(&self, key: &str) -> Option<&'a RawValue> {
        self.object.get_some(key)
    }

    /// Whether the body has the field at all, `null` included.
    pub fn has(&self, key: &str) -> bool {
        self.object.get(key).is_some()
    }

    /// A field read as a type.
    ///
    /// # Errors
    /// When the value is of another type; `expected` says in words what it must be.
    pub fn typed<T: Deserialize<'a>>(
        &self,
        key: &str,
        expected: &str,
    ) -> Result<Option<T>, RequestError> {
        self.field(key)
            .map(|value| serde_json::from_str(value.get()))
            .transpose()
            .map_err(|_| RequestError::field(key, format!("'{key}' must be {expected}")))
    }

    /// The model's name.
    ///
    /// # Errors
    /// When it is missing or not a string.
    pub fn model(&self) -> Result<Cow<'a, str>, RequestError> {
        self.typed::<Cow<'a, str>>("model", "a string")?
            .ok_or_else(|| {
                RequestError::field(
                    "model",
                    "'model' is missing; name one of the models of GET /v1/models",
                )
            })
    }

    /// Whether the answer is to be streamed.
    ///
    /// # Errors
    /// When `stream` is not a boolean.
    pub fn stream(&self) -> Result<bool, RequestError> {
        Ok(self.typed("stream", "true or false")?.unwrap_or(false))
    }

    /// Whether a stream ends with a usage chunk.
    ///
    /// # Errors
    /// When `stream_options` has the wrong shape.
    pub fn include_usage(&self) -> Result<bool, RequestError> {
        #[derive(Deserialize)]
        struct StreamOptions {
            include_usage: Option<bool>,
        }
        let expected = "an object such as {\"include_usage\": true}";
        let options: Option<StreamOptions> = self.typed("stream_options", expected)?;
        Ok(options
            .and_then(|options| options.include_usage)
            .unwrap_or(false))
    }

    /// The entries of `tools[]`.
    ///
    /// # Errors
    /// When `tools` is not an array.
    pub fn tool_entries(&self) -> Result<Vec<&'a RawValue>, RequestError> {
        Ok(self
            .typed("tools", "an array of tool definitions")?
            .unwrap_or_default())
    }

    /// The function and custom tools of `tools[]`; hosted types are split off by name.
    ///
    /// # Errors
    /// When an entry has the wrong shape.
    pub fn tools(&self) -> Result<(Vec<ToolDefinition>, Vec<String>), RequestError> {
        let (mut functions, mut hosted) = (Vec::new(), Vec::new());
        for (index, entry) in self.tool_entries()?.into_iter().enumerate() {
            match ToolDefinition::parse(entry) {
                Ok(definition) => functions.push(definition),
                Err(ToolDefinitionError::Hosted(kind)) => hosted.push(kind),
                Err(ToolDefinitionError::Shape(problem)) => {
                    let param = format!("tools[{index}]");
                    return Err(RequestError::field(&param, format!("'{param}' {problem}")));
                }
            }
        }
        Ok((functions, hosted))
    }

    /// The messages.
    ///
    /// # Errors
    /// When there are none, more than `most`, or one has the wrong shape.
    pub fn messages(&self, most: usize) -> Result<Vec<Message>, RequestError> {
        let entries: Vec<&RawValue> = self
            .typed("messages", "an array of messages")?
            .unwrap_or_default();
        if entries.is_empty() {
            return Err(RequestError::field(
                "messages",
                "'messages' is missing or empty; send at least one message",
            ));
        }
        if entries.len() > most {
            let message = format!(
                "'messages' holds {} messages; at most {most} are taken",
                entries.len()
            );
            return Err(RequestError::field("messages", message));
        }
        let parse = |(index, entry): (usize, &RawValue)| {
            let param = format!("messages[{index}]");
            Message::parse(entry.get())
                .map_err(|problem| RequestError::field(&param, format!("'{param}' {problem}")))
        };
        entries.into_iter().enumerate().map(parse).collect()
    }

    /// The call that the last message answers, if it is a tool's result.
    pub fn answered_call(&self) -> Option<String> {
        let messages = self.field("messages")?.get();
        // Most conversations hold no results at all, and are not read any further here.
        memchr::memmem::find(messages.as_bytes(), b"tool_call_id")?;
        let entries: Vec<&RawValue> = serde_json::from_str(messages).ok()?;
        let last = Message::parse(entries.last()?.get()).ok()?;
        let result = *last.role() == Role::Tool;
        last.tool_call_id().filter(|_| result).map(str::to_owned)
    }

    /// The members of the body other than the given ones, as JSON text without braces.
    pub fn members_without(&self, left_out: &[&str]) -> String {
        let mut members = String::new();
        for (key, value) in self
            .object
            .iter()
            .filter(|(key, _)| !left_out.contains(key))
        {
            if members.is_empty() {
                let mut first = String::from("{");
                push_entry(&mut first, key, value.get());
                members.push_str(first.trim_start_matches('{'));
            } else {
                push_entry(&mut members, key, value.get());
            }
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_nobody_acts_on_keep_their_text() {
        let body =
            br#"{"model":"m","temperature":0.20,"x":{"a": [1]},"messages":[],"stream":true}"#;
        let body = ChatBody::parse(body).unwrap();
        assert_eq!(
            body.members_without(&["model", "messages", "stream"]),
            r#""temperature":0.20,"x":{"a": [1]}"#
        );
        assert_eq!(ChatBody::parse(b"{}").unwrap().members_without(&[]), "");
    }

    #[test]
    fn wrong_fields_are_named_with_a_remedy() {
        let param = |json: &str| {
            let body = ChatBody::parse(json.as_bytes()).unwrap();
            let result = body
                .model()
                .map(drop)
                .and_then(|()| body.stream().map(drop));
            let result = result.and_then(|()| body.include_usage().map(drop));
            let result = result
                .and_then(|()| body.messages(2).map(drop))
                .and_then(|()| body.tools().map(drop));
            result.unwrap_err().param.unwrap_or_default()
        };
        for (json, expected) in [
            (r#"{}"#, "model"),
            (r#"{"model":3}"#, "model"),
            (r#"{"model":"m","stream":"yes"}"#, "stream"),
            (r#"{"model":"m","stream_options":1}"#, "stream_options"),
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","messages":{}}"#, "messages"),
            (
                r#"{"model":"m","messages":[{"role":"user"},{}]}"#,
                "messages[1]",
            ),
            (
                r#"{"model":"m","messages":[{"role":"user"},{"role":"user"},{"role":"user"}]}"#,
                "messages",
            ),
            (
                r#"{"model":"m","messages":[{"role":"user"}],"tools":[{"type":"function"}]}"#,
                "tools[0]",
            ),
        ] {
            assert_eq!(param(json), expected, "{json}");
        }
        assert!(ChatBody::parse(b"[]").is_err());
        assert!(ChatBody::parse(b"{\"a\":\"\xff\"}").is_err());
    }
}
