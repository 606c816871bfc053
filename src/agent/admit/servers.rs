//! MCP servers that a request declares: about which of their calls a person is asked.

use std::collections::HashSet;

use super::super::draft::RequiredApproval;
use super::super::turn::{
    ConnectedServer, Effect, Level, LevelName, RuleEntry, RuleSet, ToolSet, compiled,
};

/// The rules that follow for the tools of the servers; `None` if a person is asked about no call.
pub(super) fn level(
    servers: &[ConnectedServer],
    required: &[RequiredApproval],
    tools: &ToolSet,
) -> Option<Level> {
    let mut rules = Vec::new();
    for (server, required) in servers.iter().zip(required) {
        let label = server.label();
        let offered = offered(required, label, tools);
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
        // The names of offered tools are valid patterns, so this does not happen. If it did, a person would be asked
        // about every call.
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

/// The names under which the model is offered these tools of a server; also of those that are still to be found.
fn offered<'t>(required: &RequiredApproval, label: &str, tools: &'t ToolSet) -> Vec<&'t str> {
    let named = |names: &[String]| -> Vec<&'t str> {
        let names = names.iter();
        names
            .flat_map(|name| tools.of_server(label, Some(name)))
            .collect()
    };
    match required {
        RequiredApproval::Always => tools.of_server(label, None),
        RequiredApproval::Never => Vec::new(),
        RequiredApproval::Of(names) => named(names),
        RequiredApproval::AllBut(names) => {
            let exempt: HashSet<&str> = named(names).into_iter().collect();
            let mut offered = tools.of_server(label, None);
            offered.retain(|name| !exempt.contains(name));
            offered
        }
    }
}
