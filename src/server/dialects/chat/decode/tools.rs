//! `tools[]`: function and custom tools, and OpenAI's hosted tools.

use serde_json::value::RawValue;

use super::body::Field;
use super::{code, web};
use agent::turn::Capability;
use protocol::openai::request::RequestError;
use protocol::openai::tool::{ToolDefinition, ToolDefinitionError};

/// An entry of `tools[]`.
#[derive(Debug)]
pub(super) enum ToolEntry<'a> {
    /// A function or custom tool.
    Declared(ToolDefinition),
    /// A hosted tool.
    Hosted {
        /// The type.
        kind: String,
        /// The whole entry.
        json: &'a RawValue,
    },
    /// Invalid; the text is the problem, for the client.
    Unusable(String),
}

/// The checked entries of `tools[]`.
#[derive(Debug, Default)]
pub(super) struct DeclaredTools {
    /// Tools that the server or the client runs.
    pub(super) functions: Vec<ToolDefinition>,
    /// The names of these tools.
    pub(super) names: Vec<String>,
    /// Entries of hosted tools that the upstream runs, as JSON text.
    pub(super) hosted: Vec<String>,
}

/// The capability that a type of `tools[]` or `tool_choice` stands for.
pub fn capability(kind: &str) -> Option<Capability> {
    match kind {
        code::CODE_INTERPRETER => Some(Capability::Code),
        kind if web::is_web_search(kind) => Some(Capability::Web),
        _ => None,
    }
}

/// The flag that has the server offer a type of `tools[]`.
pub fn switched_on_by(kind: &str) -> Option<&'static str> {
    capability(kind).map(|capability| match capability {
        Capability::Code => "--enable-code-execution",
        Capability::Web => "--enable-search",
    })
}

/// Reads the entries of `tools[]`.
///
/// # Errors
/// When `tools` is not an array.
pub(super) fn entries(field: Field<'_>) -> Result<Vec<ToolEntry<'_>>, RequestError> {
    let entries: Option<Vec<&RawValue>> = field.read("an array of tool definitions")?;
    let read = |json| match ToolDefinition::parse(json) {
        Ok(definition) => ToolEntry::Declared(definition),
        Err(ToolDefinitionError::Hosted(kind)) => ToolEntry::Hosted { kind, json },
        Err(ToolDefinitionError::Shape(problem)) => ToolEntry::Unusable(problem),
    };
    Ok(entries.unwrap_or_default().into_iter().map(read).collect())
}

impl DeclaredTools {
    /// Checks the entries. A hosted tool is run here if `runs_here` says so of its type, or by the upstream if
    /// `upstream_types` has its type.
    ///
    /// # Errors
    /// When an entry is invalid, or neither the server nor the upstream runs its hosted tool.
    pub(super) fn check(
        entries: Vec<ToolEntry<'_>>,
        upstream_types: &[String],
        runs_here: impl Fn(&str) -> bool,
    ) -> Result<Self, RequestError> {
        let unusable = entries
            .iter()
            .enumerate()
            .find_map(|(index, entry)| match entry {
                ToolEntry::Unusable(problem) => Some((format!("tools[{index}]"), problem)),
                ToolEntry::Declared(_) | ToolEntry::Hosted { .. } => None,
            });
        if let Some((param, problem)) = unusable {
            return Err(RequestError::invalid(&param, problem));
        }
        let mut checked = Self::default();
        for entry in entries {
            match entry {
                ToolEntry::Declared(definition) => {
                    checked.names.push(definition.name.clone());
                    checked.functions.push(definition);
                }
                ToolEntry::Hosted { kind, json } => {
                    if runs_here(&kind) {
                        continue;
                    }
                    if !upstream_types.contains(&kind) {
                        let message = format!(
                            "the hosted tool type '{kind}' is not offered by this server; leave it out of 'tools'{}",
                            switched_on_by(&kind)
                                .map(|flag| format!(", or start the server with {flag}"))
                                .unwrap_or_default()
                        );
                        return Err(RequestError::field("tools", message));
                    }
                    checked.hosted.push(json.get().to_owned());
                }
                ToolEntry::Unusable(_) => {}
            }
        }
        Ok(checked)
    }
}
