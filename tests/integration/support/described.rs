//! Holds what the binary answers against the document that it prints with `loopwright openapi`.

use std::collections::{BTreeSet, HashMap};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{HeaderMap, Method};
use jsonschema::Validator;
use parking_lot::Mutex;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};

use super::{closed, within};

/// The one document of all tests.
static DOCUMENT: LazyLock<Document> = LazyLock::new(Document::printed);
/// Where the started binaries listen.
static BINARIES: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);

const JSON: &str = "application/json";
/// Where chat requests go.
const CHAT: &str = "/v1/chat/completions";
/// Where requests of the Responses API go.
const RESPONSES: &str = "/v1/responses";
/// Paths whose last parameter may hold slashes, which a document cannot say.
const GREEDY: [&str; 3] = ["/ui/{file}", "/v1/{path}", "/v1/models/{id}"];
/// Headers that the document need not name: they belong to HTTP, or their names are the model server's.
const UNNAMED: [&str; 2] = ["x-accel-buffering", "x-upstream-ratelimit-"];
/// Beginnings of the names of headers that are loopwright's own.
const OWN_HEADERS: [&str; 6] = [
    "x-",
    "openai-",
    "idempotency-",
    "retry-after",
    "etag",
    "content-range",
];

#[derive(Debug)]
struct Document {
    json: Value,
    /// Its schemas, without room for members that they do not describe.
    schemas: Value,
    /// Codes of loopwright's own errors.
    codes: BTreeSet<String>,
    /// Compiled schemas by their JSON text.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// A request, as far as its answer depends on it.
#[derive(Debug)]
pub(crate) struct Asked {
    method: Method,
    path: String,
    body: Bytes,
    /// Whether the binary was asked, not a server of the tests.
    of_binary: bool,
}

/// What the document says of an answer.
struct DescribedAnswer<'a> {
    operation: &'a Value,
    answer: &'a Value,
}

/// Expects what comes from this origin to be as the document says.
pub(crate) fn started(origin: &str) {
    BINARIES.lock().insert(origin.to_owned());
}

/// Expects nothing more of this origin, whose port may be another server's soon.
pub(crate) fn ended(origin: &str) {
    BINARIES.lock().remove(origin);
}

/// The codes of loopwright's own errors that the document names.
pub(crate) fn codes() -> &'static BTreeSet<String> {
    &DOCUMENT.codes
}

/// What is wrong with the body of a call of a webhook tool; nothing if it is as described.
pub(crate) fn problems_of_call(body: &Value) -> Vec<String> {
    let described = &DOCUMENT.json["webhooks"]["callTool"]["post"]["requestBody"];
    DOCUMENT.problems(&described["content"][JSON]["schema"], body)
}

/// Sends a request and waits for the head of its answer.
pub(crate) async fn send(what: &str, request: RequestBuilder) -> (Asked, Response) {
    let (http, request) = request.build_split();
    let request = request.unwrap();
    let asked = Asked {
        method: request.method().clone(),
        path: request.url().path().to_owned(),
        body: request
            .body()
            .and_then(|body| Some(body.as_bytes()?.to_vec().into()))
            .unwrap_or_default(),
        of_binary: BINARIES
            .lock()
            .contains(&request.url().origin().ascii_serialization()),
    };
    let response = within(what, Client::execute(&http, request)).await;
    (asked, response.unwrap())
}

impl Asked {
    /// A request without a body that the binary answers.
    pub(crate) fn of_binary(method: Method, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            body: Bytes::new(),
            of_binary: true,
        }
    }

    /// Holds a whole answer against the document.
    pub(crate) fn answered(&self, status: u16, headers: &HeaderMap, body: &[u8]) {
        let Some(described) = self.head(status, headers) else {
            return;
        };
        let what = format!("{} {} answered {status}", self.method, self.path);
        let media = media_type(headers);
        let content = described.answer.get("content");
        let Some(content) = content.filter(|_| self.method != Method::HEAD) else {
            assert!(body.is_empty(), "{what} with a body that is not described");
            return;
        };
        let described_content = content.get(media).or_else(|| content.get("*/*"));
        let Some(described_content) = described_content else {
            // An empty body has no media type.
            assert!(
                body.is_empty(),
                "{what} with `{media}`, which is not described"
            );
            return;
        };
        let text = String::from_utf8_lossy(body);
        if media == "text/event-stream" {
            if is_of_loop(&self.path, headers) {
                let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
                lines.for_each(|line| check_line_of(&self.path, line));
            }
            return;
        }
        let Some(schema) = described_content
            .get("schema")
            .filter(|_| media == JSON && content.get(media).is_some())
        else {
            return;
        };
        match serde_json::from_str(&text) {
            Ok(value) => DOCUMENT.check_with_code(schema, &value, &what),
            Err(_) if schema.get("anyOf").is_some() && content.get("*/*").is_some() => {}
            Err(error) => panic!("{what} with no JSON ({error}): {text}"),
        }
        // What is accepted must be described: a document that forbids it is wrong. The messages of a chat are the model
        // server's to check.
        let read = &described.operation["requestBody"]["content"][JSON]["schema"];
        let is_json = self.body.first() == Some(&b'{');
        if status < 300 && self.path != CHAT && !read.is_null() && is_json {
            let body = serde_json::from_slice(&self.body).unwrap();
            DOCUMENT.check(read, &body, &format!("the body of what {what}"));
        }
    }

    /// Holds the head of an answer against the document; tells whether the lines of its stream are described.
    pub(crate) fn streams(&self, status: u16, headers: &HeaderMap) -> bool {
        self.head(status, headers).is_some() && is_of_loop(&self.path, headers)
    }

    /// What the document says of the answer; nothing if the document has nothing to say of it.
    fn head(&self, status: u16, headers: &HeaderMap) -> Option<DescribedAnswer<'static>> {
        if !self.of_binary || self.method == Method::OPTIONS {
            return None;
        }
        // Without the console the root has a HEAD for probes alone.
        let is_root = self.method == Method::HEAD && self.path == "/";
        if is_root && status == 200 && !headers.contains_key("content-type") {
            return None;
        }
        let what = format!("{} {} answered {status}", self.method, self.path);
        let Some(operation) = DOCUMENT.operation(&self.method, &self.path) else {
            // Answered before the routes. The document says in words what probes get.
            let is_probe = self.method == Method::HEAD && status == 200;
            assert!(
                is_probe || [400, 401, 403, 404, 405, 429, 431].contains(&status),
                "{what}, which is not described"
            );
            return None;
        };
        let answers = &operation["responses"];
        let answer = answers
            .get(status.to_string())
            .or_else(|| answers.get("default"));
        let Some(answer) = answer.map(|answer| DOCUMENT.resolved(answer)) else {
            panic!("{what}, which is not described");
        };
        let named = answer["headers"].as_object();
        for (name, header) in named.into_iter().flatten() {
            let header = DOCUMENT.resolved(header);
            match headers.get(name) {
                None => assert_ne!(header["required"], true, "{what} without `{name}`"),
                Some(value) => {
                    let text = value.to_str().unwrap();
                    let value = match header["schema"]["type"].as_str() {
                        Some("number") => text.parse::<f64>().map_or(Value::Null, Value::from),
                        _ => text.into(),
                    };
                    DOCUMENT.check(&header["schema"], &value, &format!("{what}: `{name}`"));
                }
            }
        }
        let passes_on = answers.get("default").is_some();
        let of_loop = ["x-completion-id", "openai-processing-ms"];
        if !passes_on || of_loop.iter().any(|name| headers.contains_key(*name)) {
            let names = headers.keys().map(http::HeaderName::as_str);
            let own = |name: &&str| {
                OWN_HEADERS.iter().any(|own| name.starts_with(own))
                    && !UNNAMED.iter().any(|unnamed| name.starts_with(unnamed))
            };
            for name in names.filter(own) {
                let is_named = named.is_some_and(|named| named.contains_key(name));
                assert!(is_named, "{what} with `{name}`, which is not described");
            }
        }
        Some(DescribedAnswer { operation, answer })
    }
}

/// Whether an answer comes from the loop and not from a model server.
fn is_of_loop(path: &str, headers: &HeaderMap) -> bool {
    headers.contains_key("x-completion-id") || path.ends_with("/events")
}

/// Holds a `data:` line of a stream of chunks against the document.
pub(crate) fn check_line(data: &str) {
    check_line_of(CHAT, data);
}

/// Holds a `data:` line of a stream of the loop against the document.
fn check_line_of(path: &str, data: &str) {
    if data == "[DONE]" {
        return;
    }
    let path = match path.starts_with(RESPONSES) {
        true => RESPONSES,
        false => CHAT,
    };
    let stream = &DOCUMENT.json["paths"][path]["post"]["responses"]["200"];
    let event = &stream["content"]["text/event-stream"]["schema"];
    let schema = &event["properties"]["data"]["anyOf"][0]["contentSchema"];
    match serde_json::from_str(data) {
        Ok(value) => DOCUMENT.check_with_code(schema, &value, "a stream"),
        Err(error) => panic!("a line of a stream is no JSON ({error}): {data}"),
    }
}

impl Document {
    fn printed() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loopwright"));
        let printed = command.arg("openapi").output().unwrap();
        assert!(printed.status.success(), "loopwright openapi: {printed:?}");
        let json: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let mut codes = BTreeSet::new();
        collect_codes(&json["components"]["responses"], &mut codes);
        assert!(codes.len() > 20, "{codes:?}");
        Self {
            schemas: closed::closed(&json),
            json,
            codes,
            validators: Mutex::default(),
        }
    }

    /// The operation of a request: that of the path with the longest literal beginning.
    fn operation(&self, method: &Method, path: &str) -> Option<&Value> {
        let paths = self.json["paths"].as_object().unwrap().iter();
        let matching = paths.filter(|(template, _)| matches(template, path));
        let (_, item) = matching.max_by_key(|(template, _)| {
            (template.find('{').unwrap_or(usize::MAX), template.len())
        })?;
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        item.get(method.as_str().to_ascii_lowercase())
    }

    /// What stands in the place of a reference.
    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self.json.pointer(&reference[1..]).unwrap(),
            None => value,
        }
    }

    /// Checks a value that a model server may have written. Loopwright's own errors are told by their code.
    fn check_with_code(&self, schema: &Value, value: &Value, what: &str) {
        let code = value["error"]["code"].as_str();
        // An event that reports an error, or an answer that holds one, is more than the error.
        let is_error = value.as_object().is_some_and(|value| value.len() == 1);
        let code = code.filter(|_| is_error);
        if !code.is_some_and(|code| self.codes.contains(code)) {
            return self.check(schema, value, what);
        }
        let error = json!({"$ref": "#/components/schemas/Error"});
        self.check(&error, value, what);
        let own = schema["anyOf"].get(0);
        let own = own.filter(|own| own.get("allOf").is_some());
        self.check(own.unwrap_or(schema), value, what);
    }

    fn check(&self, schema: &Value, value: &Value, what: &str) {
        let problems = self.problems(schema, value);
        assert!(
            problems.is_empty(),
            "{what}, not as `loopwright openapi` says:\n{}\n{value}",
            problems.join("\n")
        );
    }

    fn problems(&self, schema: &Value, value: &Value) -> Vec<String> {
        let validator = self.validator(schema);
        let errors = validator.iter_errors(value);
        errors
            .map(|error| format!("{error} at `{}`", error.instance_path()))
            .collect()
    }

    fn validator(&self, schema: &Value) -> Arc<Validator> {
        let key = schema.to_string();
        if let Some(known) = self.validators.lock().get(&key) {
            return known.clone();
        }
        let whole = json!({"allOf": [schema], "components": {"schemas": self.schemas}});
        let compiled = Arc::new(jsonschema::validator_for(&whole).unwrap());
        self.validators.lock().insert(key, compiled.clone());
        compiled
    }
}

fn matches(template: &str, path: &str) -> bool {
    if GREEDY.contains(&template) {
        let beginning = template.split('{').next().unwrap();
        return path.len() > beginning.len() && path.starts_with(beginning);
    }
    let (parts, segments) = (template.split('/'), path.split('/'));
    template.split('/').count() == path.split('/').count()
        && parts
            .zip(segments)
            .all(|(part, segment)| part.starts_with('{') || part == segment)
}

/// Gathers the words of every `code` that is limited to some.
fn collect_codes(value: &Value, codes: &mut BTreeSet<String>) {
    let listed = value["code"]["enum"].as_array();
    codes.extend(
        listed
            .into_iter()
            .flatten()
            .filter_map(|code| Some(code.as_str()?.to_owned())),
    );
    match value {
        Value::Object(members) => members
            .values()
            .for_each(|member| collect_codes(member, codes)),
        Value::Array(entries) => entries.iter().for_each(|entry| collect_codes(entry, codes)),
        _ => {}
    }
}

fn media_type(headers: &HeaderMap) -> &str {
    let whole = headers
        .get("content-type")
        .map_or("", |value| value.to_str().unwrap());
    whole.split(';').next().unwrap().trim()
}
