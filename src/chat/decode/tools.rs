//! `tools[]`: each entry read once, as a function that somebody runs or as one of OpenAI's hosted tools.

use serde_json::value::RawValue;

use super::body::Field;
use super::{code, web};
use crate::agent::turn::Capability;
use crate::openai::request::RequestError;
use crate::openai::tool::{ToolDefinition, ToolDefinitionError};

/// An entry of `tools[]`.
#[derive(Debug)]
pub(super) enum Entry<'a> {
    /// A function or custom tool.
    Declared(ToolDefinition),
    /// A hosted tool.
    Hosted {
        /// Its type.
        kind: String,
        /// The whole entry.
        json: &'a RawValue,
    },
    /// Neither; the text says why.
    Unusable(String),
}

/// The checked entries of `tools[]`.
#[derive(Debug, Default)]
pub(super) struct Declared {
    /// Tools that the server or the client runs.
    pub(super) functions: Vec<ToolDefinition>,
    /// Their names.
    pub(super) names: Vec<String>,
    /// Entries that the upstream runs itself, as JSON text.
    pub(super) hosted: Vec<String>,
}

/// The capability that a type of `tools[]` or `tool_choice` stands for.
pub(super) fn capability(kind: &str) -> Option<Capability> {
    match kind {
        code::CODE_INTERPRETER => Some(Capability::Code),
        kind if web::names_web_search(kind) => Some(Capability::Web),
        _ => None,
    }
}

/// Reads the entries.
///
/// # Errors
/// When `tools` is not an array.
pub(super) fn entries(field: Field<'_>) -> Result<Vec<Entry<'_>>, RequestError> {
    let entries: Option<Vec<&RawValue>> = field.read("an array of tool definitions")?;
    let read = |json| match ToolDefinition::parse(json) {
        Ok(definition) => Entry::Declared(definition),
        Err(ToolDefinitionError::Hosted(kind)) => Entry::Hosted { kind, json },
        Err(ToolDefinitionError::Shape(problem)) => Entry::Unusable(problem),
    };
    Ok(entries.unwrap_or_default().into_iter().map(read).collect())
}

impl Declared {
    /// Checks the entries: a hosted tool is run here, by the tool that `own` names, or `known` to the upstream.
    ///
    /// # Errors
    /// When an entry cannot be used.
    pub(super) fn check(
        entries: Vec<Entry<'_>>,
        known: &[String],
        own: impl Fn(&str) -> Option<&'static str>,
    ) -> Result<Self, RequestError> {
        let unusable = entries
            .iter()
            .enumerate()
            .find_map(|(index, entry)| match entry {
                Entry::Unusable(problem) => Some((format!("tools[{index}]"), problem)),
                Entry::Declared(_) | Entry::Hosted { .. } => None,
            });
        if let Some((param, problem)) = unusable {
            return Err(RequestError::invalid(&param, problem));
        }
        let mut checked = Self::default();
        for entry in entries {
            match entry {
                Entry::Declared(definition) => {
                    checked.names.push(definition.name.clone());
                    checked.functions.push(definition);
                }
                Entry::Hosted { kind, json } => {
                    if own(&kind).is_some() {
                        continue;
                    }
                    if !known.contains(&kind) {
                        let message = format!(
                            "the hosted tool type '{kind}' is not offered by this server; leave it out of 'tools'"
                        );
                        return Err(RequestError::field("tools", message));
                    }
                    checked.hosted.push(json.get().to_owned());
                }
                Entry::Unusable(_) => {}
            }
        }
        Ok(checked)
    }
}
