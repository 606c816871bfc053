//! Decodes a chat request into the draft of a turn. No field is parsed twice. The messages are not parsed here, because
//! the messages of a request that passes through are never parsed.

mod schema;

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub(crate) use self::schema::ChatRequest;
use crate::dialects::fields::extensions::{ExtensionFields, Extensions};
use crate::dialects::fields::field::Field;
use crate::dialects::fields::head::{PROGRESS_HEADER, RequestHead};
use crate::dialects::fields::hosted::{HostedFields, ToolEntry};
use agent::draft::{
    CallDraft, Decoded, DraftInput, DraftMessages, DraftTools, FaultScope, Faults, TurnDraft,
    UnreadMessages,
};
use agent::options::Options;
use agent::settings::ImageStyle;
use protocol::openai::raw::{RawObject, quoted, slice_of};
use protocol::openai::request::{RequestError, body_object, one_of};

/// Members that every model call replaces by its own, or that the loop applies itself.
const OWN: [&str; 7] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "max_tool_calls",
];

/// How progress is sent on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProgressMode {
    /// `Chunk` for the official SDKs, else `Named`.
    #[default]
    Auto,
    /// As chunks with an `event:` line.
    Named,
    /// As chunks without an `event:` line.
    Chunk,
    /// Progress is not sent.
    None,
}

/// The words of `agent.progress`.
const PROGRESS: [(&str, ProgressMode); 4] = [
    ("auto", ProgressMode::Auto),
    ("named", ProgressMode::Named),
    ("chunk", ProgressMode::Chunk),
    ("none", ProgressMode::None),
];

/// A chat request, and how its client wants the answer.
#[derive(Debug)]
pub(crate) struct DecodedChat {
    /// The draft.
    pub(crate) decoded: Decoded,
    /// The options of the encoder.
    pub(crate) reply: ChatOptions,
}

/// How the client wants the answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ChatOptions {
    /// The model as the client named it.
    pub(crate) model: String,
    /// Whether the answer is streamed.
    pub(crate) stream: bool,
    /// Whether a stream ends with a usage chunk.
    pub(crate) include_usage: bool,
    /// How progress is sent on a stream.
    pub(crate) progress: ProgressMode,
    /// Whether the client is an official SDK.
    pub(crate) official_sdk: bool,
    /// How images of tools are sent.
    pub(crate) images: ImageStyle,
}

/// Decodes a chat request, given the JSON text of its body and its head.
///
/// # Errors
/// When the body is not a JSON object. What is wrong with its fields is in the faults.
pub(crate) fn decode(body: &Bytes, head: &RequestHead) -> Result<DecodedChat, RequestError> {
    let object = body_object(body)?;
    let mut faults = Faults::default();
    let field = |name| Field::of(&object, name);
    let by_head = head.progress.as_deref();
    let by_head = by_head.map(|word| one_of(PROGRESS_HEADER, word, &PROGRESS));
    let by_head = faults.note(FaultScope::Head, by_head.transpose());
    let model = faults.note(FaultScope::Head, model(field("model")));
    let mut tools = tools(&object, &mut faults);
    let fields = ExtensionFields::of(&object);
    let (extended, rounds) = (fields.used || head.names_session(), fields.rounds());
    let read = fields.read(head, wants_json(field("response_format")));
    let read = read.and_then(|extensions| {
        let word = extensions.progress.as_deref();
        let progress = word.map(|word| one_of("agent.progress", word, &PROGRESS));
        Ok((progress.transpose()?, extensions))
    });
    let (progress, extensions) = faults.note(FaultScope::Extensions, read);
    let Extensions {
        options,
        permissions,
        filter,
        ..
    } = extensions;
    tools.filter = filter;
    let choices = faults.note(FaultScope::Turn, field("n").read("a whole number"));
    let user = faults.note(FaultScope::Turn, field("user").read("a string"));
    let stream = field("stream").read("true or false");
    let stream = faults.note(FaultScope::Turn, stream).unwrap_or(false);
    let stream_options = field("stream_options").raw();
    let include_usage = faults.note(FaultScope::Turn, include_usage(stream_options));
    let options = Options {
        max_tool_rounds: rounds.unwrap_or(options.max_tool_rounds),
        streamed: stream,
        ..options
    };
    let left_out = [&ExtensionFields::NAMES[..], &OWN].concat();
    let names_session = options.session_id.is_some();
    let draft = TurnDraft {
        input: DraftInput {
            messages: messages(body, &object, head.max_messages, names_session),
            ..DraftInput::default()
        },
        call: CallDraft {
            members: object.members_without(&left_out).into(),
            stream_options: stream_options.map(|options| options.get().into()),
            choices,
            instructions: None,
        },
        model: model.clone(),
        user,
        extended,
        options,
        permissions,
        tools,
        lacks_servers: false,
    };
    let reply = ChatOptions {
        model,
        stream,
        include_usage,
        progress: progress.or(by_head).unwrap_or_default(),
        official_sdk: head.official_sdk,
        images: ImageStyle::default(),
    };
    let decoded = Decoded { draft, faults };
    Ok(DecodedChat { decoded, reply })
}

/// The tools that a request declares and the tools that it asks for.
fn tools(object: &RawObject<'_>, faults: &mut Faults) -> DraftTools {
    let entries = Field::of(object, "tools").read("an array of tool definitions");
    let entries: Option<Vec<&RawValue>> = faults.note(FaultScope::Request, entries);
    let entries = entries.unwrap_or_default().into_iter().enumerate();
    let entries = entries.map(|(index, json)| ToolEntry::of_chat(index, json));
    let tools = HostedFields::of(object).read(entries.collect(), faults);
    let choice = Field::of(object, "tool_choice").raw();
    DraftTools {
        choice: choice.map(|choice| choice.get().into()),
        legacy_functions: object.get("functions").is_some(),
        ..tools
    }
}

/// The messages, which are not parsed. They share the bytes of the body if they are most of it.
fn messages(
    body: &Bytes,
    object: &RawObject<'_>,
    most: usize,
    may_be_empty: bool,
) -> DraftMessages {
    let text = object.get("messages").map(RawValue::get);
    DraftMessages::Unread(UnreadMessages {
        shares: text.is_some_and(|text| text.len() > body.len() / 2),
        text: text.map(|text| slice_of(body, text)),
        most,
        may_be_empty,
    })
}

/// The name of the model.
///
/// # Errors
/// When it is missing or not a string.
fn model(field: Field<'_>) -> Result<String, RequestError> {
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
fn include_usage(options: Option<&RawValue>) -> Result<bool, RequestError> {
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

/// Whether the answer is to be a JSON document.
fn wants_json(response_format: Field<'_>) -> bool {
    let format = response_format.raw();
    let format = format.and_then(|format| RawObject::parse(format.get()).ok());
    let kind = format.and_then(|format| format.get_some("type"));
    let kind = kind.and_then(|kind| serde_json::from_str::<String>(kind.get()).ok());
    kind.is_some_and(|kind| matches!(&*kind, "json_object" | "json_schema"))
}

/// The body of a request without its number of rounds, which upstreams do not accept.
pub(crate) fn without_rounds(body: &Bytes) -> Bytes {
    match body_object(body) {
        Ok(object) => format!("{{{}}}", object.members_without(&["max_tool_rounds"])).into(),
        Err(_) => body.clone(),
    }
}

/// The body with the upstream's name of the model; the same bytes if the names are equal.
pub(crate) fn with_model_name(bytes: &Bytes, model: &str, name: &str) -> Bytes {
    if name == model {
        return bytes.clone();
    }
    let Ok(object) = body_object(bytes) else {
        return bytes.clone();
    };
    let mut json = format!("{{\"model\":{}", quoted(name));
    let members = object.members_without(&["model"]);
    if !members.is_empty() {
        json.push(',');
        json.push_str(&members);
    }
    json.push('}');
    json.into()
}

#[cfg(test)]
mod tests;
