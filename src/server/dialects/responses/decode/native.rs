//! Whether the loop has a part in a request, for model servers that support the Responses API themselves.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::approvals::REQUEST_ID;
use super::names::offered;
use super::tools::forbids_live_web;
use crate::dialects::fields::extensions::ExtensionFields;
use crate::dialects::fields::head::RequestHead;
use crate::dialects::fields::hosted::{EntryKind, HostedFields, ToolEntry};
use crate::dialects::responses::encode::REASONING_MARK;
use agent::draft::{Decoded, DraftTools, FaultScope, Faults, TurnDraft, UnofferedTools};
use agent::turn::Capability;
use protocol::ids::{ApprovalId, RunId};
use protocol::openai::raw::RawObject;
use protocol::openai::request::body_object;
use protocol::openai::tool::{CallKind, ToolDefinition};

/// Ids in a body that this server may have issued, not looked up yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct IssuedIds {
    /// There is an item, or reasoning, that only this server makes.
    pub(crate) has_items: bool,
    /// `previous_response_id`.
    pub(crate) previous: Option<String>,
    /// The containers of tools.
    pub(crate) containers: Vec<String>,
    /// The files of the input and of tools.
    pub(crate) files: Vec<String>,
    /// The call that the last output answers.
    pub(crate) answered_call: Option<String>,
}

impl IssuedIds {
    /// Reads the ids of a body. What has another shape than expected holds none.
    pub(crate) fn read(body: &[u8]) -> Self {
        let mut ids = Self::default();
        let Ok(object) = body_object(body) else {
            return ids;
        };
        ids.previous = text(&object, "previous_response_id");
        for tool in objects(object.get_some("tools")) {
            ids.containers.extend(text(&tool, "container"));
            let container = tool.get_some("container");
            let container = container.and_then(|auto| RawObject::parse(auto.get()).ok());
            let files = container.and_then(|auto| auto.get_some("file_ids"));
            let files: Option<Vec<String>> =
                files.and_then(|files| serde_json::from_str(files.get()).ok());
            ids.files.extend(files.unwrap_or_default());
        }
        for item in objects(object.get_some("input")) {
            ids.item(&item);
        }
        ids
    }

    fn item(&mut self, item: &RawObject<'_>) {
        let run = text(item, "id").and_then(|id| RunId::of_item(&id));
        let mut asked = [text(item, "id"), text(item, REQUEST_ID)]
            .into_iter()
            .flatten();
        self.has_items |= asked.any(|id| ApprovalId::of_item(&id).is_some());
        let sealed = text(item, "encrypted_content");
        self.has_items |= run.is_some_and(|run| run.has_issued_form())
            || sealed.is_some_and(|handle| handle.starts_with(REASONING_MARK));
        if item.get_some("output").is_some() {
            self.answered_call = text(item, "call_id").or_else(|| self.answered_call.take());
        }
        for parts in ["content", "output"] {
            let parts = objects(item.get_some(parts));
            let files = parts.iter().filter_map(|part| text(part, "file_id"));
            self.files.extend(files);
        }
    }
}

/// The draft of a request with nothing but its tools and extensions; `None` if the request asks for state of this server.
pub(crate) fn plain_draft(
    object: &RawObject<'_>,
    model: &str,
    head: &RequestHead,
) -> Option<Decoded> {
    let is_true = |key| {
        object
            .get_some(key)
            .is_some_and(|value| value.get() == "true")
    };
    let has = |key| object.get_some(key).is_some();
    if is_true("store") || is_true("background") || has("conversation") || has("max_tool_rounds") {
        return None;
    }
    let mut faults = Faults::default();
    let mut entries = Vec::new();
    for tool in objects(object.get_some("tools")) {
        push_tool(&tool, &mut entries);
    }
    let tools = HostedFields::of(object).read(entries, &mut faults);
    let read = ExtensionFields::of(object).read(head, false);
    let extensions = faults.note(FaultScope::Extensions, read);
    let draft = TurnDraft {
        model: model.to_owned(),
        extended: head.names_session() || ExtensionFields::NAMES.into_iter().any(has),
        options: extensions.options,
        permissions: extensions.permissions,
        tools: DraftTools {
            filter: extensions.filter,
            unoffered: UnofferedTools::Leave,
            ..tools
        },
        ..TurnDraft::default()
    };
    Some(Decoded { draft, faults })
}

/// Adds the entries for a tool that this server may run.
fn push_tool(tool: &RawObject<'_>, entries: &mut Vec<ToolEntry<'_>>) {
    let kind = text(tool, "type").unwrap_or_default();
    let mut push = |kind| {
        let param = "tools".to_owned();
        entries.push(ToolEntry { param, kind });
    };
    let function = |namespace: Option<&str>, name: &str| {
        EntryKind::Declared(ToolDefinition {
            name: offered(namespace, name),
            parameters: None,
            json: "{}".into(),
            kind: CallKind::Function,
        })
    };
    match kind.as_str() {
        "function" | "custom" => {
            if let Some(name) = text(tool, "name") {
                push(function(None, &name));
            }
        }
        "namespace" => {
            let namespace = text(tool, "name");
            let tools = objects(tool.get_some("tools"));
            let names = tools.iter().filter_map(|tool| text(tool, "name"));
            names.for_each(|name| push(function(namespace.as_deref(), &name)));
        }
        _ => {
            let is_web = Capability::of_type(&kind) == Some(Capability::Web);
            if is_web && forbids_live_web(tool) {
                return;
            }
            if let Ok(json) = RawValue::from_string(tool.to_json()) {
                let json = Cow::Owned(json);
                push(EntryKind::Hosted { kind, json });
            }
        }
    }
}

fn objects(list: Option<&RawValue>) -> Vec<RawObject<'_>> {
    let list = list.map(RawValue::get).filter(|list| list.starts_with('['));
    let list: Vec<&RawValue> = list
        .and_then(|list| serde_json::from_str(list).ok())
        .unwrap_or_default();
    let objects = list.iter().map(|one| RawObject::parse(one.get()));
    objects.filter_map(Result::ok).collect()
}

fn text(object: &RawObject<'_>, key: &str) -> Option<String> {
    String::deserialize(object.get_some(key)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_this_server_are_found() {
        let run = RunId::fresh();
        let id = run.item_id("msg", 3);
        let body = format!(
            r#"{{"previous_response_id":"r","tools":[{{"container":"c"}},{{"container":{{"file_ids":["f"]}}}}],"input":[
            {{"id":"{id}"}},{{"call_id":"a","output":"1"}},{{"content":[{{"file_id":"g"}}]}}]}}"#
        );
        let expected = IssuedIds {
            has_items: true,
            previous: Some("r".to_owned()),
            containers: vec!["c".to_owned()],
            files: vec!["f".to_owned(), "g".to_owned()],
            answered_call: Some("a".to_owned()),
        };
        assert_eq!(IssuedIds::read(body.as_bytes()), expected);
        for foreign in [
            r#"{"input":[{"id":"msg_68af"},{"id":"msg_a_1"},{"id":7},3]}"#,
            r#"{"input":"msg"}"#,
            "[]",
        ] {
            let ids = IssuedIds::read(foreign.as_bytes());
            assert_eq!(ids, IssuedIds::default(), "{foreign}");
        }
        let sealed = r#"{"input":[{"type":"reasoning","encrypted_content":"lwr1.e30="}]}"#;
        assert!(IssuedIds::read(sealed.as_bytes()).has_items);
    }
}
