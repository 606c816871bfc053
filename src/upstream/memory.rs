//! What an upstream attached to its messages and calls, and how it gets that back.
//!
//! Signatures, thinking blocks, ids that carry state and unknown members travel unchanged in the stored message. A
//! member of the message names the upstream that they come from, and the ids that it gave to its calls. That upstream
//! is sent all of it; another upstream gets only what any model server accepts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::reply::MEMBER;
pub use super::reply::MessageOrigin;
use super::settings::ServerKind;
use protocol::ids::CallIdStyle;
use protocol::openai::message::{FieldChange, Message, REASONING_FIELDS, Role};
use protocol::openai::raw::{RawObject, quoted};
use protocol::openai::tool::{CallMembers, ToolCall};

/// Members of an assistant message that every model server takes, besides those for reasoning: servers that do not know
/// these ignore them, and the quirk `send_reasoning` leaves them out.
const COMMON: [&str; 5] = ["role", "content", "name", "refusal", "tool_calls"];

/// Gives one upstream its messages back as it sent them.
#[derive(Debug)]
pub struct UpstreamMemory {
    upstream: Arc<str>,
    /// The kind of the upstream. Servers of one kind accept members that another server of this kind has attached.
    kind: Option<ServerKind>,
    /// The form of ids that it takes.
    style: CallIdStyle,
    /// The upstream's ids, by the ids in the messages.
    ids: HashMap<String, String>,
    /// The upstream's ids that are in use. Some servers give the same id to calls of different messages.
    used: HashSet<String>,
}

impl UpstreamMemory {
    /// The memory of a conversation, before its first message.
    pub fn new(upstream: &str, kind: Option<ServerKind>, style: CallIdStyle) -> Self {
        Self {
            upstream: upstream.into(),
            kind,
            style,
            ids: HashMap::new(),
            used: HashSet::new(),
        }
    }

    /// The next message of the conversation in the form that the upstream sent.
    #[must_use]
    pub fn restored(&mut self, message: &Message) -> Message {
        match message.role() {
            Role::Tool => self.result(message),
            Role::Assistant if has_member(message) => self.assistant(message),
            Role::Assistant | Role::System | Role::Developer | Role::User | Role::Other(_) => {
                message.clone()
            }
        }
    }

    fn result(&self, message: &Message) -> Message {
        let id = message.tool_call_id().and_then(|id| self.ids.get(id));
        let Some(id) = id else {
            return message.clone();
        };
        message.with_fields(|key| match key {
            "tool_call_id" => FieldChange::Set(quoted(id)),
            _ => FieldChange::Keep,
        })
    }

    fn assistant(&mut self, message: &Message) -> Message {
        let object = RawObject::parse(message.json_str()).unwrap_or_default();
        let Some(member) = object.get(MEMBER) else {
            return message.clone();
        };
        match serde_json::from_str(member.get()) {
            Ok(MessageOrigin {
                name,
                kind,
                call_ids,
            }) if name == *self.upstream || (kind.is_some() && kind == self.kind) => {
                let calls = self.with_own_ids(message.tool_calls(), call_ids);
                message.with_fields(|key| match (key, &calls) {
                    (MEMBER, _) => FieldChange::Drop,
                    ("tool_calls", Some(calls)) => FieldChange::Set(calls.clone()),
                    _ => FieldChange::Keep,
                })
            }
            Ok(_) | Err(_) => foreign(message),
        }
    }

    /// The calls with the upstream's ids, as JSON text; none if no id changes.
    fn with_own_ids(&mut self, calls: &[ToolCall], known: Vec<(String, String)>) -> Option<String> {
        let mut known: HashMap<String, String> = known.into_iter().collect();
        let mut is_changed = false;
        let mut list = Vec::with_capacity(calls.len());
        for call in calls {
            let own = known.remove(&call.id);
            let own = own.filter(|id| self.style.fits(id) && self.used.insert(id.clone()));
            let Some(id) = own else {
                list.push(call.to_json(None));
                continue;
            };
            is_changed = true;
            self.ids.insert(call.id.clone(), id.clone());
            let call = ToolCall { id, ..call.clone() };
            list.push(call.to_json(None));
        }
        is_changed.then(|| format!("[{}]", list.join(",")))
    }
}

/// Whether a message may have the member.
fn has_member(message: &Message) -> bool {
    memchr::memmem::find(message.json(), MEMBER.as_bytes()).is_some()
}

/// A message of another upstream: its text, its reasoning and its calls.
fn foreign(message: &Message) -> Message {
    let calls: Vec<String> = message
        .tool_calls()
        .iter()
        .map(|call| {
            let members = CallMembers::default();
            let call = ToolCall {
                members,
                ..call.clone()
            };
            call.to_json(None)
        })
        .collect();
    message.with_fields(|key| match key {
        "tool_calls" => FieldChange::Set(format!("[{}]", calls.join(","))),
        "content" => match text_parts(message) {
            Some(parts) => FieldChange::Set(parts),
            None => FieldChange::Keep,
        },
        _ if COMMON.contains(&key) || REASONING_FIELDS.contains(&key) => FieldChange::Keep,
        _ => FieldChange::Drop,
    })
}

/// The content of a message that is a list: its text.
fn text_parts(message: &Message) -> Option<String> {
    let object = RawObject::parse(message.json_str()).ok()?;
    let content = object.get_some("content")?;
    let parts: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let mut kept = String::new();
    for part in parts {
        let part = RawObject::parse(part.get()).ok()?;
        let text = part
            .get_some("text")
            .filter(|_| part.get("thinking").is_none());
        kept.push_str(&text.map_or_else(String::new, |text| {
            serde_json::from_str(text.get()).unwrap_or_default()
        }));
    }
    Some(quoted(&kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::ReplyAssembler;
    use protocol::openai::event::{ModelEvent, ToolCallDelta};

    fn with_origin(origin: &str, members: &str) -> Message {
        let calls = r#"[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}","strict":1},"extra":{"s":"x"}}]"#;
        let json = format!(
            r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"hm"}},{{"type":"text","text":"a"}}],"tool_calls":{calls}{members},"x_upstream":{origin}}}"#
        );
        Message::parse(&json).unwrap()
    }

    #[test]
    fn an_upstream_gets_its_own_messages_back_as_they_came() {
        let origin = r#"{"name":"u","call_ids":[["call_1","functions.f:0"]]}"#;
        let message = with_origin(origin, r#","reasoning_details":[1.0]"#);
        let mut memory = UpstreamMemory::new("u", None, CallIdStyle::Standard);
        let own = memory.restored(&message);
        assert_eq!(
            own.json_str(),
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"}],"tool_calls":[{"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{}","strict":1},"extra":{"s":"x"}}],"reasoning_details":[1.0]}"#
        );
        let result = memory.restored(&Message::tool_result("call_1", "r"));
        assert_eq!(result.tool_call_id(), Some("functions.f:0"));
        // An id that is in use is not used twice.
        let again = r#"{"name":"u","call_ids":[["call_1","functions.f:0"]]}"#;
        let again = memory.restored(&with_origin(again, ""));
        assert_eq!(again.tool_calls()[0].id, "call_1");
        // Nor one of a form that the server refuses.
        let mut short = UpstreamMemory::new("u", None, CallIdStyle::Short);
        assert_eq!(short.restored(&message).tool_calls()[0].id, "call_1");
    }

    #[test]
    fn another_upstream_gets_what_any_server_takes() {
        let origin = r#"{"name":"u","call_ids":[["call_1","functions.f:0"]]}"#;
        let members = r#","reasoning_details":[1.0],"reasoning_content":"r""#;
        let mut memory = UpstreamMemory::new("v", None, CallIdStyle::Standard);
        let other = memory.restored(&with_origin(origin, members));
        assert_eq!(
            other.json_str(),
            r#"{"role":"assistant","content":"a","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}],"reasoning_content":"r"}"#
        );
        let result = Message::tool_result("call_1", "r");
        assert_eq!(memory.restored(&result), result);
        // Servers of one kind know what they attach.
        let origin = r#"{"name":"u","kind":"gemini","call_ids":[]}"#;
        for (kind, knows) in [
            (Some(ServerKind::Gemini), true),
            (Some(ServerKind::Groq), false),
            (None, false),
        ] {
            let mut memory = UpstreamMemory::new("v", kind, CallIdStyle::Standard);
            let other = memory.restored(&with_origin(origin, members));
            assert_eq!(
                other.json_str().contains("reasoning_details"),
                knows,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn messages_without_an_origin_stay_as_they_are() {
        let message = Message::parse(
            r#"{"role":"assistant","content":"about x_upstream","reasoning_details":[1]}"#,
        );
        let message = message.unwrap();
        assert_eq!(
            UpstreamMemory::new("u", None, CallIdStyle::Standard).restored(&message),
            message
        );
    }

    #[test]
    fn the_origin_is_noted_where_something_was_attached() {
        let member = |event: ModelEvent| {
            let mut assembler = ReplyAssembler::new(false);
            assembler.push(&event).unwrap();
            let mut reply = assembler.so_far(CallIdStyle::Standard);
            let assembled = std::mem::take(&mut reply.calls);
            let origin = MessageOrigin::new("u", None, &assembled);
            let calls: Vec<ToolCall> = assembled.into_iter().map(|one| one.call).collect();
            let without_calls = origin.member(&reply, &[]);
            (origin.member(&reply, &calls), calls, without_calls)
        };
        assert_eq!(member(ModelEvent::Text("a".into())).0, None);
        let extra = ModelEvent::DeltaExtra(vec![("x".into(), "1".into())]);
        let (key, json) = member(extra).0.unwrap();
        assert_eq!((key.as_str(), &*json), ("x_upstream", r#"{"name":"u"}"#));
        let (noted, calls, without_calls) = member(ModelEvent::ToolCall(ToolCallDelta {
            id: Some("theirs".into()),
            name: Some("f".into()),
            ..ToolCallDelta::default()
        }));
        let ours = &calls[0].id;
        let expected = format!(r#"{{"name":"u","call_ids":[["{ours}","theirs"]]}}"#);
        assert_eq!(*noted.unwrap().1, *expected);
        // Calls that are not stored.
        assert_eq!(without_calls, None);
    }
}
