//! What of earlier responses a request refers to.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::approvals::REQUEST_ID;
use protocol::ids::{ApprovalId, RunId, SessionId};
use protocol::openai::raw::RawObject;
use protocol::openai::request::{RequestError, body_member, body_object};

/// The earlier responses and items that a request refers to, not looked up yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    /// `previous_response_id`.
    pub(crate) previous: Option<String>,
    /// The request names no model, so the model of the response before is used.
    pub(crate) lacks_model: bool,
    /// The id of `conversation`.
    pub(crate) conversation: Option<String>,
    /// The ids of the items that the input refers to.
    pub(crate) items: Vec<String>,
    /// The container of `code_interpreter`, if it is named by its id.
    pub(crate) container: Option<NamedContainer>,
    /// The run of the newest item among the input that may be of this server.
    pub(crate) newest: Option<RunId>,
    /// The newest approval that the input decides.
    pub(crate) approval: Option<ApprovalId>,
    /// The input also has the questions, so it is the whole conversation.
    pub(crate) has_questions: bool,
}

/// A container that a tool names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedContainer {
    pub(crate) id: String,
    /// The path of the field, such as `tools[0].container`.
    pub(crate) param: String,
}

/// The result of looking up the earlier responses.
#[derive(Debug, Default)]
pub(crate) struct KnownHistory {
    /// The session that the turn continues.
    pub(crate) session: Option<SessionId>,
    /// The session in whose interpreter code runs, if it is not the session of the turn.
    pub(crate) container: Option<SessionId>,
    /// The run whose answer the turn follows.
    pub(crate) previous: Option<RunId>,
    /// The model of that answer, if the request names none.
    pub(crate) model: Option<String>,
    /// The input holds only new messages.
    pub(crate) appends: bool,
    /// The items that the input refers to, by their ids.
    pub(crate) items: HashMap<String, Box<RawValue>>,
}

impl References {
    /// Reads the references in a body; at most `most` of them may be items.
    ///
    /// # Errors
    /// When a reference has the wrong shape, there are too many, or one excludes another.
    pub(crate) fn read(body: &[u8], most: usize) -> Result<Self, RequestError> {
        let object = body_object(body)?;
        let previous: Option<String> = body_member(&object, "previous_response_id", "a string")?;
        let conversation = Self::conversation_of(&object)?;
        if previous.is_some() && conversation.is_some() {
            let problem = "cannot be sent together with 'conversation'; leave one of them out";
            return Err(RequestError::invalid("previous_response_id", problem));
        }
        let mut references = Self {
            lacks_model: previous.is_some() && object.get_some("model").is_none(),
            previous,
            conversation,
            container: container(&object),
            ..Self::default()
        };
        let items = object.get_some("input").map(RawValue::get);
        let items = items.filter(|items| items.starts_with('['));
        let items: Vec<&RawValue> = items
            .and_then(|items| serde_json::from_str(items).ok())
            .unwrap_or_default();
        for item in items {
            references.item(item);
        }
        let found = references.items.len();
        if found > most {
            let problem = format!("has {found} item references; at most {most} are allowed");
            return Err(RequestError::invalid("input", &problem));
        }
        Ok(references)
    }

    /// The conversation that a body names.
    pub(super) fn conversation_of(object: &RawObject<'_>) -> Result<Option<String>, RequestError> {
        object
            .get_some("conversation")
            .map(conversation)
            .transpose()
    }

    /// Whether nothing has to be looked up.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn item(&mut self, item: &RawValue) {
        // Most inputs hold no ids of this server. This search saves parsing them.
        let Ok(object) = RawObject::parse(item.get()) else {
            return;
        };
        let text = |key: &str| -> Option<String> {
            serde_json::from_str(object.get_some(key)?.get()).ok()
        };
        let decided = text(REQUEST_ID).and_then(|id| ApprovalId::of_item(&id));
        self.approval = decided.or_else(|| self.approval.take());
        let Some(id) = text("id") else {
            return;
        };
        // By itself or by reference.
        self.has_questions |= ApprovalId::of_item(&id).is_some();
        let run = RunId::of_item(&id);
        if text("type").as_deref() == Some("item_reference") {
            self.items.push(id);
        }
        self.newest = run.or_else(|| self.newest.take());
    }
}

/// The container that a tool of a body names.
fn container(object: &RawObject<'_>) -> Option<NamedContainer> {
    let tools = object.get_some("tools")?.get();
    // Most tools have no container. This search saves parsing them.
    if !tools.contains("\"container\"") {
        return None;
    }
    let tools: Vec<&RawValue> = serde_json::from_str(tools).ok()?;
    tools.iter().enumerate().find_map(|(index, tool)| {
        let tool = RawObject::parse(tool.get()).ok()?;
        (tool.get("type")?.get() == "\"code_interpreter\"").then_some(())?;
        Some(NamedContainer {
            id: serde_json::from_str(tool.get_some("container")?.get()).ok()?,
            param: format!("tools[{index}].container"),
        })
    })
}

fn conversation(value: &RawValue) -> Result<String, RequestError> {
    let shape = "must be the id of a conversation, or an object with it";
    let invalid = || RequestError::invalid("conversation", shape);
    if value.get().starts_with('"') {
        return serde_json::from_str(value.get()).map_err(|_| invalid());
    }
    let object = RawObject::parse(value.get()).map_err(|_| invalid())?;
    let id = object.get_some("id").ok_or_else(invalid)?;
    serde_json::from_str(id.get()).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> References {
        References::read(body.as_bytes(), 100).unwrap()
    }

    #[test]
    fn the_newest_known_item_leads_to_its_run() {
        let found = read(
            r#"{"input":[{"id":"msg_a1_0"},{"type":"item_reference","id":"ws_b2_1"},{"id":"msg_68-9"},{"role":"user"}]}"#,
        );
        assert_eq!(found.items, ["ws_b2_1"]);
        assert_eq!(found.newest.unwrap().as_str(), "b2");
        assert!(read(r#"{"input":"Hi"}"#).is_empty());
    }

    #[test]
    fn a_conversation_is_named_in_two_forms() {
        for body in [r#"{"conversation":"c"}"#, r#"{"conversation":{"id":"c"}}"#] {
            assert_eq!(read(body).conversation.as_deref(), Some("c"));
        }
        let both = r#"{"conversation":"c","previous_response_id":"r"}"#;
        let error = References::read(both.as_bytes(), 100).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("previous_response_id"));
        assert!(References::read(br#"{"conversation":3}"#, 100).is_err());
    }
}
