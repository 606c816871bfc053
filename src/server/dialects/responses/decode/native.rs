//! Whether a request concerns the loop at all, for model servers that speak the Responses API themselves.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::approvals::REQUEST_ID;
use super::fields::{NO_MESSAGE, OWN};
use super::names::offered;
use super::tools::MCP;
use crate::dialects::chat::decode::capability;
use crate::dialects::responses::encode::REASONING_MARK;
use agent::offer::ServerOffer;
use agent::turn::Capability;
use protocol::ids::{ApprovalId, RunId};
use protocol::openai::raw::{RawObject, push_entry, quoted};
use protocol::openai::request::body_object;

/// Ids in a body that this server may have issued, not looked up yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IssuedIds {
    /// There is an item, or reasoning, that only this server makes.
    pub has_items: bool,
    /// `previous_response_id`.
    pub previous: Option<String>,
    /// The containers of tools.
    pub containers: Vec<String>,
    /// The files of the input and of tools.
    pub files: Vec<String>,
    /// The call that the last output answers.
    pub answered_call: Option<String>,
}

impl IssuedIds {
    /// Reads the ids of a body. What has another shape than expected holds none.
    pub fn read(body: &[u8]) -> Self {
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

/// The body of a chat request with the same tools and extensions; `None` if the request asks for state of this server.
pub fn as_plain_chat(
    object: &RawObject<'_>,
    model: &str,
    offer: &ServerOffer<'_>,
) -> Option<Bytes> {
    let is_true = |key| {
        object
            .get_some(key)
            .is_some_and(|value| value.get() == "true")
    };
    let has = |key| object.get_some(key).is_some();
    if is_true("store") || is_true("background") || has("conversation") || has("max_tool_rounds") {
        return None;
    }
    let mut tools = Vec::new();
    for tool in objects(object.get_some("tools")) {
        push_tool(&tool, offer, &mut tools);
    }
    let mut chat = String::from("{");
    push_entry(&mut chat, "model", &quoted(model));
    push_entry(&mut chat, "messages", NO_MESSAGE);
    if !tools.is_empty() {
        push_entry(&mut chat, "tools", &format!("[{}]", tools.join(",")));
    }
    let copied = object
        .iter()
        .filter(|(key, value)| (*key == "agent" || !OWN.contains(key)) && value.get() != "null");
    for (key, value) in copied {
        push_entry(&mut chat, key, value.get());
    }
    chat.push('}');
    Some(chat.into())
}

/// Adds the entries of a chat request for a tool that this server may run.
fn push_tool(tool: &RawObject<'_>, offer: &ServerOffer<'_>, tools: &mut Vec<String>) {
    let kind = text(tool, "type").unwrap_or_default();
    let function = |namespace: Option<&str>, name: &str| {
        let name = quoted(&offered(namespace, name));
        format!(r#"{{"type":"function","function":{{"name":{name}}}}}"#)
    };
    match kind.as_str() {
        "function" | "custom" => {
            tools.extend(text(tool, "name").map(|name| function(None, &name)));
        }
        "namespace" => {
            let namespace = text(tool, "name");
            let names = objects(tool.get_some("tools"));
            let names = names.iter().filter_map(|tool| text(tool, "name"));
            tools.extend(names.map(|name| function(namespace.as_deref(), &name)));
        }
        MCP if offer.connects_to_servers() => tools.push(tool.to_json()),
        _ => {
            let capability = capability(&kind);
            let access = tool.get_some("external_web_access");
            let is_cached = capability == Some(Capability::Web)
                && access.is_some_and(|access| access.get() == "false");
            let is_offered = |capability| offer.tool_for(capability).is_some();
            if !is_cached && capability.is_some_and(is_offered) {
                tools.push(tool.to_json());
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
