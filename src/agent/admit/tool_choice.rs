//! `tool_choice`: a named tool must be declared, and hosted tools are replaced by server-side tools.
//!
//! Servers accept several spellings. An unknown one counts as a choice that forces a call, and only applies to the
//! first round.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::turn::ToolSet;
use protocol::openai::request::RequestError;

/// The type of MCP servers.
pub(super) const MCP: &str = "mcp";
/// The members under which a choice may name its tool, besides `name` itself.
const NAME_MEMBERS: [&str; 3] = ["function", "custom", "tool"];

/// The tool choice of a request; `None` if it is absent or `null`.
#[derive(Debug)]
pub(super) struct ToolChoice(Option<Choice>);

#[derive(Debug)]
struct Choice {
    /// The JSON text of the request.
    text: Arc<str>,
    value: Value,
    /// It forces a call of some tool of an MCP server, which `value` lists.
    forces_server: bool,
}

/// What follows from the choice for the rounds of the turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RoundChoices {
    /// The choice of the first round, as JSON text; `None` if it names a tool that is not offered.
    pub(super) first: Option<Arc<str>>,
    pub(super) later: Option<Arc<str>>,
    /// The only tools that may be called in any round; `None` if all may.
    pub(super) allowed: Option<HashSet<String>>,
}

/// What a choice asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChoiceKind {
    /// The model decides.
    Auto,
    /// No call is made.
    None,
    /// The model decides, or must call a tool, among some tools.
    AllowedTools,
    /// A call is made.
    Forced,
}

impl ChoiceKind {
    fn of(choice: &Value) -> Self {
        let word = choice.as_str().or_else(|| choice["type"].as_str());
        match word.unwrap_or_default().to_ascii_lowercase().as_str() {
            "auto" => Self::Auto,
            "none" => Self::None,
            "allowed_tools" => Self::AllowedTools,
            _ => Self::Forced,
        }
    }
}

impl ToolChoice {
    /// Reads its JSON text.
    pub(super) fn read(choice: Option<&str>) -> Self {
        Self(choice.map(|text| Choice {
            text: text.into(),
            value: serde_json::from_str(text).unwrap_or_default(),
            forces_server: false,
        }))
    }

    /// Replaces MCP servers by their tools. A server without tools is removed. If only such servers are allowed, no
    /// tool is allowed.
    ///
    /// # Errors
    /// When a server is not one of the request or of the settings.
    pub(super) fn of_servers(
        mut self,
        tools: &ToolSet,
        has_server: impl Fn(&str) -> bool,
    ) -> Result<Self, RequestError> {
        let Some(Choice {
            text,
            value,
            forces_server,
        }) = &mut self.0
        else {
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
                    *forces_server = true;
                }
            }
            *text = value.to_string().into();
            return Ok(self);
        }
        let Some(entries) = allowed_entries_mut(value) else {
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
        match replaced.is_empty() {
            true => *value = "none".into(),
            false => *entries = replaced,
        }
        *text = value.to_string().into();
        Ok(self)
    }

    /// The tools that the choice names.
    pub(super) fn names(&self) -> Vec<&str> {
        let Some(Choice { value, .. }) = &self.0 else {
            return Vec::new();
        };
        let choices = allowed_entries(value).iter().chain([value]);
        choices.filter_map(named).collect()
    }

    /// Refuses a choice that names a tool which is neither offered nor `known`. A tool that the filters of the request
    /// exclude is known; the choice is then dropped with it.
    ///
    /// # Errors
    /// When the tool is not known.
    pub(super) fn refuse_unknown(
        &self,
        tools: &ToolSet,
        known: impl Fn(&str) -> bool,
    ) -> Result<(), RequestError> {
        let choice = self.0.as_ref();
        let Some(name) = choice.and_then(|choice| named(&choice.value)) else {
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

    pub(super) fn for_rounds(
        self,
        tools: &ToolSet,
        server_tool: impl Fn(&str) -> Option<&'static str>,
    ) -> RoundChoices {
        let Some(Choice {
            mut text,
            mut value,
            forces_server,
        }) = self.0
        else {
            return RoundChoices::default();
        };
        if replace_hosted(&mut value, tools, server_tool) {
            text = value.to_string().into();
        }
        if named(&value).is_some_and(|name| !tools.offers(name)) {
            return RoundChoices::default();
        }
        let allowed = allowed_names(&value).filter(|_| !forces_server);
        RoundChoices {
            later: Some(later_choice(&text, value)),
            first: Some(text),
            allowed,
        }
    }
}

/// The name of the tool that a choice, or an entry of the allowed tools, names. An MCP server has its own names.
fn named(choice: &Value) -> Option<&str> {
    if choice["type"] == MCP {
        return None;
    }
    let nested = NAME_MEMBERS
        .iter()
        .find_map(|member| choice[member]["name"].as_str());
    nested.or_else(|| choice["name"].as_str())
}

/// The member that holds `mode` and `tools` of allowed tools: some clients write them beside `type`.
fn allowed_members(choice: &Value) -> &'static str {
    match choice["allowed_tools"].is_object() {
        true => "/allowed_tools",
        false => "",
    }
}

/// The entries of allowed tools; none of another choice.
fn allowed_entries(choice: &Value) -> &[Value] {
    if ChoiceKind::of(choice) != ChoiceKind::AllowedTools {
        return &[];
    }
    let members = choice.pointer(allowed_members(choice));
    let entries = members.and_then(|members| members["tools"].as_array());
    entries.map_or(&[], Vec::as_slice)
}

fn allowed_entries_mut(choice: &mut Value) -> Option<&mut Vec<Value>> {
    if ChoiceKind::of(choice) != ChoiceKind::AllowedTools {
        return None;
    }
    let members = choice.pointer_mut(allowed_members(choice))?;
    members.get_mut("tools")?.as_array_mut()
}

/// The only tools that a choice lets the model call; `None` if it may call all.
fn allowed_names(choice: &Value) -> Option<HashSet<String>> {
    match ChoiceKind::of(choice) {
        ChoiceKind::Auto | ChoiceKind::Forced => None,
        ChoiceKind::None => Some(HashSet::new()),
        ChoiceKind::AllowedTools => {
            let name = |entry| named(entry).or_else(|| entry.as_str());
            let names = allowed_entries(choice).iter().filter_map(name);
            Some(names.map(str::to_owned).collect())
        }
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
        let undeclared = named(value).filter(|name| !tools.offers(name));
        let name = by_type.or_else(|| undeclared.and_then(&server_tool))?;
        Some(json!({"type": "function", "function": {"name": name}}))
    };
    if let Some(replacement) = replacement(value) {
        *value = replacement;
        return true;
    }
    let mut replaced = false;
    for entry in allowed_entries_mut(value).into_iter().flatten() {
        if let Some(replacement) = replacement(entry) {
            *entry = replacement;
            replaced = true;
        }
    }
    replaced
}

/// The choice of the rounds after the first: a forced call applies to the first round only.
fn later_choice(text: &Arc<str>, mut choice: Value) -> Arc<str> {
    match ChoiceKind::of(&choice) {
        ChoiceKind::Auto | ChoiceKind::None => text.clone(),
        ChoiceKind::Forced => "\"auto\"".into(),
        ChoiceKind::AllowedTools => {
            let members = choice.pointer_mut(allowed_members(&choice));
            let mode = members.and_then(|members| members.get_mut("mode"));
            match mode.filter(|mode| ChoiceKind::of(mode) != ChoiceKind::Auto) {
                None => text.clone(),
                Some(mode) => {
                    *mode = "auto".into();
                    choice.to_string().into()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Choices of the tool `f`.
    const NAMED: [&str; 6] = [
        r#"{"type":"function","function":{"name":"f"}}"#,
        r#"{"type":"function","name":"f"}"#,
        r#"{"type":"custom","custom":{"name":"f"}}"#,
        r#"{"type":"tool","name":"f"}"#,
        r#"{"type":"tool","tool":{"name":"f"}}"#,
        r#"{"name":"f"}"#,
    ];

    fn choice(json: &str) -> ToolChoice {
        ToolChoice::read(Some(json).filter(|json| *json != "null"))
    }

    #[test]
    fn a_forced_choice_becomes_auto_in_later_rounds() {
        for forced in [
            r#""required""#,
            r#""any""#,
            r#""REQUIRED""#,
            r#""sometimes""#,
            r#"{"type":"any"}"#,
            r#"{"type":"required"}"#,
            r#"{"type":"tool","name":"f"}"#,
            r#"{"type":"function","name":"f"}"#,
            r#"{"type":"function","function":{"name":"f"}}"#,
            r#"{"type":"custom","custom":{"name":"f"}}"#,
            r#"{"type":"file_search"}"#,
            r#"{"type":"mcp","server_label":"s"}"#,
            r#"{"function":{"name":"f"}}"#,
            "{}",
            "1",
        ] {
            let value = serde_json::from_str(forced).unwrap();
            let later = later_choice(&forced.into(), value);
            assert_eq!(&*later, "\"auto\"", "{forced}");
        }
        for (asked, later) in [
            ("\"none\"", "\"none\""),
            ("\"auto\"", "\"auto\""),
            (r#"{"type": "none"}"#, r#"{"type": "none"}"#),
            (
                r#"{"type": "auto", "more": 1}"#,
                r#"{"type": "auto", "more": 1}"#,
            ),
            (
                r#"{"type":"allowed_tools","allowed_tools":{}}"#,
                r#"{"type":"allowed_tools","allowed_tools":{}}"#,
            ),
            (
                r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}"#,
                r#"{"allowed_tools":{"mode":"auto","tools":[]},"type":"allowed_tools"}"#,
            ),
            (
                r#"{"type":"allowed_tools","mode":"any","tools":[]}"#,
                r#"{"mode":"auto","tools":[],"type":"allowed_tools"}"#,
            ),
            (
                r#"{"type":"allowed_tools", "mode":"auto","tools":[]}"#,
                r#"{"type":"allowed_tools", "mode":"auto","tools":[]}"#,
            ),
        ] {
            let value = serde_json::from_str(asked).unwrap();
            assert_eq!(&*later_choice(&asked.into(), value), later);
        }
    }

    #[test]
    fn a_choice_of_a_tool_that_is_not_offered_is_dropped() {
        let tools = ToolSet::default();
        let choices_of = |json| choice(json).for_rounds(&tools, |_| None);
        for named in NAMED.into_iter().chain(["null"]) {
            assert_eq!(choices_of(named), RoundChoices::default(), "{named}");
        }
        let none: Arc<str> = "\"none\"".into();
        let expected = RoundChoices {
            first: Some(none.clone()),
            later: Some(none),
            allowed: Some(HashSet::new()),
        };
        assert_eq!(choices_of("\"none\""), expected);
    }

    #[test]
    fn a_choice_says_which_tools_may_be_called() {
        let allowed = |json| {
            let choices = choice(json).for_rounds(&ToolSet::default(), |_| None);
            choices.allowed.map(|names| {
                let mut names: Vec<String> = names.into_iter().collect();
                names.sort();
                names.join(" ")
            })
        };
        for (asked, names) in [
            (r#""auto""#, None),
            (r#"{"type":"auto"}"#, None),
            (r#""any""#, None),
            (r#"{"type":"required"}"#, None),
            (r#""none""#, Some("")),
            (r#"{"type":"none"}"#, Some("")),
            (r#"{"type":"NONE"}"#, Some("")),
            (
                r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[
                    {"type":"function","function":{"name":"a"}}, {"type":"function","name":"b"}]}}"#,
                Some("a b"),
            ),
            (
                r#"{"type":"allowed_tools","mode":"auto","tools":[
                    {"type":"tool","name":"a"}, {"type":"custom","custom":{"name":"b"}}, "c",
                    {"type":"mcp","server_label":"s","name":"theirs"}, {"type":"file_search"}]}"#,
                Some("a b c"),
            ),
            // What cannot be read allows nothing.
            (r#"{"type":"allowed_tools"}"#, Some("")),
            (
                r#"{"type":"allowed_tools","allowed_tools":{"tools":"a"}}"#,
                Some(""),
            ),
        ] {
            assert_eq!(allowed(asked).as_deref(), names, "{asked}");
        }
    }

    #[test]
    fn where_only_the_tools_of_a_server_without_any_are_allowed_none_is() {
        let tools = ToolSet::default();
        for members in [
            r#""allowed_tools":{"mode":"auto","tools":[{"type":"mcp","server_label":"s"}]}"#,
            r#""mode":"auto","tools":[{"type":"mcp","server_label":"s"}]"#,
        ] {
            let asked = choice(&format!(r#"{{"type":"allowed_tools",{members}}}"#));
            let asked = asked.of_servers(&tools, |_| true).unwrap();
            let choices = asked.for_rounds(&tools, |_| None);
            assert_eq!(choices.first.as_deref(), Some("\"none\""));
            assert_eq!(choices.allowed, Some(HashSet::new()));
        }
    }

    #[test]
    fn a_tool_is_named_in_several_spellings() {
        for named in NAMED {
            assert_eq!(choice(named).names(), ["f"], "{named}");
            let error = choice(named).refuse_unknown(&ToolSet::default(), |_| false);
            assert!(error.unwrap_err().to_string().contains("'f'"), "{named}");
        }
        let none = ["\"f\"", r#"{"type":"any"}"#, r#"{"type":"mcp","name":"f"}"#];
        for unnamed in none {
            assert!(choice(unnamed).names().is_empty(), "{unnamed}");
        }
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
        for flat in ["function", "tool"] {
            let flat = format!(r#"{{"type":"{flat}","name":"code_interpreter"}}"#);
            assert_eq!(sent(&flat).as_deref(), Some(replacement));
        }
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
