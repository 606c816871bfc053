//! Schemas of servers as model servers take them.

use serde_json::{Map, Value};

use super::trim::{DATA, NAMED_SCHEMAS};

/// The types of JSON Schema.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];
/// Members that are lists.
const LISTS: [&str; 3] = ["enum", "required", "type"];

/// Repairs the parts of a schema that model servers refuse, at any depth: members that are null, lists and maps of
/// another form, types in another case. A server in Go writes null for an empty list, one in PHP a list for an empty
/// map.
pub(super) fn mend(schema: &mut Value) {
    match schema {
        Value::Object(members) => mend_members(members),
        Value::Array(schemas) => schemas.iter_mut().for_each(mend),
        Value::Null => *schema = Map::new().into(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn mend_members(members: &mut Map<String, Value>) {
    members.retain(|name, value| match name.as_str() {
        // A value of the data may be null.
        "const" | "default" => true,
        "required" => value.is_array(),
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        _ => !value.is_null(),
    });
    for (name, value) in members.iter_mut() {
        let name = name.as_str();
        if NAMED_SCHEMAS.contains(&name) {
            if value.as_array().is_some_and(Vec::is_empty) {
                *value = Map::new().into();
            }
            let named = value.as_object_mut().into_iter().flatten();
            named.for_each(|(_, schema)| mend(schema));
        } else if name == "type" {
            mend_type(value);
        } else if !DATA.contains(&name) && !LISTS.contains(&name) {
            mend(value);
        }
    }
}

fn mend_type(value: &mut Value) {
    match value {
        Value::String(text) => {
            let lower = text.to_ascii_lowercase();
            if TYPES.contains(&lower.as_str()) {
                *text = lower;
            }
        }
        Value::Array(types) => types.iter_mut().for_each(mend_type),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_model_servers_refuse_is_mended_at_every_depth() {
        for (mut schema, expected) in [
            (
                json!({"type": "object", "properties": null, "required": null}),
                json!({"type": "object"}),
            ),
            (
                json!({"properties": [], "required": {}}),
                json!({"properties": {}}),
            ),
            (
                json!({"type": "OBJECT", "properties": {"a": {"type": ["STRING", "NULL"], "enum": null, "items": null}}}),
                json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}),
            ),
            (
                json!({"properties": {"a": null, "b": {"items": {"type": null, "required": true}}}}),
                json!({"properties": {"a": {}, "b": {"items": {}}}}),
            ),
            (
                json!({"anyOf": [{"type": "Integer"}, {"enum": []}], "$defs": {"p": {"properties": null}}}),
                json!({"anyOf": [{"type": "integer"}, {}], "$defs": {"p": {}}}),
            ),
            (
                json!({"properties": {"type": {"type": "string", "default": null, "const": null, "enum": [null, "A"]}}}),
                json!({"properties": {"type": {"type": "string", "default": null, "const": null, "enum": [null, "A"]}}}),
            ),
            (
                json!({"properties": {"required": {"type": "boolean"}, "enum": {"type": "string"}}, "additionalProperties": false}),
                json!({"properties": {"required": {"type": "boolean"}, "enum": {"type": "string"}}, "additionalProperties": false}),
            ),
        ] {
            mend(&mut schema);
            assert_eq!(schema, expected);
        }
    }
}
