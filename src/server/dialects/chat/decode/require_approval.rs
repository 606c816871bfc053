//! `require_approval` of an MCP server: about which of its calls a person is asked.

use std::collections::HashSet;

use serde::Deserialize;

use super::mcp::MAX_TOOLS;
use super::object::RequestObject;
use agent::turn::{
    ConnectedServer, Effect, Level, LevelName, RuleEntry, RuleSet, ToolSet, compiled,
};
use protocol::openai::request::RequestError;

/// The member.
pub(super) const REQUIRE_APPROVAL: &str = "require_approval";

/// The tools of a server whose calls a person is asked about, by the names that the server gives them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum RequiredApproval {
    /// All.
    #[default]
    Always,
    /// None.
    Never,
    /// These.
    Of(Vec<String>),
    /// All but these.
    AllBut(Vec<String>),
}

/// What a request may write.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenApproval {
    Word(ApprovalWord),
    Lists(ApprovalLists),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ApprovalWord {
    Always,
    Never,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalLists {
    always: Option<ApprovalTools>,
    never: Option<ApprovalTools>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalTools {
    tool_names: Vec<String>,
}

impl RequiredApproval {
    /// Reads the member of a server. Without it, a person is asked about every call.
    ///
    /// # Errors
    /// When it has another shape, or too many names.
    pub(super) fn read(server: &RequestObject<'_>) -> Result<Self, RequestError> {
        let shape = format!(
            "must be \"always\", \"never\", or an object whose members 'always' and 'never' each have a list 'tool_names' of at \
             most {MAX_TOOLS} names, and nothing else"
        );
        let written: Option<WrittenApproval> = server.member(REQUIRE_APPROVAL, &shape)?;
        let lists = match written {
            None | Some(WrittenApproval::Word(ApprovalWord::Always)) => return Ok(Self::Always),
            Some(WrittenApproval::Word(ApprovalWord::Never)) => return Ok(Self::Never),
            Some(WrittenApproval::Lists(lists)) => lists,
        };
        let names = |list: Option<ApprovalTools>| list.map(|list| list.tool_names);
        let (always, never) = (names(lists.always), names(lists.never));
        let mut both = always.iter().chain(&never);
        if both.any(|list| list.len() > MAX_TOOLS) {
            return Err(server.invalid(REQUIRE_APPROVAL, &shape));
        }
        Ok(match (always, never) {
            (None, None) => Self::Always,
            // Who names what to ask about does not ask about the rest.
            (Some(always), None) => Self::Of(always),
            (always, Some(mut never)) => {
                let always = always.unwrap_or_default();
                never.retain(|name| !always.contains(name));
                Self::AllBut(never)
            }
        })
    }

    /// The names under which the model is offered these tools of a server; also of those that are still to be found.
    fn offered<'t>(&self, label: &str, tools: &'t ToolSet) -> Vec<&'t str> {
        let named = |names: &[String]| -> Vec<&'t str> {
            let names = names.iter();
            names
                .flat_map(|name| tools.of_server(label, Some(name)))
                .collect()
        };
        match self {
            Self::Always => tools.of_server(label, None),
            Self::Never => Vec::new(),
            Self::Of(names) => named(names),
            Self::AllBut(names) => {
                let exempt: HashSet<&str> = named(names).into_iter().collect();
                let mut offered = tools.of_server(label, None);
                offered.retain(|name| !exempt.contains(name));
                offered
            }
        }
    }
}

/// The rules that follow for the tools of the servers; `None` if a person is asked about no call.
pub(super) fn level(
    servers: &[ConnectedServer],
    required: &[RequiredApproval],
    tools: &ToolSet,
) -> Option<Level> {
    let mut rules = Vec::new();
    for (server, required) in servers.iter().zip(required) {
        let label = server.label();
        let offered = required.offered(label, tools);
        rules.extend(offered.into_iter().map(|tool| rule(label, tool)));
    }
    if rules.is_empty() {
        return None;
    }
    let level = |rules, word| Level {
        name: LevelName::Request,
        rules,
        word,
    };
    Some(match compiled(rules) {
        Ok(rules) => level(rules, None),
        // The names of offered tools are no patterns, so that this does not happen: a person is asked about every call.
        Err(_) => level(RuleSet::default().into(), Some(Effect::Ask)),
    })
}

/// A person is asked about every call of this tool.
fn rule(label: &str, tool: &str) -> RuleEntry {
    RuleEntry {
        tool: tool.to_owned(),
        risk: None,
        argument: None,
        match_kind: None,
        patterns: Vec::new(),
        from_call: None,
        effect: Effect::Ask,
        reason: Some(format!(
            "The request wants calls of the MCP server '{label}' approved."
        )),
        must_match: Vec::new(),
        must_not_match: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Result<RequiredApproval, RequestError> {
        let server = RawValue::from_string(json!({"require_approval": value}).to_string()).unwrap();
        RequiredApproval::read(&RequestObject::read(&server, "tools[0]", "{}").unwrap())
    }

    #[test]
    fn the_lists_say_which_tools_are_asked_about() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let list = |names: &[&str]| json!({"tool_names": names});
        for (value, expected) in [
            (Value::Null, RequiredApproval::Always),
            (json!("always"), RequiredApproval::Always),
            (json!("never"), RequiredApproval::Never),
            (json!({}), RequiredApproval::Always),
            (
                json!({"always": list(&["a"])}),
                RequiredApproval::Of(names(&["a"])),
            ),
            (
                json!({"always": list(&[])}),
                RequiredApproval::Of(Vec::new()),
            ),
            (
                json!({"never": list(&["a"])}),
                RequiredApproval::AllBut(names(&["a"])),
            ),
            (
                json!({"always": list(&["a", "b"]), "never": list(&["b", "c"])}),
                RequiredApproval::AllBut(names(&["c"])),
            ),
        ] {
            assert_eq!(read(&value).unwrap(), expected, "{value}");
        }
    }

    #[test]
    fn other_shapes_are_refused() {
        let many: Vec<String> = (0..=MAX_TOOLS).map(|number| number.to_string()).collect();
        for value in [
            json!("sometimes"),
            json!(true),
            json!(["a"]),
            json!({"always": ["a"]}),
            json!({"always": {"tool_names": "a"}}),
            json!({"always": {}}),
            json!({"never": {"tool_names": [], "read_only": true}}),
            json!({"often": {"tool_names": []}}),
            json!({"never": {"tool_names": many}}),
        ] {
            let error = read(&value).unwrap_err();
            assert_eq!(
                error.param.as_deref(),
                Some("tools[0].require_approval"),
                "{value}"
            );
        }
    }
}
