//! Removes the parts of schemas that only explain them to people.

use serde_json::Value;

/// Members that hold schemas by name, so that their own members are no keywords.
pub(super) const NAMED_SCHEMAS: [&str; 5] = [
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
];
/// Members that hold values of the data, not schemas.
pub(super) const DATA: [&str; 3] = ["const", "default", "enum"];
/// What is left out.
const LEFT_OUT: [&str; 2] = ["examples", "title"];

/// Removes titles and examples from a schema and the schemas in it.
pub(super) fn trim(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
            for (name, value) in members.iter_mut() {
                if NAMED_SCHEMAS.contains(&name.as_str()) {
                    let named = value.as_object_mut().into_iter().flatten();
                    named.for_each(|(_, schema)| trim(schema));
                } else if !DATA.contains(&name.as_str()) {
                    trim(value);
                }
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(trim),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn titles_and_examples_go_and_properties_of_these_names_stay() {
        let mut schema = json!({
            "title": "Arguments",
            "properties": {
                "title": {"title": "Title", "type": "string", "examples": ["x"]},
                "any": {"anyOf": [{"title": "One", "$ref": "#/$defs/p"}], "default": {"title": "kept"}},
            },
            "$defs": {"p": {"title": "P", "items": {"title": "I"}}, "examples": {"type": "null"}},
        });
        trim(&mut schema);
        assert_eq!(
            schema,
            json!({
                "properties": {
                    "title": {"type": "string"},
                    "any": {"anyOf": [{"$ref": "#/$defs/p"}], "default": {"title": "kept"}},
                },
                "$defs": {"p": {"items": {}}, "examples": {"type": "null"}},
            })
        );
    }
}
