//! The tools that the model may call.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use protocol::openai::raw::{RawObject, quoted};

/// The tools of a request.
#[derive(Debug)]
pub(super) struct Offered {
    /// The array of the request.
    tools: Arc<str>,
    names: Vec<String>,
}

/// The parameters of a tool.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    properties: Value,
}

impl Offered {
    pub(super) fn new(tools: Arc<str>) -> Self {
        let names = functions(&tools).filter_map(|function| name(&function));
        Self {
            names: names.collect(),
            tools,
        }
    }

    /// The names of the functions.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The parameters of the function with this name; none if the request does not say.
    pub(super) fn parameters(&self, tool: &str) -> Parameters {
        let function = functions(&self.tools).find(|one| name(one).as_deref() == Some(tool));
        let properties = function.and_then(|function| {
            let schema = RawObject::parse(function.get_some("parameters")?.get()).ok()?;
            serde_json::from_str(schema.get_some("properties")?.get()).ok()
        });
        Parameters {
            properties: properties.unwrap_or_default(),
        }
    }
}

impl Parameters {
    /// The JSON text of a value that was written as text. `is_string` says whether it is a string where the schema
    /// is silent.
    pub(super) fn value(&self, parameter: &str, written: &str, is_string: bool) -> String {
        let mut types = Vec::new();
        if let Some(schema) = self.properties.get(parameter) {
            types_of(schema, &mut types);
        }
        let trimmed = written.trim();
        let is_string = match types.is_empty() {
            true => is_string,
            false if trimmed == "null" && types.contains(&"null") => false,
            false => types.contains(&"string"),
        };
        match serde_json::from_str::<&RawValue>(trimmed) {
            Ok(value) if !is_string => value.get().to_owned(),
            _ => quoted(written),
        }
    }
}

/// The functions of a `tools` array, one by one.
fn functions(tools: &str) -> impl Iterator<Item = RawObject<'_>> {
    let entries: Vec<RawObject<'_>> = serde_json::from_str(tools).unwrap_or_default();
    entries
        .into_iter()
        .filter_map(|entry| RawObject::parse(entry.get_some("function")?.get()).ok())
}

fn name(function: &RawObject<'_>) -> Option<String> {
    serde_json::from_str(function.get_some("name")?.get()).ok()
}

/// Collects the types that a schema allows.
fn types_of<'a>(schema: &'a Value, types: &mut Vec<&'a str>) {
    match schema.get("type") {
        Some(Value::Array(kinds)) => types.extend(kinds.iter().filter_map(Value::as_str)),
        Some(kind) => types.extend(kind.as_str()),
        None => {
            let members = ["anyOf", "oneOf", "allOf"].map(|key| schema.get(key));
            let members = members.into_iter().flatten().filter_map(Value::as_array);
            members.flatten().for_each(|one| types_of(one, types));
            let values = schema.get("enum").and_then(Value::as_array);
            if values.is_some_and(|values| values.iter().any(Value::is_string)) {
                types.push("string");
            }
        }
    }
}
