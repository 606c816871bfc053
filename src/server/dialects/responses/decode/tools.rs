//! `tools` and `tool_choice`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::input::tools_of_input;
use super::names::{ToolNames, offered};
use crate::dialects::fields::hosted::{EntryKind, ToolEntry};
use agent::event::Notice;
use agent::turn::Capability;
use protocol::openai::raw::{RawObject, push_entry, quoted};
use protocol::openai::request::{RequestError, body_member};
use protocol::openai::tool::{CallKind, ToolDefinition};

/// The type of MCP servers.
pub(super) const MCP: &str = "mcp";

/// What follows from `tools` and `tool_choice`.
#[derive(Debug, Default)]
pub(super) struct DeclaredFields<'a> {
    pub(super) entries: Vec<ToolEntry<'a>>,
    /// The choice, as a model call has it: JSON text.
    pub(super) choice: Option<String>,
    /// Entries of `tools` of a response.
    pub(super) echo: Vec<String>,
    pub(super) names: ToolNames,
    pub(super) declares_web: bool,
    pub(super) declares_code: bool,
    /// The labels of MCP servers.
    pub(super) servers: Vec<String>,
    /// The container that the request names.
    pub(super) container: Option<String>,
}

impl<'a> DeclaredFields<'a> {
    pub(super) fn read(object: &RawObject<'a>) -> Result<Self, RequestError> {
        let entries: Option<Vec<&RawValue>> =
            body_member(object, "tools", "an array of tool definitions")?;
        let mut fields = Self::default();
        for (index, entry) in entries.unwrap_or_default().into_iter().enumerate() {
            fields.entry(entry, format!("tools[{index}]"))?;
        }
        let of_input = tools_of_input(object)?;
        if !of_input.is_empty() {
            let echoed = fields.echo.len();
            for (param, entry) in of_input {
                fields.entry(entry, param)?;
            }
            fields.echo.truncate(echoed);
            fields.keep_last();
        }
        if let Some(choice) = object.get_some("tool_choice") {
            let is_declared = |entry: &ToolEntry<'_>| !matches!(entry.kind, EntryKind::LeftOut(_));
            let declares = fields.entries.iter().any(is_declared);
            fields.choice = Some(model_choice(choice, declares)?);
        }
        Ok(fields)
    }

    /// Keeps the last of several functions with one name. Coding agents declare their tools anew with each turn.
    fn keep_last(&mut self) {
        let mut names = HashSet::new();
        let mut is_news = |entry: &ToolEntry<'_>| match &entry.kind {
            EntryKind::Declared(tool) => names.insert(tool.name.clone()),
            EntryKind::Hosted { .. } | EntryKind::LeftOut(_) | EntryKind::Unusable(_) => true,
        };
        let entries = std::mem::take(&mut self.entries).into_iter().rev();
        self.entries = entries.filter(|entry| is_news(entry)).collect();
        self.entries.reverse();
    }

    fn entry(&mut self, entry: &'a RawValue, param: String) -> Result<(), RequestError> {
        let invalid = |problem: &str| RequestError::invalid(&param, problem);
        let object = RawObject::parse(entry.get()).map_err(|_| invalid("must be an object"))?;
        let kind = text(&object, "type").ok_or_else(|| invalid("has no type"))?;
        match kind.as_str() {
            "function" | "custom" => {
                let tool = self.declared(&object, None, kind == "custom", &param)?;
                self.entries.push(tool);
                self.echo.push(match kind.as_str() {
                    "function" => echoed_function(&object),
                    _ => entry.get().to_owned(),
                });
            }
            "namespace" => {
                let namespace = text(&object, "name").ok_or_else(|| invalid("has no name"))?;
                let list = format!("{param}.tools");
                let wrong = || RequestError::invalid(&list, "must be a list of functions");
                let tools = object.get_some("tools").ok_or_else(wrong)?;
                let tools: Vec<RawObject<'_>> =
                    serde_json::from_str(tools.get()).map_err(|_| wrong())?;
                for tool in &tools {
                    let is_custom = text(tool, "type").as_deref() == Some("custom");
                    let tool = self.declared(tool, Some(&namespace), is_custom, &param)?;
                    self.entries.push(tool);
                }
                self.echo.push(entry.get().to_owned());
            }
            _ => self.hosted(entry, &object, kind, param),
        }
        Ok(())
    }

    fn hosted(&mut self, entry: &'a RawValue, object: &RawObject<'_>, kind: String, param: String) {
        self.echo.push(without_secrets(object));
        let capability = Capability::of_type(&kind);
        let is_web = capability == Some(Capability::Web);
        if is_web && forbids_live_web(object) {
            // Some clients send it with every request.
            let kind = EntryKind::LeftOut(Notice {
                kind: "tool_left_out".into(),
                message: format!(
                    "'{param}' was left out: the server can only search the live web, which the tool forbids"
                ),
            });
            self.entries.push(ToolEntry { param, kind });
            return;
        }
        if kind == MCP {
            self.servers.extend(text(object, "server_label"));
        }
        self.declares_web |= is_web;
        let is_code = capability == Some(Capability::Code);
        self.declares_code |= is_code;
        let container = text(object, "container").filter(|_| is_code);
        let json = match container {
            // It is looked up before.
            Some(_) => object.members_without(&["container"]),
            None => String::new(),
        };
        let json = match RawValue::from_string(format!("{{{json}}}")) {
            Ok(json) if container.is_some() => Cow::Owned(json),
            Ok(_) | Err(_) => Cow::Borrowed(entry),
        };
        let kind = EntryKind::Hosted { kind, json };
        self.entries.push(ToolEntry { param, kind });
        self.container = self.container.take().or(container);
    }

    /// A function or a custom tool, as the model is offered it.
    fn declared(
        &mut self,
        object: &RawObject<'_>,
        namespace: Option<&str>,
        is_custom: bool,
        param: &str,
    ) -> Result<ToolEntry<'a>, RequestError> {
        let name = text(object, "name").filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| RequestError::invalid(param, "has no name"))?;
        let name = self.names.add(namespace, &name, is_custom);
        let mut function = String::from("{");
        push_entry(&mut function, "name", &quoted(&name));
        let mut parameters: Option<Arc<str>> = None;
        if is_custom {
            member(object, "description", &['"'], "a text", param)?;
            member(object, "format", &['{'], "an object", param)?;
            push_entry(
                &mut function,
                "description",
                &quoted(&custom_description(object)),
            );
            push_entry(&mut function, "parameters", CUSTOM_PARAMETERS);
            parameters = Some(CUSTOM_PARAMETERS.into());
        } else {
            for (key, starts, shape) in [
                ("description", &['"'][..], "a text"),
                ("parameters", &['{'], "an object"),
                ("strict", &['t', 'f'], "true or false"),
            ] {
                let Some(value) = member(object, key, starts, shape, param)? else {
                    continue;
                };
                push_entry(&mut function, key, value.get());
                if key == "parameters" {
                    parameters = Some(value.get().into());
                }
            }
        }
        function.push('}');
        let definition = ToolDefinition {
            name,
            parameters,
            json: format!(r#"{{"type":"function","function":{function}}}"#).into(),
            kind: CallKind::Function,
        };
        Ok(ToolEntry {
            param: param.to_owned(),
            kind: EntryKind::Declared(definition),
        })
    }
}

/// A member whose JSON text starts with one of these characters; `None` if it is absent or `null`.
fn member<'a>(
    object: &RawObject<'a>,
    key: &str,
    starts: &[char],
    shape: &str,
    param: &str,
) -> Result<Option<&'a RawValue>, RequestError> {
    match object.get_some(key) {
        Some(value) if !value.get().starts_with(starts) => {
            let member = format!("{param}.{key}");
            Err(RequestError::invalid(&member, &format!("must be {shape}")))
        }
        value => Ok(value),
    }
}

/// The one argument of a custom tool.
const CUSTOM_PARAMETERS: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"The whole input, as free text."}},"required":["input"],"additionalProperties":false}"#;

/// The description of a custom tool, with its grammar, which a model server cannot enforce.
fn custom_description(object: &RawObject<'_>) -> String {
    let mut description = text(object, "description").unwrap_or_default();
    let format = object.get_some("format");
    let format = format.and_then(|format| RawObject::parse(format.get()).ok());
    if let Some(format) = format
        && let Some(definition) = text(&format, "definition")
    {
        let syntax = text(&format, "syntax").unwrap_or_default();
        if !description.is_empty() {
            description.push_str("\n\n");
        }
        description.push_str(&format!(
            "The input must follow this {syntax} grammar:\n{definition}"
        ));
    }
    description
}

/// An MCP server as responses have it: without the members that are secret.
fn without_secrets(object: &RawObject<'_>) -> String {
    format!(
        "{{{}}}",
        object.members_without(&["authorization", "headers"])
    )
}

/// A function as responses have it: all members, `null` where the request has none.
fn echoed_function(object: &RawObject<'_>) -> String {
    let mut json = object.to_json();
    json.pop();
    for key in ["description", "parameters", "strict"] {
        if object.get(key).is_none() {
            push_entry(&mut json, key, "null");
        }
    }
    json.push('}');
    json
}

/// Whether a web search must not use the live web.
pub(super) fn forbids_live_web(tool: &RawObject<'_>) -> bool {
    let access = tool.get_some("external_web_access");
    access.is_some_and(|access| access.get() == "false")
}

/// The choice, as a model call has it. `declares` says whether the request declares tools.
fn model_choice(choice: &RawValue, declares: bool) -> Result<String, RequestError> {
    let value: Value = serde_json::from_str(choice.get()).unwrap_or_default();
    // Some clients write a word as the type of an object.
    match value.as_str().or_else(|| value["type"].as_str()) {
        Some(word @ ("none" | "auto" | "required")) => return Ok(quoted(word)),
        Some("any") => return Ok(quoted("required")),
        _ => {}
    }
    let Some(kind) = value["type"].as_str() else {
        let shape = "must be \"none\", \"auto\", \"required\" or an object with a type";
        return Err(RequestError::invalid("tool_choice", shape));
    };
    if matches!(kind, "function" | "custom" | "tool") && !declares {
        let problem = "names a tool, but the request declares none; add it to 'tools'";
        return Err(RequestError::invalid("tool_choice", problem));
    }
    if kind == "allowed_tools"
        && !(value["tools"].is_array()
            && matches!(value["mode"].as_str(), Some("auto" | "required")))
    {
        let shape = "must have a 'mode' and a list of 'tools'";
        return Err(RequestError::invalid("tool_choice", shape));
    }
    if kind != "allowed_tools" {
        return named_choice(&value).map(|choice| choice.to_string());
    }
    let tools = value["tools"].as_array().cloned().unwrap_or_default();
    let tools: Result<Vec<Value>, RequestError> = tools.iter().map(named_choice).collect();
    let mode = &value["mode"];
    Ok(json!({"type": kind, "allowed_tools": {"mode": mode, "tools": tools?}}).to_string())
}

fn named_choice(choice: &Value) -> Result<Value, RequestError> {
    let kind = choice["type"].as_str().unwrap_or_default();
    let nested = choice["function"]["name"].as_str();
    match (kind, choice["name"].as_str().or(nested)) {
        ("function" | "custom" | "tool", Some(name)) => {
            let name = offered(choice["namespace"].as_str(), name);
            Ok(json!({"type": "function", "function": {"name": name}}))
        }
        ("function" | "custom" | "tool", None) => {
            Err(RequestError::invalid("tool_choice", "has no name"))
        }
        (MCP, name) => {
            // The tools of a server are known only once it is connected.
            let label = choice["server_label"].as_str().ok_or_else(|| {
                RequestError::invalid(
                    "tool_choice",
                    "names an MCP server without its 'server_label'",
                )
            })?;
            Ok(match name {
                Some(name) => json!({"type": kind, "server_label": label, "name": name}),
                None => json!({"type": kind, "server_label": label}),
            })
        }
        _ if Capability::of_type(kind).is_some() => Ok(json!({"type": kind})),
        _ => {
            let problem = format!("has the type '{kind}', which is not known");
            Err(RequestError::invalid("tool_choice", &problem))
        }
    }
}

fn text(object: &RawObject<'_>, key: &str) -> Option<String> {
    serde_json::from_str(object.get_some(key)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(json: &str) -> String {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        model_choice(&raw, true).unwrap()
    }

    #[test]
    fn a_choice_is_nested_for_the_model() {
        for word in ["\"required\"", "\"any\""] {
            assert_eq!(choice(word), "\"required\"");
            assert_eq!(choice(&format!(r#"{{"type":{word}}}"#)), "\"required\"");
        }
        for word in ["\"none\"", "\"auto\""] {
            assert_eq!(choice(word), word);
            assert_eq!(choice(&format!(r#"{{"type":{word}}}"#)), word);
        }
        let named = r#"{"function":{"name":"f"},"type":"function"}"#;
        assert_eq!(choice(r#"{"type":"function","name":"f"}"#), named);
        assert_eq!(choice(r#"{"type":"custom","name":"f"}"#), named);
        assert_eq!(choice(r#"{"type":"tool","name":"f"}"#), named);
        assert_eq!(choice(named), named);
        assert_eq!(
            choice(r#"{"type":"web_search"}"#),
            r#"{"type":"web_search"}"#
        );
        let allowed = choice(
            r#"{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]}"#,
        );
        let expected = format!(
            r#"{{"allowed_tools":{{"mode":"required","tools":[{named}]}},"type":"allowed_tools"}}"#
        );
        assert_eq!(allowed, expected);
    }

    #[test]
    fn a_function_comes_back_with_all_its_members() {
        let object = RawObject::parse(r#"{"type":"function","name":"f","strict":true}"#).unwrap();
        assert_eq!(
            echoed_function(&object),
            r#"{"type":"function","name":"f","strict":true,"description":null,"parameters":null}"#
        );
    }
}
