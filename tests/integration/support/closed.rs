//! Closes the schemas of answers: what a document leaves open to later versions is an error in the tests.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Members that the model servers of the tests send, besides those that are described: patterns.
const OF_MODEL_SERVERS: [&str; 9] = [
    "audio",
    "k[0-9]+",
    "kept",
    "logprobs",
    "reasoning_text",
    "service_tier",
    "stop_reason",
    "system_fingerprint",
    "x_[a-z]+",
];
/// Schemas whose objects are model servers' or clients' own; loopwright adds nothing to them.
const OPEN: [&str; 4] = [
    "IdentifiedMessage",
    "Model",
    "ReportedError",
    "ReportedErrorDetail",
];
/// Keywords with a list of schemas that hold for the same value.
const IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The schemas of a document, in which objects of answers have no members but those that are described.
pub(super) fn closed(document: &Value) -> Value {
    let mut schemas = document["components"]["schemas"].clone();
    let mut of_answers = BTreeSet::new();
    gather(
        document,
        &document["components"]["responses"],
        &mut of_answers,
    );
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            gather(document, &operation["responses"], &mut of_answers);
        }
    }
    let call = &document["webhooks"]["callTool"]["post"]["requestBody"];
    gather(document, call, &mut of_answers);
    for name in of_answers {
        if !OPEN.contains(&name.as_str()) {
            close(&mut schemas[name]);
        }
    }
    schemas
}

/// Gathers the names of the schemas that a value refers to.
fn gather(document: &Value, value: &Value, names: &mut BTreeSet<String>) {
    if let Some(name) = value["$ref"]
        .as_str()
        .and_then(|whole| whole.strip_prefix("#/components/schemas/"))
        && names.insert(name.to_owned())
    {
        gather(document, &document["components"]["schemas"][name], names);
    }
    match value {
        Value::Object(members) => members
            .values()
            .for_each(|member| gather(document, member, names)),
        Value::Array(entries) => entries
            .iter()
            .for_each(|entry| gather(document, entry, names)),
        _ => {}
    }
}

/// Forbids further members in a schema and in those of its members.
fn close(schema: &mut Value) {
    close_members(schema);
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    let has_members = object.contains_key("properties");
    let is_open = object.get("additionalProperties") == Some(&true.into());
    if has_members && is_open {
        object.remove("additionalProperties");
        let names = format!("^({})$", OF_MODEL_SERVERS.join("|"));
        object.insert("patternProperties".to_owned(), json!({names: true}));
    }
    let has_parts = IN_PLACE.iter().any(|keyword| object.contains_key(*keyword));
    if (has_members || has_parts) && !object.contains_key("additionalProperties") {
        object.insert("unevaluatedProperties".to_owned(), false.into());
    }
}

/// Closes the schemas of members and entries. Schemas for the same value stay as they are: each knows some members only.
fn close_members(schema: &mut Value) {
    let members = schema.get_mut("properties").and_then(Value::as_object_mut);
    members
        .into_iter()
        .flat_map(Map::values_mut)
        .for_each(close);
    for keyword in ["items", "additionalProperties", "contentSchema"] {
        schema.get_mut(keyword).into_iter().for_each(close);
    }
    for keyword in IN_PLACE {
        let parts = schema.get_mut(keyword).and_then(Value::as_array_mut);
        parts.into_iter().flatten().for_each(close_members);
    }
}
