//! `tool_choice`: a named function must be declared, and hosted tools are replaced by server-side tools.

use std::sync::Arc;

use serde_json::{Value, json};

use super::body::Field;
use super::mcp::MCP;
use crate::agent::turn::ToolSet;
use crate::openai::request::RequestError;

/// The types of a choice that names one tool.
const NAMED_TYPES: [&str; 2] = ["function", "custom"];

/// The tool choice of a request; `None` if it is absent or `null`.
#[derive(Debug)]
pub(super) struct ToolChoice(Option<Choice>);

#[derive(Debug)]
struct Choice {
    /// The JSON text of the request.
    text: Arc<str>,
    value: Value,
}

impl ToolChoice {
    pub(super) fn read(field: Field<'_>) -> Self {
        Self(field.raw().map(|raw| Choice {
            text: raw.get().into(),
            value: serde_json::from_str(raw.get()).unwrap_or_default(),
        }))
    }

    /// Replaces MCP servers by their tools. A choice of a server that has no tools now is dropped with them.
    ///
    /// # Errors
    /// When a server is not one of the request or of the settings.
    pub(super) fn of_servers(
        mut self,
        tools: &ToolSet,
        has_server: impl Fn(&str) -> bool,
    ) -> Result<Self, RequestError> {
        let Some(Choice { text, value }) = &mut self.0 else {
            return Ok(self);
        };
        if value["type"] == MCP {
            let mut names = server_tools(value, tools, &has_server)?;
            match names.len() {
                0 => {
                    self.0 = None;
                    return Ok(self);
                }
                1 => *value = names.remove(0),
                _ => {
                    let allowed = json!({"mode": "required", "tools": names});
                    *value = json!({"type": "allowed_tools", "allowed_tools": allowed});
                }
            }
            *text = value.to_string().into();
            return Ok(self);
        }
        let allowed = value.pointer_mut("/allowed_tools/tools");
        let Some(entries) = allowed.and_then(Value::as_array_mut) else {
            return Ok(self);
        };
        if !entries.iter().any(|entry| entry["type"] == MCP) {
            return Ok(self);
        }
        let mut replaced = Vec::with_capacity(entries.len());
        for entry in std::mem::take(entries) {
            match entry["type"] == MCP {
                true => replaced.extend(server_tools(&entry, tools, &has_server)?),
                false => replaced.push(entry),
            }
        }
        if replaced.is_empty() {
            self.0 = None;
            return Ok(self);
        }
        *entries = replaced;
        *text = value.to_string().into();
        Ok(self)
    }

    /// The tools that the choice names.
    pub(super) fn names(&self) -> Vec<&str> {
        let Some(Choice { value, .. }) = &self.0 else {
            return Vec::new();
        };
        let allowed = value["allowed_tools"]["tools"].as_array();
        let choices = allowed.into_iter().flatten().chain([value]);
        choices
            .filter_map(|choice| choice["function"]["name"].as_str())
            .collect()
    }

    /// Refuses a choice that names a function which is neither offered nor `known`. A function that the filters of the
    /// request exclude is known; the choice is then dropped with it.
    ///
    /// # Errors
    /// When the function is not known.
    pub(super) fn refuse_unknown(
        &self,
        tools: &ToolSet,
        known: impl Fn(&str) -> bool,
    ) -> Result<(), RequestError> {
        let choice = self.0.as_ref();
        let Some(name) = choice.and_then(|choice| choice.value["function"]["name"].as_str()) else {
            return Ok(());
        };
        if tools.offers(name) || known(name) {
            return Ok(());
        }
        let message = format!(
            "'tool_choice' names the function '{name}', which is not declared; add it to 'tools' or choose another function"
        );
        Err(RequestError::field("tool_choice", message))
    }

    /// The choice of the first round and that of later rounds, as JSON text; `None` if it names a tool that is not
    /// offered.
    pub(super) fn for_rounds(
        self,
        tools: &ToolSet,
        server_tool: impl Fn(&str) -> Option<&'static str>,
    ) -> (Option<Arc<str>>, Option<Arc<str>>) {
        let Some(Choice {
            mut text,
            mut value,
        }) = self.0
        else {
            return (None, None);
        };
        if replace_hosted(&mut value, tools, server_tool) {
            text = value.to_string().into();
        }
        let named = NAMED_TYPES
            .iter()
            .find_map(|kind| value[kind]["name"].as_str());
        if named.is_some_and(|name| !tools.offers(name)) {
            return (None, None);
        }
        let later = later_choice(&text, value);
        (Some(text), Some(later))
    }
}

/// The choices of the tools of an MCP server, or of the one that it names.
///
/// # Errors
/// When there is no such server, or it has tools and not that one.
fn server_tools(
    choice: &Value,
    tools: &ToolSet,
    has_server: impl Fn(&str) -> bool,
) -> Result<Vec<Value>, RequestError> {
    let label = choice["server_label"].as_str().unwrap_or_default();
    if !has_server(label) {
        let problem = format!(
            "names the MCP server '{label}', which is not offered; declare it in 'tools' or choose another tool"
        );
        return Err(RequestError::invalid("tool_choice", &problem));
    }
    let name = choice["name"].as_str();
    let names = tools.of_server(label, name);
    if let Some(name) = name
        && names.is_empty()
        && !tools.of_server(label, None).is_empty()
    {
        let problem = format!(
            "names the tool '{name}' of the MCP server '{label}', which is not offered; choose another one"
        );
        return Err(RequestError::invalid("tool_choice", &problem));
    }
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    Ok(names.into_iter().map(function).collect())
}

/// Replaces hosted tools by the server-side tools that `server_tool` gives. Returns whether there were any.
fn replace_hosted(
    value: &mut Value,
    tools: &ToolSet,
    server_tool: impl Fn(&str) -> Option<&'static str>,
) -> bool {
    let replacement = |value: &Value| {
        let by_type = value["type"].as_str().and_then(&server_tool);
        let name = value["function"]["name"].as_str();
        let undeclared = name.filter(|name| !tools.offers(name));
        let name = by_type.or_else(|| undeclared.and_then(&server_tool))?;
        Some(json!({"type": "function", "function": {"name": name}}))
    };
    if let Some(replacement) = replacement(value) {
        *value = replacement;
        return true;
    }
    let mut replaced = false;
    let allowed = value.pointer_mut("/allowed_tools/tools");
    for entry in allowed.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(replacement) = replacement(entry) {
            *entry = replacement;
            replaced = true;
        }
    }
    replaced
}

/// The choice of the rounds after the first: a forced call applies to the first round only.
fn later_choice(text: &Arc<str>, mut value: Value) -> Arc<str> {
    let forced = NAMED_TYPES.iter().any(|kind| value["type"] == *kind);
    if forced || value == "required" {
        return "\"auto\"".into();
    }
    if value["type"] == "allowed_tools" && value["allowed_tools"]["mode"] == "required" {
        value["allowed_tools"]["mode"] = "auto".into();
        return value.to_string().into();
    }
    text.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::raw::RawObject;

    fn choice(json: &str) -> ToolChoice {
        let body = format!(r#"{{"tool_choice":{json}}}"#);
        let object = RawObject::parse(&body).unwrap();
        ToolChoice::read(Field::of(&object, "tool_choice"))
    }

    #[test]
    fn a_forced_choice_becomes_auto_in_later_rounds() {
        for (asked, later) in [
            ("\"required\"", "\"auto\""),
            (r#"{"type":"function","function":{"name":"f"}}"#, "\"auto\""),
            ("\"none\"", "\"none\""),
            ("\"auto\"", "\"auto\""),
            (
                r#"{"type":"allowed_tools","allowed_tools":{}}"#,
                r#"{"type":"allowed_tools","allowed_tools":{}}"#,
            ),
            (
                r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}"#,
                r#"{"allowed_tools":{"mode":"auto","tools":[]},"type":"allowed_tools"}"#,
            ),
        ] {
            let value = serde_json::from_str(asked).unwrap();
            assert_eq!(&*later_choice(&asked.into(), value), later);
        }
    }

    #[test]
    fn a_choice_of_a_tool_that_is_not_offered_is_dropped() {
        let tools = ToolSet::default();
        let named = r#"{"type":"function","function":{"name":"f"}}"#;
        let choice_of = |json| choice(json).for_rounds(&tools, |_| None);
        assert_eq!(choice_of(named), (None, None));
        assert_eq!(choice_of("null"), (None, None));
        let none: Arc<str> = "\"none\"".into();
        assert_eq!(choice_of("\"none\""), (Some(none.clone()), Some(none)));
    }

    #[test]
    fn a_choice_of_a_hosted_tool_becomes_the_server_side_tool() {
        let none = ToolSet::default();
        let server_tool = |kind: &str| (kind == "code_interpreter").then_some("execute_python");
        let sent = |asked: &str| {
            let mut value = serde_json::from_str(asked).unwrap();
            replace_hosted(&mut value, &none, server_tool).then(|| value.to_string())
        };
        let replacement = r#"{"function":{"name":"execute_python"},"type":"function"}"#;
        let of_type = r#"{"type":"code_interpreter"}"#;
        let of_name = r#"{"type":"function","function":{"name":"code_interpreter"}}"#;
        assert_eq!(sent(of_type).as_deref(), Some(replacement));
        assert_eq!(sent(of_name).as_deref(), Some(replacement));
        assert_eq!(sent(r#"{"type":"function","function":{"name":"f"}}"#), None);
        assert_eq!(sent("\"required\""), None);
        let allowed = |tool: &str| {
            format!(
                r#"{{"allowed_tools":{{"mode":"auto","tools":[{tool}]}},"type":"allowed_tools"}}"#
            )
        };
        assert_eq!(sent(&allowed(of_type)), Some(allowed(replacement)));
    }

    #[test]
    fn an_unknown_function_is_refused_unless_it_was_declared() {
        let tools = ToolSet::default();
        let named = choice(r#"{"type":"function","function":{"name":"f"}}"#);
        let error = named.refuse_unknown(&tools, |_| false).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tool_choice"));
        assert!(named.refuse_unknown(&tools, |name| name == "f").is_ok());
    }
}
