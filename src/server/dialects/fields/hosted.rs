//! Hosted tools, which a request declares in `tools[]` or asks for with fields of their own: code execution, web search and
//! MCP servers. They mean the same in all dialects.

pub(in crate::dialects) mod code;
pub(in crate::dialects) mod mcp;
mod object;
mod require_approval;
pub(in crate::dialects) mod web;

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::field::Field;
use agent::draft::{DraftTool, DraftTools, FaultScope, Faults, HostedTool};
use agent::event::Notice;
use protocol::openai::raw::RawObject;
use protocol::openai::request::RequestError;
use protocol::openai::tool::{ToolDefinition, ToolDefinitionError};

/// An entry of `tools[]`, and the path of its field.
#[derive(Debug)]
pub(in crate::dialects) struct ToolEntry<'a> {
    pub(in crate::dialects) param: String,
    pub(in crate::dialects) kind: EntryKind<'a>,
}

/// What an entry of `tools[]` is.
#[derive(Debug)]
pub(in crate::dialects) enum EntryKind<'a> {
    /// A function or custom tool.
    Declared(ToolDefinition),
    /// A hosted tool.
    Hosted {
        /// The type.
        kind: String,
        /// The whole entry.
        json: Cow<'a, RawValue>,
    },
    /// A tool that is left out, with the notice for the client.
    LeftOut(Notice),
    /// Invalid; the text is the problem, for the client.
    Unusable(String),
}

/// The members that ask for hosted tools besides `tools`.
#[derive(Debug)]
pub(in crate::dialects) struct HostedFields<'a> {
    enable_code_execution: Field<'a>,
    files: Field<'a>,
    web_search_options: Field<'a>,
}

impl<'a> ToolEntry<'a> {
    /// Reads an entry of `tools[index]` of a chat request.
    pub(in crate::dialects) fn of_chat(index: usize, json: &'a RawValue) -> Self {
        Self {
            param: format!("tools[{index}]"),
            kind: match ToolDefinition::parse(json) {
                Ok(definition) => EntryKind::Declared(definition),
                Err(ToolDefinitionError::Hosted(kind)) => EntryKind::Hosted {
                    kind,
                    json: Cow::Borrowed(json),
                },
                Err(ToolDefinitionError::Shape(problem)) => EntryKind::Unusable(problem),
            },
        }
    }

    /// The type and the JSON text of a hosted tool.
    fn hosted(&self) -> Option<(&str, &RawValue)> {
        match &self.kind {
            EntryKind::Hosted { kind, json } => Some((kind, json)),
            EntryKind::Declared(_) | EntryKind::LeftOut(_) | EntryKind::Unusable(_) => None,
        }
    }
}

impl<'a> HostedFields<'a> {
    pub(in crate::dialects) fn of(object: &RawObject<'a>) -> Self {
        Self {
            enable_code_execution: Field::of(object, "enable_code_execution"),
            files: Field::of(object, "files"),
            web_search_options: Field::of(object, web::OPTIONS),
        }
    }

    pub(in crate::dialects) fn read(
        self,
        entries: Vec<ToolEntry<'a>>,
        faults: &mut Faults,
    ) -> DraftTools {
        let code = code::read(self.enable_code_execution, self.files, &entries, faults);
        let web = faults.note(
            FaultScope::Web,
            web::read(self.web_search_options, &entries),
        );
        let mut servers = faults
            .note(FaultScope::Servers, mcp::read(&entries))
            .into_iter();
        let mut declared = Vec::with_capacity(entries.len());
        for ToolEntry { param, kind } in entries {
            let (kind, json) = match kind {
                EntryKind::Hosted { kind, json } => (kind, json),
                EntryKind::Declared(definition) => {
                    declared.push(DraftTool::Function(definition));
                    continue;
                }
                EntryKind::LeftOut(notice) => {
                    declared.push(DraftTool::LeftOut(notice));
                    continue;
                }
                EntryKind::Unusable(problem) => {
                    let error = RequestError::invalid(&param, &problem);
                    faults.note::<()>(FaultScope::Tools, Err(error));
                    continue;
                }
            };
            let server = (kind == mcp::MCP).then(|| servers.next()).flatten();
            let tool = HostedTool {
                has_credentials: kind == mcp::MCP || has_credentials(&json),
                kind,
                json: json.get().into(),
                param,
            };
            declared.push(match server {
                Some(server) => DraftTool::Server(Box::new(server), tool),
                None => DraftTool::Hosted(tool),
            });
        }
        DraftTools {
            declared,
            code,
            web,
            ..DraftTools::default()
        }
    }
}

/// Whether an entry has members that hold credentials.
fn has_credentials(entry: &RawValue) -> bool {
    let object = RawObject::parse(entry.get());
    let holds = |object: RawObject<'_>| {
        let members = ["authorization", "headers"].iter();
        members.into_iter().any(|name| object.get(name).is_some())
    };
    object.map_or(true, holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tools of a chat request, and what is wrong with them.
    pub(in crate::dialects) fn read_tools(json: &str) -> (DraftTools, Faults) {
        let object = RawObject::parse(json).unwrap();
        let entries: Vec<&RawValue> = object
            .get("tools")
            .map_or_else(Vec::new, |tools| serde_json::from_str(tools.get()).unwrap());
        let entries = entries.into_iter().enumerate();
        let entries = entries.map(|(index, json)| ToolEntry::of_chat(index, json));
        let mut faults = Faults::default();
        let tools = HostedFields::of(&object).read(entries.collect(), &mut faults);
        (tools, faults)
    }
}
