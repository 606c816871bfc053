//! The members of a chat request that loopwright acts on.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::extensions::ExtensionFields;
use protocol::openai::message::{Message, Role};
use protocol::openai::raw::{RawObject, slice_of};
use protocol::openai::request::RequestError;

/// A member of the body and its name. Reading consumes it, so that no member is read twice.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) name: &'static str,
    /// The unparsed value, which may be `null`.
    value: Option<&'a RawValue>,
}

/// The members that loopwright acts on, in the order in which they are read.
#[derive(Debug)]
pub(super) struct ChatFields<'a> {
    pub(super) model: Field<'a>,
    pub(super) tools: ToolFields<'a>,
    pub(super) extensions: ExtensionFields<'a>,
    pub(super) messages: MessageFields<'a>,
    /// Whether the body has the legacy `functions`.
    pub(super) has_functions: bool,
}

/// The members that declare tools or request capabilities.
#[derive(Debug)]
pub(super) struct ToolFields<'a> {
    pub(super) tools: Field<'a>,
    pub(super) enable_code_execution: Field<'a>,
    pub(super) files: Field<'a>,
    pub(super) web_search_options: Field<'a>,
}

/// The members that only a turn needs.
#[derive(Debug)]
pub(super) struct MessageFields<'a> {
    pub(super) messages: Field<'a>,
    pub(super) tool_choice: Field<'a>,
    pub(super) stream: Field<'a>,
    pub(super) stream_options: Field<'a>,
    pub(super) n: Field<'a>,
    pub(super) user: Field<'a>,
}

impl<'a> Field<'a> {
    /// A member of an object; the last one where the key is repeated.
    pub(super) fn of(object: &RawObject<'a>, name: &'static str) -> Self {
        let value = object.get(name);
        Self { name, value }
    }

    /// Whether the value has exactly this JSON text.
    pub(super) fn is(&self, json: &str) -> bool {
        self.value.is_some_and(|value| value.get() == json)
    }

    /// The unparsed value, unless it is absent or `null`.
    pub(super) fn raw(self) -> Option<&'a RawValue> {
        self.value.filter(|value| value.get() != "null")
    }

    /// The value as a type; `None` if it is absent or `null`. `expected` describes the type in the error.
    ///
    /// # Errors
    /// When the value is of another type.
    pub(super) fn read<T: Deserialize<'a>>(
        self,
        expected: &str,
    ) -> Result<Option<T>, RequestError> {
        let name = self.name;
        self.raw()
            .map(|value| serde_json::from_str(value.get()))
            .transpose()
            .map_err(|_| RequestError::invalid(name, &format!("must be {expected}")))
    }
}

impl<'a> ChatFields<'a> {
    pub(super) fn sort(object: &RawObject<'a>) -> Self {
        let field = |name| Field::of(object, name);
        Self {
            model: field("model"),
            tools: ToolFields {
                tools: field("tools"),
                enable_code_execution: field("enable_code_execution"),
                files: field("files"),
                web_search_options: field(super::web::OPTIONS),
            },
            extensions: ExtensionFields::of(object),
            messages: MessageFields {
                messages: field("messages"),
                tool_choice: field("tool_choice"),
                stream: field("stream"),
                stream_options: field("stream_options"),
                n: field("n"),
                user: field("user"),
            },
            has_functions: object.get("functions").is_some(),
        }
    }
}

impl MessageFields<'_> {
    /// The id of the call that the last message answers, if that is a tool result.
    pub(super) fn answered_call(&self) -> Option<String> {
        let messages = self.messages.value?.get();
        // The messages are parsed only if the text can contain a tool result; most requests have none.
        memchr::memmem::find(messages.as_bytes(), b"tool_call_id")?;
        let entries: Vec<&RawValue> = serde_json::from_str(messages).ok()?;
        let last = Message::parse(entries.last()?.get()).ok()?;
        let result = *last.role() == Role::Tool;
        last.tool_call_id().filter(|_| result).map(str::to_owned)
    }
}

/// The name of the model.
///
/// # Errors
/// When it is missing or not a string.
pub(super) fn model(field: Field<'_>) -> Result<String, RequestError> {
    let missing = || {
        let message = "'model' is missing; send the id of a model that GET /v1/models lists";
        RequestError::field("model", message)
    };
    let model: Cow<'_, str> = field.read("a string")?.ok_or_else(missing)?;
    Ok(model.into_owned())
}

/// Whether a stream ends with a usage chunk.
///
/// # Errors
/// When `stream_options` has the wrong shape.
pub(super) fn include_usage(options: Option<&RawValue>) -> Result<bool, RequestError> {
    #[derive(Deserialize)]
    struct StreamOptions {
        include_usage: Option<bool>,
    }
    let Some(options) = options else {
        return Ok(false);
    };
    let options: StreamOptions = serde_json::from_str(options.get()).map_err(|_| {
        let message = "'stream_options' must be an object such as {\"include_usage\": true}";
        RequestError::field("stream_options", message)
    })?;
    Ok(options.include_usage.unwrap_or(false))
}

/// The messages. They share the bytes of the body if they are most of it.
///
/// # Errors
/// When there is none, there are more than `most`, or one has the wrong shape.
pub(super) fn messages(
    field: Field<'_>,
    most: usize,
    body: &Bytes,
    names_session: bool,
) -> Result<Vec<Message>, RequestError> {
    let length = field.value.map_or(0, |value| value.get().len());
    let entries: Option<Vec<&RawValue>> = field.read("an array of messages")?;
    // A turn of the session that waits goes on without a message.
    let may_be_empty = names_session && entries.is_some();
    let entries = entries.unwrap_or_default();
    if entries.is_empty() && !may_be_empty {
        let message = "'messages' is missing or empty; send at least one message";
        return Err(RequestError::field("messages", message));
    }
    if entries.len() > most {
        let message = format!(
            "'messages' has {} messages; at most {most} are allowed",
            entries.len()
        );
        return Err(RequestError::field("messages", message));
    }
    // A message that is kept for long keeps the whole body.
    let shares = length > body.len() / 2;
    let parse = |(index, entry): (usize, &RawValue)| {
        let parsed = match shares {
            true => Message::parse_shared(entry.get(), slice_of(body, entry.get())),
            false => Message::parse(entry.get()),
        };
        parsed.map_err(|problem| {
            let param = format!("messages[{index}]");
            RequestError::invalid(&param, &problem)
        })
    };
    entries.into_iter().enumerate().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_invalid_field() {
        let param = |json: &str| {
            let object = RawObject::parse(json).unwrap();
            let ChatFields {
                model: name,
                tools,
                messages: fields,
                ..
            } = ChatFields::sort(&object);
            let result = model(name)
                .map(drop)
                .and_then(|()| fields.stream.read::<bool>("true or false").map(drop))
                .and_then(|()| include_usage(fields.stream_options.raw()).map(drop))
                .and_then(|()| messages(fields.messages, 2, &Bytes::new(), false).map(drop))
                .and_then(|()| super::super::tools::entries(tools.tools).map(drop));
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
                r#"{"model":"m","messages":[{"role":"user"}],"tools":{}}"#,
                "tools",
            ),
        ] {
            assert_eq!(param(json), expected, "{json}");
        }
    }
}
