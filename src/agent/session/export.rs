//! Exports sessions as JSON and imports them.
//!
//! Messages are written and read as their stored text, so that `messages` is a plain list of OpenAI chat messages.
//! Metadata of messages (hidden messages, the client's view of a response) is in a separate object. Session exports of
//! mistral.rs can be imported too.

mod mistral;
mod schema;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use self::mistral::PendingImages;
pub use self::schema::{SessionExport, SessionImport};
use super::files::StoredFile;
use super::{StoredMessage, StoredSession, View};
use protocol::ids::{RunId, SessionId, shown};
use protocol::openai::citation::CitedSource;
use protocol::openai::message::{Message, Role};
use protocol::openai::metadata::metadata;
use protocol::openai::raw::{RawObject, push_entry, quoted};
use protocol::openai::request::RequestError;

/// The role of results in OpenAI's older form of tool calls, which servers still accept.
const LEGACY_FUNCTION: &str = "function";

/// The metadata of a message in an export.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct MessageMeta {
    /// The index of the message in `messages`.
    index: usize,
    /// Whether the client did not receive it as a message of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
    /// What the client received as one answer, whose last message this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<View>,
    /// The whole text of a tool result, if the model received a shortened one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    full_text: Option<String>,
    /// The sources of a tool result, with the numbers that citations use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<CitedSource>,
}

/// Writes a session as JSON.
///
/// `messages` holds the instructions and then all messages, hidden ones included. `agent.message_meta` has an entry for
/// each message with metadata; its `index` refers to `messages`. `files` lists the files of the session without their
/// contents, and `running` is the run that is going on.
pub fn export(
    id: &SessionId,
    session: &StoredSession,
    files: &[StoredFile],
    running: Option<&RunId>,
) -> String {
    let stored = session.messages.iter().map(|stored| &stored.message);
    let messages = || session.instructions.iter().chain(stored.clone());
    let texts: Vec<&str> = messages()
        .map(|message| message.json_str().trim())
        .collect();
    let count = |role: Role| messages().filter(|one| one.role() == &role).count();
    let calls: usize = messages().map(|message| message.tool_calls().len()).sum();
    let stats = format!(
        r#"{{"message_count":{},"user_messages":{},"assistant_messages":{},"tool_calls":{calls}}}"#,
        texts.len(),
        count(Role::User),
        count(Role::Assistant),
    );
    let meta: Vec<String> = session
        .messages
        .iter()
        .enumerate()
        .filter_map(|(index, stored)| meta_json(session.instructions.len() + index, stored))
        .collect();
    let mut json = String::from("{");
    push_entry(&mut json, "id", &quoted(id.as_str()));
    push_entry(&mut json, "object", "\"session\"");
    push_entry(&mut json, "created_at", &session.created_at.to_string());
    push_entry(&mut json, "updated_at", &session.updated_at.to_string());
    for (key, run) in [
        ("running", running),
        ("last_run", session.last_run.as_ref()),
    ] {
        let run = run.map(|run| quoted(&run.completion_id()));
        push_entry(&mut json, key, run.as_deref().unwrap_or("null"));
    }
    push_entry(&mut json, "messages", &format!("[{}]", texts.join(",")));
    let files: Vec<String> = files
        .iter()
        .filter_map(|file| serde_json::to_string(file).ok())
        .collect();
    push_entry(&mut json, "files", &format!("[{}]", files.join(",")));
    push_entry(&mut json, "stats", &stats);
    if let Some(metadata) = &session.metadata {
        push_entry(&mut json, "metadata", metadata);
    }
    let agent = format!(r#"{{"message_meta":[{}]}}"#, meta.join(","));
    push_entry(&mut json, "agent", &agent);
    json.push('}');
    json
}

/// Parses a session: the output of [`export`], any object with a list of OpenAI messages, or an export of mistral.rs.
///
/// `id`, `files`, `stats`, `running`, `last_run` and unknown keys are ignored. The leading system and developer
/// messages become the instructions. A missing `created_at` or `updated_at` is set to the current time.
///
/// # Errors
/// When the text is no valid export. The error names the field and the remedy.
pub fn import(json: &str, max_messages: usize) -> Result<StoredSession, RequestError> {
    let object = RawObject::parse(json).map_err(|error| {
        let problem = if error.is_data() {
            "must be a JSON object; send the JSON of a session export".to_owned()
        } else {
            format!(
                "is not valid JSON (line {}, column {})",
                error.line(),
                error.column()
            )
        };
        RequestError::field("body", format!("the body {problem}"))
    })?;
    let list: Vec<&RawValue> = object
        .get_some("messages")
        .and_then(|list| serde_json::from_str(list.get()).ok())
        .ok_or_else(|| {
            RequestError::field("messages", "messages must be an array of chat messages")
        })?;
    check_count(list.len(), max_messages)?;
    let mut images = PendingImages::of(&object);
    let messages = list
        .into_iter()
        .enumerate()
        .map(|(index, message)| read_message(index, message, &mut images))
        .collect::<Result<Vec<Message>, _>>()?;
    let mut meta = read_meta(&object, messages.len())?;
    if meta.is_empty() {
        // Metadata refers to messages by index, so messages may be added only if there is no metadata.
        let completed = mistral::with_call_ids(messages);
        check_count(completed.len(), max_messages)?;
        return session(&object, completed, &mut BTreeMap::new());
    }
    let messages = messages
        .into_iter()
        .map(|message| (message, false))
        .collect();
    session(&object, messages, &mut meta)
}

/// Builds a session from messages with a flag for hidden ones; the metadata can hide a message too.
fn session(
    object: &RawObject<'_>,
    mut messages: Vec<(Message, bool)>,
    meta: &mut BTreeMap<usize, MessageMeta>,
) -> Result<StoredSession, RequestError> {
    let leading = messages
        .iter()
        .enumerate()
        .take_while(|(index, (message, _))| message.is_instruction() && !meta.contains_key(index))
        .count();
    let rest = messages.split_off(leading);
    let rest = rest
        .into_iter()
        .enumerate()
        .map(|(index, (message, hidden))| {
            let meta = meta.remove(&(leading + index)).unwrap_or_default();
            StoredMessage {
                message,
                hidden: hidden || meta.hidden,
                view: meta.view,
                full_text: meta.full_text,
                sources: meta.sources,
            }
        });
    let metadata =
        metadata(object).map_err(|error| RequestError::field("metadata", error.message))?;
    let metadata = metadata.filter(|metadata| !metadata.is_empty());
    Ok(StoredSession {
        metadata: metadata.map(|metadata| Value::Object(metadata).to_string()),
        messages: rest.collect(),
        instructions: messages.into_iter().map(|(message, _)| message).collect(),
        created_at: read_time(object, "created_at")?,
        updated_at: read_time(object, "updated_at")?,
        last_run: None,
        turn: None,
    })
}

fn meta_json(index: usize, stored: &StoredMessage) -> Option<String> {
    if !stored.hidden
        && stored.view.is_none()
        && stored.full_text.is_none()
        && stored.sources.is_empty()
    {
        return None;
    }
    let meta = MessageMeta {
        index,
        hidden: stored.hidden,
        view: stored.view.clone().map(|view| View {
            behind_wait: None,
            completion: None,
            ..view
        }),
        full_text: stored.full_text.clone(),
        sources: stored.sources.clone(),
    };
    serde_json::to_string(&meta).ok()
}

fn read_message(
    index: usize,
    raw: &RawValue,
    images: &mut PendingImages,
) -> Result<Message, RequestError> {
    let fail = |problem: &str| {
        let text = format!("messages[{index}] {problem}; send an OpenAI chat message");
        RequestError::field(&format!("messages[{index}]"), text)
    };
    // `RawValue` accepts any depth of nesting; `Value` has the limit of the code that reads the message later.
    serde_json::from_str::<Value>(raw.get())
        .map_err(|_| fail("is nested too deeply or not valid"))?;
    let plain = mistral::unwrap_message(raw.get(), images);
    let message = Message::parse(&plain).map_err(|problem| fail(&problem))?;
    check_role(index, message.role())?;
    let content = RawObject::parse(&plain)
        .ok()
        .and_then(|object| object.get_some("content"));
    let valid = content.is_none_or(|content| {
        let parts = || serde_json::from_str::<Vec<RawObject<'_>>>(content.get());
        content.get().starts_with('"') || parts().is_ok()
    });
    match valid {
        true => Ok(message),
        false => Err(fail(
            "has a content that is neither a string nor a list of content parts",
        )),
    }
}

/// Refuses a role that model servers do not support: it would make every later turn of the session fail.
fn check_role(index: usize, role: &Role) -> Result<(), RequestError> {
    match role {
        Role::Other(word) if &**word != LEGACY_FUNCTION => {
            let param = format!("messages[{index}].role");
            let word = shown(word);
            let text = format!(
                "{param} is \"{word}\", which is no role of a chat message; write system, developer, user, assistant or tool"
            );
            Err(RequestError::field(&param, text))
        }
        Role::System
        | Role::Developer
        | Role::User
        | Role::Assistant
        | Role::Tool
        | Role::Other(_) => Ok(()),
    }
}

fn read_meta(
    object: &RawObject<'_>,
    count: usize,
) -> Result<BTreeMap<usize, MessageMeta>, RequestError> {
    const FIELD: &str = "agent.message_meta";
    let remedy = "omit it, or send it as exported";
    let Some(agent) = object.get_some("agent") else {
        return Ok(BTreeMap::new());
    };
    let agent = RawObject::parse(agent.get())
        .map_err(|_| RequestError::field("agent", format!("agent must be an object; {remedy}")))?;
    let Some(list) = agent.get_some("message_meta") else {
        return Ok(BTreeMap::new());
    };
    let list: Vec<&RawValue> = serde_json::from_str(list.get())
        .map_err(|_| RequestError::field(FIELD, format!("{FIELD} must be an array; {remedy}")))?;
    let mut entries = BTreeMap::new();
    for (position, entry) in list.into_iter().enumerate() {
        let fail = |problem: &str| {
            let param = format!("{FIELD}[{position}]");
            RequestError::field(&param, format!("{param} {problem}; {remedy}"))
        };
        let meta: MessageMeta = serde_json::from_str(entry.get()).map_err(|_| {
            fail("must be an object with an index and the metadata of that message")
        })?;
        if meta.index >= count {
            return Err(fail("has an index past the last message"));
        }
        if entries.insert(meta.index, meta).is_some() {
            return Err(fail("repeats an index"));
        }
    }
    Ok(entries)
}

fn read_time(object: &RawObject<'_>, field: &str) -> Result<i64, RequestError> {
    let Some(value) = object.get_some(field) else {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        return Ok(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    };
    serde_json::from_str(value.get())
        .ok()
        .filter(|seconds| *seconds >= 0)
        .ok_or_else(|| {
            let text = format!(
                "{field} must be an integer of Unix seconds; omit it to use the current time"
            );
            RequestError::field(field, text)
        })
}

fn check_count(count: usize, max_messages: usize) -> Result<(), RequestError> {
    if count <= max_messages {
        return Ok(());
    }
    let text = format!(
        "the session has {count} messages, but at most {max_messages} are allowed; omit the oldest"
    );
    Err(RequestError::field("messages", text))
}

#[cfg(test)]
mod tests;
