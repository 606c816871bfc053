//! The reply of a model in one model call, with the members that its upstream attached.

use serde::{Deserialize, Serialize};

use super::settings::ServerKind;
use protocol::openai::tool::{CallMembers, ToolCall};
use protocol::openai::usage::{FinishReason, Usage};

/// Fields of a message that hold an answer without text.
const INSTEAD_OF_TEXT: [&str; 3] = ["refusal", "audio", "images"];
/// The member of a stored message that is for loopwright alone.
pub(super) const MEMBER: &str = "x_upstream";

/// What the model returned in one model call.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// The visible text.
    pub text: String,
    /// The content as the JSON text of a list, if it is more than the text.
    pub parts: Option<Box<str>>,
    /// The reasoning text and the field in which it came.
    pub reasoning: Option<(String, &'static str)>,
    /// The tool calls, in the order in which they began.
    pub calls: Vec<AssembledCall>,
    /// Why the model stopped; `tool_calls` if and only if it made calls and was not cut off.
    pub finish: FinishReason,
    /// The token counts, if the upstream sent any.
    pub usage: Option<Usage>,
    /// The model's own name for itself.
    pub model: Option<String>,
    /// Other fields of the message: key and JSON text.
    pub extra: Vec<(String, Box<str>)>,
    /// The upstream, and its ids of the calls.
    pub origin: Option<MessageOrigin>,
}

/// One complete call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledCall {
    /// The call, under a fresh id.
    pub call: ToolCall,
    pub(crate) upstream_id: Option<String>,
}

impl ModelReply {
    /// Whether the reply has something for the user: text, or a field that takes its place.
    pub fn has_answer(&self) -> bool {
        let in_place = |(key, value): &(String, Box<str>)| {
            INSTEAD_OF_TEXT.contains(&key.as_str()) && !matches!(&**value, r#""""# | "[]" | "{}")
        };
        let has_part = |parts: &str| parts.contains(r#""image_url""#);
        !self.text.trim().is_empty()
            || self.extra.iter().any(in_place)
            || self.parts.as_deref().is_some_and(has_part)
    }
}

/// The origin of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageOrigin {
    /// The configured name of the upstream.
    pub(super) name: String,
    /// What it is, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<ServerKind>,
    /// For each call the id that the message has, and the upstream's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) call_ids: Vec<(String, String)>,
}

impl MessageOrigin {
    /// The origin of a reply.
    pub fn new(upstream: &str, kind: Option<ServerKind>, calls: &[AssembledCall]) -> Self {
        let ids = calls.iter().filter_map(|assembled| {
            let id = assembled.upstream_id.clone().filter(|id| !id.is_empty())?;
            Some((assembled.call.id.clone(), id))
        });
        Self {
            name: upstream.to_owned(),
            kind,
            call_ids: ids.collect(),
        }
    }

    /// The member that a message of the reply with these calls is stored with: key and JSON text. None if the upstream
    /// attached nothing to it.
    pub fn member(&self, reply: &ModelReply, calls: &[ToolCall]) -> Option<(String, Box<str>)> {
        let ids = calls.iter().filter_map(|call| {
            let known = self.call_ids.iter().find(|(id, _)| *id == call.id);
            known.cloned()
        });
        let kept = Self {
            name: self.name.clone(),
            kind: self.kind,
            call_ids: ids.collect(),
        };
        let has_members = |call: &ToolCall| call.members != CallMembers::default();
        let is_needed = !kept.call_ids.is_empty()
            || !reply.extra.is_empty()
            || reply.parts.is_some()
            || calls.iter().any(has_members);
        let json = serde_json::to_string(&kept).ok().filter(|_| is_needed)?;
        Some((MEMBER.to_owned(), json.into()))
    }
}
