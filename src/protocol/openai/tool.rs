//! Tool definitions and tool calls.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::value::RawValue;

use super::raw::{RawObject, push_entry, push_string, quoted};

/// The type of a tool and of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CallKind {
    /// `{"type":"function"}`: JSON arguments.
    #[default]
    Function,
    /// `{"type":"custom"}`: free text. Only clients can run custom tools.
    Custom,
}

/// A tool, as it is declared to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDefinition {
    /// The name.
    pub name: String,
    /// The JSON Schema of the arguments as JSON text; `None` if the declaration has none.
    pub parameters: Option<Arc<str>>,
    /// The JSON text of the entry of `tools[]`, as it is sent to the upstream.
    pub json: Arc<str>,
    /// The type.
    pub kind: CallKind,
}

/// A complete tool call of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// The id, which the message with the result repeats.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments: JSON text, or free text for a custom tool.
    pub arguments: String,
    /// The type of the call.
    pub kind: CallKind,
    /// What else the call has.
    pub members: CallMembers,
}

/// Members of a call on which loopwright does not act, such as the state that a model server attaches: key and JSON text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallMembers {
    /// Members beside the `function` object. They include the type if it differs from [`ToolCall::kind`].
    pub beside: Vec<(String, Box<str>)>,
    /// Inside of it.
    pub inside: Vec<(String, Box<str>)>,
}

/// Why an entry of `tools[]` is not a function or custom tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolDefinitionError {
    /// The entry or a member of it has the wrong shape.
    #[error("{0}")]
    Shape(String),
    /// The entry is a hosted tool of this type.
    #[error("hosted tool type '{0}'")]
    Hosted(String),
}

impl ToolDefinition {
    /// Builds the definition of a server-side function tool.
    pub fn function(name: &str, description: &str, parameters_json: &str) -> Self {
        let mut function = String::from("{");
        push_entry(&mut function, "name", &quoted(name));
        push_entry(&mut function, "description", &quoted(description));
        push_entry(&mut function, "parameters", parameters_json);
        function.push('}');
        Self {
            name: name.to_owned(),
            parameters: Some(parameters_json.into()),
            json: format!(r#"{{"type":"function","function":{function}}}"#).into(),
            kind: CallKind::Function,
        }
    }

    /// Parses an entry of `tools[]`.
    ///
    /// # Errors
    /// When the entry has the wrong shape or no name, or is a hosted tool.
    pub fn parse(entry: &RawValue) -> Result<Self, ToolDefinitionError> {
        let shape = |text: &str| ToolDefinitionError::Shape(text.to_owned());
        let object = RawObject::parse(entry.get()).map_err(|_| shape("must be an object"))?;
        let kind_name = match object.get_some("type") {
            Some(value) => serde_json::from_str::<String>(value.get())
                .map_err(|_| shape("type must be a string"))?,
            None => "function".to_owned(),
        };
        let kind = match kind_name.as_str() {
            "function" => CallKind::Function,
            "custom" => CallKind::Custom,
            _ => return Err(ToolDefinitionError::Hosted(kind_name)),
        };
        let body = object
            .get_some(&kind_name)
            .ok_or_else(|| shape(&format!("has no '{kind_name}' object")))?;
        let body = RawObject::parse(body.get())
            .map_err(|_| shape(&format!("'{kind_name}' must be an object")))?;
        let name = body
            .get_some("name")
            .and_then(|value| serde_json::from_str::<String>(value.get()).ok());
        Ok(Self {
            name: name
                .filter(|name| !name.is_empty())
                .ok_or_else(|| shape("has no name"))?,
            parameters: body.get_some("parameters").map(|value| value.get().into()),
            json: entry.get().into(),
            kind,
        })
    }

    /// The description; empty if there is none.
    pub fn description(&self) -> String {
        let read = || -> Option<String> {
            let object = RawObject::parse(&self.json).ok()?;
            let function = RawObject::parse(object.get_some("function")?.get()).ok()?;
            serde_json::from_str(function.get_some("description")?.get()).ok()
        };
        read().unwrap_or_default()
    }
}

/// Written as an entry of `tools[]`.
impl Serialize for ToolDefinition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry: &RawValue = serde_json::from_str(&self.json).map_err(ser::Error::custom)?;
        entry.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entry = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(&entry).map_err(de::Error::custom)
    }
}

impl ToolCall {
    /// The JSON text of the call as an entry of `tool_calls`: of a message, or with `index` of a delta.
    pub fn to_json(&self, index: Option<usize>) -> String {
        let mut json = String::from("{");
        if let Some(index) = index {
            push_entry(&mut json, "index", &index.to_string());
        }
        push_entry(&mut json, "id", &quoted(&self.id));
        let (kind, argument_key) = match self.kind {
            CallKind::Function => ("function", "arguments"),
            CallKind::Custom => ("custom", "input"),
        };
        let mut beside = self.members.beside.iter();
        let other_type = beside.find(|(key, _)| key == "type");
        match other_type {
            Some((key, value)) => push_entry(&mut json, key, value),
            None => push_entry(&mut json, "type", &quoted(kind)),
        }
        json.push_str(",\"");
        json.push_str(kind);
        json.push_str(r#"":{"name":"#);
        push_string(&mut json, &self.name);
        json.push_str(",\"");
        json.push_str(argument_key);
        json.push_str("\":");
        push_string(&mut json, &self.arguments);
        for (key, value) in &self.members.inside {
            push_entry(&mut json, key, value);
        }
        json.push('}');
        for (key, value) in self.members.beside.iter().filter(|(key, _)| key != "type") {
            push_entry(&mut json, key, value);
        }
        json.push('}');
        json
    }
}

impl CallMembers {
    /// Whether a key beside `function`, or inside of it, is one on which loopwright acts.
    pub(crate) fn is_known(key: &str) -> bool {
        matches!(
            key,
            "index" | "id" | "type" | "function" | "custom" | "name" | "arguments" | "input"
        )
    }

    /// The members of a call, or of the object inside of it, on which loopwright does not act.
    pub fn of(object: &RawObject<'_>) -> Vec<(String, Box<str>)> {
        let other_type = |key: &str, value: &RawValue| {
            key == "type"
                && !matches!(
                    value.get(),
                    r#""function""# | r#""custom""# | r#""""# | "null"
                )
        };
        let kept = object
            .iter()
            .filter(|(key, value)| !Self::is_known(key) || other_type(key, value));
        kept.map(|(key, value)| (key.to_owned(), value.get().into()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<ToolDefinition, ToolDefinitionError> {
        ToolDefinition::parse(&serde_json::from_str::<Box<RawValue>>(json).unwrap())
    }

    #[test]
    fn a_declared_function_keeps_its_json_text() {
        let json = r#"{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}}"#;
        let definition = parse(json).unwrap();
        assert_eq!(definition.name, "f");
        assert_eq!(&*definition.json, json);
        assert_eq!(
            definition.parameters.as_deref(),
            Some(r#"{"type":"object"}"#)
        );
    }

    #[test]
    fn hosted_and_malformed_entries_are_errors() {
        assert_eq!(
            parse(r#"{"type":"web_search"}"#),
            Err(ToolDefinitionError::Hosted("web_search".into()))
        );
        assert!(matches!(
            parse(r#"{"type":"function"}"#),
            Err(ToolDefinitionError::Shape(_))
        ));
        assert!(matches!(
            parse(r#"{"type":"function","function":{"name":""}}"#),
            Err(ToolDefinitionError::Shape(_))
        ));
        assert!(matches!(parse("3"), Err(ToolDefinitionError::Shape(_))));
    }

    #[test]
    fn a_call_is_written_as_an_entry_of_a_message_or_a_delta() {
        let call = ToolCall {
            id: "c".into(),
            name: "n".into(),
            arguments: r#"{"a":"b"}"#.into(),
            kind: CallKind::Function,
            members: CallMembers::default(),
        };
        assert_eq!(
            call.to_json(None),
            r#"{"id":"c","type":"function","function":{"name":"n","arguments":"{\"a\":\"b\"}"}}"#
        );
        let members = CallMembers {
            beside: vec![("extra".into(), "{}".into())],
            inside: vec![("strict".into(), "1.0".into())],
        };
        assert_eq!(
            ToolCall {
                members,
                ..call.clone()
            }
            .to_json(None),
            r#"{"id":"c","type":"function","function":{"name":"n","arguments":"{\"a\":\"b\"}","strict":1.0},"extra":{}}"#
        );
        assert!(call.to_json(Some(1)).starts_with(r#"{"index":1,"id":"c""#));
    }
}
