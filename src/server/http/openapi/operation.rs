//! One operation of the document, as the description of its route builds it.

use std::collections::BTreeMap;

use http::Method;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::super::error::codes::{self, ErrorCode};
use super::Schemas;
use super::cases;
use super::headers::{HeaderKind, HeaderOf, OF_LOOP};

const JSON: &str = "application/json";

/// One operation; made for a route, and completed by the route's description.
#[derive(Debug)]
pub(in crate::http) struct Operation<'a> {
    schemas: &'a mut Schemas,
    method: Method,
    id: String,
    tag: &'static str,
    summary: &'static str,
    description: Option<&'static str>,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: BTreeMap<u16, Value>,
    errors: Vec<ErrorCode>,
    is_public: bool,
    passes_on: bool,
    error_headers: &'static [HeaderOf],
}

impl<'a> Operation<'a> {
    pub(super) fn new(schemas: &'a mut Schemas, tag: &'static str, method: Method) -> Self {
        let parameters = ["RequestId", "ClientRequestId"];
        let parameters =
            parameters.map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
        Self {
            schemas,
            method,
            id: String::new(),
            tag,
            summary: "",
            description: None,
            parameters: parameters.into(),
            body: None,
            answers: BTreeMap::new(),
            errors: cases::ALWAYS.to_vec(),
            is_public: false,
            passes_on: false,
            error_headers: &[],
        }
    }

    /// Names the operation. Clients that are generated from the document use the id as the name of a function.
    pub(in crate::http) fn named(mut self, id: &str, summary: &'static str) -> Self {
        (self.id, self.summary) = (id.to_owned(), summary);
        self
    }

    pub(in crate::http) fn described(mut self, description: &'static str) -> Self {
        self.description = Some(description);
        self
    }

    /// The route has several methods: the id ends with the method.
    pub(in crate::http) fn of_each_method(mut self) -> Self {
        let method = self.method.as_str();
        let (first, rest) = method.split_at_checked(1).unwrap_or_default();
        self.id.push_str(first);
        self.id.push_str(&rest.to_ascii_lowercase());
        self
    }

    /// No key is needed, and any host is allowed.
    pub(in crate::http) fn public(mut self) -> Self {
        self.is_public = true;
        self
    }

    /// A variable part of the path.
    pub(in crate::http) fn path(mut self, name: &str, description: &str) -> Self {
        // What the group says of it.
        self.parameters.retain(|known| known["name"] != name);
        let schema = json!({"type": "string", "minLength": 1});
        self.parameter("path", name, schema, description)
    }

    pub(in crate::http) fn query(self, name: &str, schema: Value, description: &str) -> Self {
        self.parameter("query", name, schema, description)
    }

    pub(in crate::http) fn header(self, name: &str, schema: Value, description: &str) -> Self {
        self.parameter("header", name, schema, description)
    }

    /// The header `idempotency-key`.
    pub(in crate::http) fn keyed(self, description: &str) -> Self {
        let schema = json!({"type": "string", "pattern": "^[!-~]{1,255}$"});
        self.header("idempotency-key", schema, description)
    }

    fn parameter(mut self, place: &str, name: &str, schema: Value, description: &str) -> Self {
        let mut parameter = json!({
            "in": place, "name": name, "required": place == "path", "description": description,
        });
        parameter["schema"] = schema;
        self.parameters.push(parameter);
        self
    }

    /// The type of the JSON body.
    pub(in crate::http) fn reads<T: JsonSchema>(self, required: bool) -> Self {
        let schema = self.schemas.request::<T>();
        self.reads_as(JSON, schema, required)
            .fails(&[codes::INVALID])
            .fails(cases::BODY)
            .fails(cases::MEDIA_TYPE)
    }

    /// A body of another media type.
    pub(in crate::http) fn reads_as(mut self, media: &str, schema: Value, required: bool) -> Self {
        let mut body = json!({"required": required});
        body["content"][media]["schema"] = schema;
        self.body = Some(body);
        self
    }

    pub(in crate::http) fn answers<T: JsonSchema>(self, status: u16, description: &str) -> Self {
        let schema = self.schemas.answer::<T>();
        self.answers_as(status, JSON, schema, description)
    }

    /// An answer of JSON that loopwright writes, or of any JSON that a model server writes and that has no `own` member.
    pub(in crate::http) fn answers_or_passes_on<T: JsonSchema>(
        self,
        status: u16,
        own: &str,
        description: &str,
    ) -> Self {
        let written = self.schemas.answer::<T>();
        let passed_on = json!({
            "description": "The answer of a model server, as it came.", "not": {"required": [own]},
        });
        let schema = json!({"anyOf": [written, passed_on]});
        self.answers_as(status, JSON, schema, description)
    }

    /// A stream of events, whose `data:` lines have the type, besides `[DONE]`. The schema is that of one event, as
    /// OpenAPI 3.1 has none for streams.
    pub(in crate::http) fn streams<T: JsonSchema>(mut self, status: u16) -> Self {
        let data = self.schemas.answer::<T>();
        let content = self.content_of(status, "");
        let event = json!({
            "type": "object",
            "description": "One event of the stream. The last one has the data `[DONE]`. A stream that is passed through \
                holds what the model server sends.",
            "required": ["data"],
            "properties": {
                "event": {"type": "string", "description": "The name of a progress event."},
                "id": {"type": "string", "description": "The number of the event, in a log of events."},
                "data": {"anyOf": [
                    {"type": "string", "contentMediaType": JSON, "contentSchema": data},
                    {"const": "[DONE]"},
                ]},
            },
        });
        content["text/event-stream"] = json!({"schema": event});
        self
    }

    /// An answer of another media type.
    pub(in crate::http) fn answers_as(
        mut self,
        status: u16,
        media: &str,
        schema: Value,
        description: &str,
    ) -> Self {
        self.content_of(status, description)[media]["schema"] = schema;
        self
    }

    /// An answer without a body.
    pub(in crate::http) fn answers_nothing(mut self, status: u16, description: &str) -> Self {
        self.answer_of(status, description);
        self
    }

    /// Headers of an answer, besides those that every answer has.
    pub(in crate::http) fn with_headers(mut self, status: u16, headers: &[HeaderOf]) -> Self {
        let answer = self.answer_of(status, "");
        for (name, kind, description) in headers {
            answer["headers"][*name] = kind.described(description);
        }
        self
    }

    /// Links to operations whose `id` is the `id` in the JSON of an answer.
    pub(in crate::http) fn leads_to(mut self, status: u16, operations: &[&str]) -> Self {
        let answer = self.answer_of(status, "");
        for operation in operations {
            answer["links"][*operation] =
                json!({"operationId": operation, "parameters": {"id": "$response.body#/id"}});
        }
        self
    }

    /// Cases in which the request fails.
    pub(in crate::http) fn fails(mut self, cases: &[ErrorCode]) -> Self {
        self.errors.extend(cases);
        self
    }

    /// The cases in which a turn fails.
    pub(in crate::http) fn fails_as_turn(self) -> Self {
        self.fails(&[codes::MODEL_NOT_FOUND, codes::HOOK_FAILED])
            .fails(cases::KEYED)
            .fails(cases::OF_TURN)
            .fails(cases::STORAGE)
            .fails(&[codes::FILE_STORE_FULL])
            .fails(cases::UPSTREAM)
            .with_error_headers(&OF_LOOP)
            .passes_on_answers()
    }

    /// The cases in which there is no answer of a run, and those in which the run itself failed.
    pub(in crate::http) fn fails_as_kept_run(self) -> Self {
        self.fails(&[codes::NOT_FOUND, codes::INVALID])
            .fails(cases::INTERRUPTED)
            .fails(cases::OF_TURN)
            .fails(cases::STORAGE)
            .fails(cases::UPSTREAM)
            .passes_on_answers()
    }

    /// Headers of every error, besides those that all errors have.
    pub(in crate::http) fn with_error_headers(mut self, headers: &'static [HeaderOf]) -> Self {
        self.error_headers = headers;
        self
    }

    /// Any status of a model server comes as well, with its body.
    pub(in crate::http) fn passes_on_answers(mut self) -> Self {
        self.passes_on = true;
        self
    }

    /// The request goes to a model server as it is: any query, headers and body.
    pub(in crate::http) fn forwards(mut self) -> Self {
        if !matches!(self.method, Method::GET | Method::DELETE) {
            self.body = Some(json!({"content": {"*/*": {}}}));
        }
        self.answers_as(
            200,
            "*/*",
            json!({}),
            "The answer of the model server, as it came.",
        )
    }

    fn answer_of(&mut self, status: u16, description: &str) -> &mut Value {
        let answer = self.answers.entry(status).or_insert_with(|| {
            json!({"description": "", "headers": {
                "x-request-id": {"$ref": "#/components/headers/RequestId"},
                "x-loopwright-replica": {"$ref": "#/components/headers/Replica"},
            }})
        });
        if !description.is_empty() {
            answer["description"] = description.into();
        }
        answer
    }

    fn content_of(&mut self, status: u16, description: &str) -> &mut Value {
        &mut self.answer_of(status, description)["content"]
    }

    /// The operation as JSON.
    pub(super) fn finish(mut self) -> Value {
        if !self.is_public {
            self.errors.extend(cases::CALLER);
        }
        let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
        for case in std::mem::take(&mut self.errors) {
            by_status
                .entry(case.status.as_u16())
                .or_default()
                .push(case);
        }
        let answers = std::mem::take(&mut self.answers).into_iter();
        let mut responses: Map<String, Value> = answers
            .map(|(status, answer)| (status.to_string(), answer))
            .collect();
        for (status, cases) in by_status {
            responses.insert(status.to_string(), self.error(status, cases));
        }
        if self.passes_on {
            let answer = json!({
                "description": "Any other answer of a model server, as it came, or an error with its status and the code \
                    `upstream_error`.",
                "content": {"*/*": {}},
                "headers": self.headers_of_error(None),
            });
            let reference = self.schemas.response("passed_on", answer);
            responses.insert("default".to_owned(), reference);
        }
        let mut operation = json!({
            "operationId": self.id, "tags": [self.tag], "summary": self.summary, "parameters": self.parameters,
            "responses": responses,
        });
        if let Some(description) = self.description {
            operation["description"] = description.into();
        }
        if let Some(body) = self.body.take() {
            operation["requestBody"] = body;
        }
        if self.is_public {
            operation["security"] = json!([]);
        }
        operation
    }

    /// A reference to the answer with an error status that loopwright chooses. A model server may answer with the same
    /// status.
    fn error(&mut self, status: u16, mut cases: Vec<ErrorCode>) -> Value {
        cases.sort_by_key(|case| case.code);
        let codes: Vec<Option<&str>> = cases.iter().map(|case| case.code).collect();
        let texts: Vec<String> = cases.iter().map(text_of).collect();
        let own = json!({
            "allOf": [
                {"$ref": "#/components/schemas/Error"},
                {"properties": {"error": {"properties": {"code": {"enum": codes}}}}},
            ],
        });
        let names: Vec<&str> = codes.iter().map(|code| code.unwrap_or("invalid")).collect();
        let variant = match (self.passes_on, self.error_headers.is_empty()) {
            (false, true) => "",
            (false, false) => ".of_call",
            (true, true) => ".passed_on",
            (true, false) => ".of_turn",
        };
        let name = format!("{}{variant}", names.join("-"));
        let headers = self.headers_of_error(Some(status));
        let content = match self.passes_on {
            true => json!({
                JSON: {"schema": {"anyOf": [own, {"description": "The error of a model server, as it came."}]}},
                "*/*": {},
            }),
            false => json!({JSON: {"schema": own}}),
        };
        let answer =
            json!({"description": texts.join(" "), "headers": headers, "content": content});
        self.schemas.response(&name, answer)
    }

    fn headers_of_error(&self, status: Option<u16>) -> Value {
        let mut headers = json!({
            "x-request-id": {"$ref": "#/components/headers/RequestId"},
            "x-should-retry": {"$ref": "#/components/headers/ShouldRetry"},
            "x-loopwright-replica": {"$ref": "#/components/headers/Replica"},
        });
        let retry = match (status, self.passes_on) {
            (_, true) => Some(HeaderKind::OptionalNumber),
            (Some(429 | 503), false) => Some(HeaderKind::Number),
            (Some(_) | None, false) => None,
        };
        if self.passes_on {
            headers["x-loopwright-error-source"] =
                json!({"$ref": "#/components/headers/ErrorSource"});
        }
        if let Some(retry) = retry {
            headers["retry-after"] = retry.described("Seconds to wait.");
        }
        if status == Some(416) {
            headers["content-range"] = HeaderKind::Text.described("The size of the file.");
        }
        for (name, kind, description) in self.error_headers {
            headers[*name] = kind.described(description);
        }
        headers
    }
}

/// When an error comes, as a sentence.
fn text_of(error: &ErrorCode) -> String {
    match error.code {
        Some(code) => format!("`{code}`: {}.", error.when),
        None => format!("No code: {}.", error.when),
    }
}
