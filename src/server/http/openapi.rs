//! The description of the API: an OpenAPI 3.1 document of the routes, with the schemas of the types that they read and
//! write.

pub(super) mod cases;
pub(super) mod headers;
pub(super) mod operation;
mod webhook;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use self::operation::Operation;
use super::routes::Group;
use protocol::openai::error::ErrorBody;

/// What the document says of the whole API.
const ABOUT: &str = "An OpenAI-compatible API that finishes the tool loop. Every error has OpenAI's envelope. \
    A method that a path does not have is a 405 with the code `method_not_allowed`. `HEAD` of `/` and of the paths of \
    chat completions, Responses, Conversations, Messages and the AI SDK that have no `GET`, and `OPTIONS` of all of them, \
    are answered with 200 and nothing, without a key. An answer of \
    a model server that is passed on keeps its status, headers and body. The manual says more: `loopwright manual api`.";

/// The schemas of the document.
#[derive(Debug)]
struct Schemas {
    /// Schemas of types that the server writes.
    answers: SchemaGenerator,
    /// Schemas of types that the server reads.
    requests: SchemaGenerator,
    /// Answers that several operations have, by name.
    responses: Map<String, Value>,
}

impl Schemas {
    fn new() -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        Self {
            answers: settings.clone().for_serialize().into_generator(),
            requests: settings.for_deserialize().into_generator(),
            responses: Map::new(),
        }
    }

    fn answer<T: JsonSchema>(&mut self) -> Value {
        self.answers.subschema_for::<T>().to_value()
    }

    fn request<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().to_value()
    }

    /// A reference to an answer that several operations may have. Different answers of one name get numbers.
    fn response(&mut self, name: &str, answer: Value) -> Value {
        let names = (1..).map(|number: u32| match number {
            1 => name.to_owned(),
            more => format!("{name}.{more}"),
        });
        let known = |name: &String| {
            self.responses
                .get(name)
                .is_none_or(|known| *known == answer)
        };
        let name = names.into_iter().find(known).unwrap_or_default();
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        self.responses.insert(name, answer);
        reference
    }

    /// All schemas that are referred to, by name.
    fn definitions(&mut self) -> Map<String, Value> {
        let mut definitions = self.requests.take_definitions(true);
        definitions.extend(self.answers.take_definitions(true));
        definitions
    }
}

/// The document of what is served.
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    schemas.answer::<ErrorBody<'_>>();
    let mut paths = Map::new();
    let mut tags = BTreeSet::new();
    for group in &super::groups() {
        for (path, method, operation) in operations_of(group, &mut schemas) {
            tags.insert(group.tag);
            paths.entry(path).or_insert_with(|| json!({}))[method] = operation;
        }
    }
    let webhooks = webhook::calls(&mut schemas);
    let tags: Vec<Value> = tags.into_iter().map(|tag| json!({"name": tag})).collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "loopwright", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT},
        "servers": [{"url": "http://127.0.0.1:8080", "description": "The default address."}],
        "security": [{}, {"apiKey": []}],
        "tags": tags,
        "paths": paths,
        "webhooks": webhooks,
        "components": {
            "schemas": schemas.definitions(),
            "responses": schemas.responses,
            "parameters": headers::shared_parameters(),
            "headers": headers::shared_headers(),
            "securitySchemes": {"apiKey": {
                "type": "http", "scheme": "bearer", "description": "Needed if the server has API keys.",
            }},
        },
    })
}

/// The operations of a group, with their paths and methods in the form of the document: paths have no wildcards.
fn operations_of(group: &Group, schemas: &mut Schemas) -> Vec<(String, String, Value)> {
    let described = group.described().map(|(route, method)| {
        let key = method.as_str().to_ascii_lowercase();
        let path = route.path.replace("{*", "{");
        let mut operation = Operation::new(schemas, group.tag, method);
        if !group.id.is_empty() && path.contains("{id}") {
            operation = operation.path("id", group.id);
        }
        (path, key, (route.describe)(operation).finish())
    });
    described.collect()
}

#[cfg(test)]
mod tests;
