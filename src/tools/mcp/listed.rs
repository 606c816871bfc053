//! The tools that a server lists, within bounds, and their definitions for the model.

use std::collections::HashSet;

use rmcp::model::Tool as RemoteTool;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::mend::mend;
use super::trim::trim;
use crate::settings::mcp::McpServerSettings;

/// How much one server may list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListLimits {
    /// Most tools.
    tools: usize,
    /// Most bytes of schemas and descriptions in all.
    bytes: usize,
}

/// Most tools and bytes of the list of a server of the settings; the others are left out.
/// Tried by `hostile::endless_pages_and_floods_of_tools_are_cut`.
pub(super) const CONFIGURED: ListLimits = ListLimits {
    tools: 1000,
    bytes: 4 * 1024 * 1024,
};
/// Most tools and bytes of the list of a server of a request, which is kept as long as its connection; the others are
/// left out.
/// Tried by `limits::the_list_of_a_declared_server_is_bounded`.
pub(super) const REQUESTED: ListLimits = ListLimits {
    tools: 200,
    bytes: 512 * 1024,
};

/// Longest name of a tool, in bytes. A tool with a longer one is left out.
/// Tried by `hostile::huge_and_malformed_tools_are_left_out_and_the_others_stay`.
const MAX_NAME_BYTES: usize = 256;
/// Largest schema of one tool, in bytes. A tool with a larger one is left out.
/// Tried by `hostile::huge_and_malformed_tools_are_left_out_and_the_others_stay`.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// Longest instructions of a server, in bytes; the rest is cut.
const MAX_INSTRUCTIONS_BYTES: usize = 2048;
/// Longest description, in bytes; the rest is cut.
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;

/// What a server has said of itself and its tools.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) tools: Vec<RemoteTool>,
    /// How its tools are to be used.
    pub(super) instructions: Option<String>,
}

/// Collects the tools of a list.
#[derive(Debug)]
pub(super) struct ToolCollector<'a> {
    server: &'a str,
    limits: ListLimits,
    tools: Vec<RemoteTool>,
    names: HashSet<String>,
    bytes: usize,
    malformed: usize,
    full: bool,
}

impl<'a> ToolCollector<'a> {
    pub(super) fn new(server: &'a str, limits: ListLimits) -> Self {
        Self {
            server,
            limits,
            tools: Vec::new(),
            names: HashSet::new(),
            bytes: 0,
            malformed: 0,
            full: false,
        }
    }

    /// Adds a tool, unless it has the name of one before it, or a bound is reached.
    pub(super) fn add(&mut self, tool: RemoteTool) {
        let schema = serde_json::to_string(&*tool.input_schema).unwrap_or_default();
        let bytes = schema.len() + description(&tool).len();
        let fits = (1..=MAX_NAME_BYTES).contains(&tool.name.len());
        if !fits || schema.len() > MAX_SCHEMA_BYTES {
            self.malformed += 1;
            return;
        }
        if self.tools.len() >= self.limits.tools || self.bytes + bytes > self.limits.bytes {
            if !self.full {
                self.cut("tools");
            }
            self.full = true;
            return;
        }
        if self.names.insert(tool.name.to_string()) {
            self.bytes += bytes;
            self.tools.push(tool);
        }
    }

    /// Adds a tool that may have malformed members. Such a member is left out; a malformed name or schema makes the
    /// tool malformed.
    pub(super) fn add_json(&mut self, entry: &Value) {
        let read =
            RemoteTool::deserialize(entry).or_else(|_| RemoteTool::deserialize(plain(entry)));
        match read {
            Ok(tool) => self.add(tool),
            Err(_) => self.malformed += 1,
        }
    }

    /// Whether no further tool is taken.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Says in the log that the list is cut.
    pub(super) fn cut(&self, what: &str) {
        let (server, taken) = (self.server, self.tools.len());
        tracing::warn!(
            server,
            taken,
            "the MCP server lists too many {what}; the rest is left out"
        );
    }

    pub(super) fn finish(self) -> Vec<RemoteTool> {
        if self.malformed > 0 {
            tracing::warn!(
                server = self.server,
                left_out = self.malformed,
                "tools of the MCP server are left out: they have no name, an impossible or a huge schema"
            );
        }
        self.tools
    }
}

/// The members of a tool that are used here, if they have the right form.
fn plain(tool: &Value) -> Value {
    let mut plain = Map::new();
    for (name, value) in tool.as_object().into_iter().flatten() {
        let value = match (name.as_str(), value) {
            ("name" | "title" | "description", Value::String(_))
            | ("inputSchema", Value::Object(_)) => value.clone(),
            // A tool without arguments.
            ("inputSchema", Value::Null) => Map::new().into(),
            ("annotations", Value::Object(hints)) => {
                let hints = hints.iter().filter(|(_, hint)| hint.is_boolean());
                Value::Object(
                    hints
                        .map(|(name, hint)| (name.clone(), hint.clone()))
                        .collect(),
                )
            }
            _ => continue,
        };
        plain.insert(name.clone(), value);
    }
    plain.into()
}

/// Whether a tool says of itself that it changes nothing.
pub(super) fn is_read_only(tool: &RemoteTool) -> bool {
    tool.annotations.as_ref().is_some_and(|hints| {
        hints.read_only_hint == Some(true) && hints.destructive_hint != Some(true)
    })
}

/// Whether the settings let a tool be offered.
pub(super) fn is_allowed(tool: &RemoteTool, settings: &McpServerSettings) -> bool {
    let by_name = settings.allowed_tools.as_ref();
    let by_hint = settings.allowed_read_only;
    by_name.is_none_or(|globs| globs.matches(&tool.name))
        && by_hint.is_none_or(|wanted| is_read_only(tool) == wanted)
}

/// The start of a server's instructions, up to the bound.
pub(super) fn instructions(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_INSTRUCTIONS_BYTES);
    text.get(..end).unwrap_or_default().trim().to_owned()
}

/// The description for the model.
pub(super) fn description(tool: &RemoteTool) -> &str {
    let text = tool.description.as_deref();
    let text = text.or(tool.title.as_deref()).unwrap_or_default();
    let end = text.floor_char_boundary(MAX_DESCRIPTION_BYTES);
    text.get(..end).unwrap_or_default()
}

/// The JSON Schema of the arguments as JSON text: whole, with what model servers insist on.
pub(super) fn parameters(tool: &RemoteTool, settings: &McpServerSettings) -> String {
    let mut schema = Value::Object((*tool.input_schema).clone());
    mend(&mut schema);
    if let Value::Object(members) = &mut schema {
        members
            .entry("type")
            .or_insert_with(|| Value::from("object"));
        members
            .entry("properties")
            .or_insert_with(|| Map::new().into());
    }
    if settings.trim_schemas {
        trim(&mut schema);
    }
    schema.to_string()
}
