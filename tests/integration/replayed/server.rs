//! The model servers and the tools of all cases: one process each, told apart by the name of the model.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use async_compression::tokio::write::{GzipEncoder, ZlibEncoder};
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::super::support::protocol;
use super::super::support::server::{Arrived, Handler, HttpReply, Outgoing, Part, Server};
use super::super::support::webhook::{self, ToolReply, Webhook};
use super::expect;

/// Characters in one streamed piece of a text.
const PIECE: usize = 7;

/// The conversations that are going on, by the name of their model.
#[derive(Debug, Default)]
pub(super) struct Stage {
    runs: Mutex<HashMap<String, Scene>>,
}

/// What a conversation has seen and is to see yet.
#[derive(Debug)]
pub(super) struct Scene {
    /// The results of the tools.
    pub(super) tools: serde_json::Map<String, Value>,
    /// The model calls that are to come, with their lines.
    pub(super) calls: VecDeque<(usize, Value)>,
    /// The calls that the webhook got.
    pub(super) ran: Vec<Value>,
    /// What went wrong, by line.
    pub(super) problems: Vec<(usize, String)>,
    /// The line of the turn.
    pub(super) line: usize,
    last_call: Option<Instant>,
}

impl Scene {
    /// A conversation with these tools.
    pub(super) fn new(tools: serde_json::Map<String, Value>) -> Self {
        Self {
            tools,
            calls: VecDeque::new(),
            ran: Vec::new(),
            problems: Vec::new(),
            line: 0,
            last_call: None,
        }
    }
}

impl Stage {
    /// Begins a conversation.
    pub(super) fn enter(&self, model: &str, scene: Scene) {
        self.runs.lock().insert(model.to_owned(), scene);
    }

    /// Does something with a conversation.
    pub(super) fn with<T>(&self, model: &str, act: impl FnOnce(&mut Scene) -> T) -> T {
        act(self.runs.lock().get_mut(model).expect("a conversation"))
    }

    /// Starts the model servers. Server number `n` of a case is below the path `/n/v1`.
    pub(super) async fn models(self: &Arc<Self>) -> Server {
        let stage = self.clone();
        let handler: Handler = Arc::new(move |arrived| {
            let stage = stage.clone();
            Box::pin(async move { Outgoing::Scripted(stage.answer(arrived).await) })
        });
        Server::start(handler).await
    }

    /// Starts the webhook for these tools.
    pub(super) async fn webhook(
        self: &Arc<Self>,
        names: impl IntoIterator<Item = String>,
    ) -> Webhook {
        let mut webhook = Webhook::start().await;
        for name in names {
            let stage = self.clone();
            webhook = webhook.on_call(&name, move |call| {
                stage.run(
                    &call.name,
                    call.body["model"].as_str().unwrap_or_default(),
                    call.arguments(),
                )
            });
        }
        webhook
    }

    fn run(&self, name: &str, model: &str, arguments: &Value) -> ToolReply {
        let mut runs = self.runs.lock();
        let Some(scene) = runs.get_mut(key(model)) else {
            return webhook::status(404, &[], "");
        };
        scene.ran.push(json!({name: arguments}));
        match &scene.tools[name] {
            Value::String(text) => webhook::text(text),
            given if given.get("json").is_some() => webhook::json(&given["json"]),
            given => match given["status"].as_u64() {
                Some(code) => webhook::status(u16::try_from(code).unwrap(), &[], ""),
                None => webhook::text(given["text"].as_str().unwrap_or("done")),
            },
        }
    }

    async fn answer(&self, arrived: Arrived) -> HttpReply {
        let (head, body) = arrived.request.into_parts();
        let bytes = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes);
        let body: Value = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
        let model = body["model"].as_str().unwrap_or_default().to_owned();
        let path = head.uri.path();
        if !path.ends_with("/chat/completions") {
            let status = if path.ends_with("/models") { 200 } else { 404 };
            return HttpReply::whole(status, "application/json", r#"{"object":"list","data":[]}"#);
        }
        let line = {
            let mut runs = self.runs.lock();
            let Some(scene) = runs.get_mut(key(&model)) else {
                return refusal("no such conversation");
            };
            let Some((number, line)) = scene.calls.pop_front() else {
                let text = format!("a model call too many, with the roles {}", roles(&body));
                scene.problems.push((scene.line, text));
                return refusal("the file has no model call left");
            };
            let at = path
                .trim_start_matches('/')
                .split('/')
                .next()
                .unwrap_or_default();
            let mut found = protocol::violations(&body);
            if at != line["at"].as_u64().unwrap_or(0).to_string() {
                found.push(format!("the model server {at} was called"));
            }
            let now = Instant::now();
            let waited = scene.last_call.replace(now).map(|before| now - before);
            for (place, expected) in line["sent"].as_object().into_iter().flatten() {
                let problem = match place.as_str() {
                    "after_ms" => {
                        let waited = waited.unwrap_or_default().as_millis();
                        let early = waited < u128::from(expected.as_u64().unwrap());
                        early.then(|| "the call came earlier".to_owned())
                    }
                    "roles" => expect::problem(expected, Some(&roles(&body))),
                    place => match place.strip_prefix("header ") {
                        Some(name) => {
                            let value =
                                head.headers.get(name).and_then(|value| value.to_str().ok());
                            expect::problem(expected, value.map(Value::from).as_ref())
                        }
                        None => expect::problem(expected, expect::pointed(&body, place)),
                    },
                };
                found.extend(problem.map(|problem| format!("sent {place}: {problem}")));
            }
            scene
                .problems
                .extend(found.into_iter().map(|text| (number, text)));
            line
        };
        let accepted = head
            .headers
            .get("accept-encoding")
            .and_then(|value| value.to_str().ok());
        reply(&line, &body, accepted).await
    }
}

/// The name by which a conversation is found; a turn may ask another model of the same server.
fn key(model: &str) -> &str {
    model.split('/').next().unwrap_or_default()
}

fn refusal(message: &str) -> HttpReply {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": null, "code": null});
    HttpReply::whole(400, "application/json", json!({"error": error}).to_string())
}

fn roles(body: &Value) -> Value {
    let messages = body["messages"].as_array().into_iter().flatten();
    messages.map(|message| message["role"].clone()).collect()
}

/// The answer of a line to a request.
pub(super) async fn reply(line: &Value, body: &Value, accepted: Option<&str>) -> HttpReply {
    let (media, mut pieces) = spelled(line, body);
    let mut headers: Vec<(String, String)> = Vec::new();
    let given = line["headers"].as_object().cloned().unwrap_or_default();
    if !given.contains_key("content-type") {
        headers.push(("content-type".to_owned(), media.to_owned()));
    }
    let given = given
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
    headers.extend(given);
    if let Some(coding) = coding(line["compress"].as_str(), accepted) {
        pieces = vec![compressed(coding, &pieces.concat()).await];
        headers.push(("content-encoding".to_owned(), coding.to_owned()));
    }
    if let Some(size) = line["pieces"].as_u64() {
        let bytes = pieces.concat();
        pieces = bytes
            .chunks(usize::try_from(size).unwrap())
            .map(<[u8]>::to_vec)
            .collect();
    }
    let mut parts: Vec<Part> = pieces
        .into_iter()
        .map(|piece| Part::Bytes(Bytes::from(piece)))
        .collect();
    match line["cut"].as_str() {
        Some("close") => parts.push(Part::Cut),
        Some("reset") => parts.push(Part::Reset),
        Some(other) => panic!("the cut `{other}`"),
        None => {}
    }
    HttpReply {
        status: u16::try_from(line["status"].as_u64().unwrap_or(200)).unwrap(),
        headers,
        before_head: Vec::new(),
        body: parts,
    }
}

/// The answer of a line: its media type and its pieces.
pub(super) fn spelled(line: &Value, body: &Value) -> (&'static str, Vec<Vec<u8>>) {
    let streams = body["stream"] == true;
    match () {
        () if line.get("say").is_some() && streams => ("text/event-stream", spoken(line)),
        () if line.get("say").is_some() => ("application/json", vec![whole(&line["say"], line)]),
        () if line.get("stream").is_some() => ("text/event-stream", frames(line)),
        () if line.get("whole").is_some() => {
            ("application/json", vec![whole(&line["whole"], line)])
        }
        () => ("application/json", vec![raw(&line["body"])]),
    }
}

/// The coding of an answer. Without the field any is acceptable.
fn coding(manner: Option<&str>, accepted: Option<&str>) -> Option<&'static str> {
    let named = |coding: &str| accepted.is_some_and(|accepted| accepted.contains(coding));
    let plain = accepted.is_some_and(|accepted| accepted.trim() == "identity");
    match manner? {
        "unless_identity" if plain => None,
        "unless_identity" if named("deflate") && !named("gzip") => Some("deflate"),
        "unless_identity" | "gzip" => Some("gzip"),
        "if_named" => ["gzip", "deflate"].into_iter().find(|coding| named(coding)),
        "deflate" => Some("deflate"),
        other => panic!("the manner `{other}`"),
    }
}

async fn compressed(coding: &str, bytes: &[u8]) -> Vec<u8> {
    if coding == "gzip" {
        let mut encoder = GzipEncoder::new(Vec::new());
        encoder.write_all(bytes).await.unwrap();
        encoder.shutdown().await.unwrap();
        return encoder.into_inner();
    }
    let mut encoder = ZlibEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

fn raw(body: &Value) -> Vec<u8> {
    body.as_str()
        .map_or_else(|| body.to_string(), ToOwned::to_owned)
        .into_bytes()
}

/// JSON text with the escapes that a JSON text cannot be made with.
fn text_of(json: &Value) -> String {
    json.to_string().replace('«', "\\u").replace('»', "")
}

fn usage() -> Value {
    json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
}

/// A message given as itself or as its text.
fn message_of(said: &Value) -> Value {
    let text = said.as_str().map(|text| json!({"content": text}));
    text.unwrap_or_else(|| said.clone())
}

fn finish_of(message: &Value, line: &Value) -> Value {
    match line.get("finish") {
        Some(word) => word.clone(),
        None if message["tool_calls"].is_array() => json!("tool_calls"),
        None => json!("stop"),
    }
}

fn whole(said: &Value, line: &Value) -> Vec<u8> {
    let mut message = message_of(said);
    let finish = finish_of(&message, line);
    message["role"] = json!("assistant");
    let choice = json!({"index": 0, "message": message, "finish_reason": finish});
    let whole = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "served",
        "choices": [choice], "usage": usage()});
    text_of(&whole).into_bytes()
}

/// A whole message in small pieces.
fn spoken(line: &Value) -> Vec<Vec<u8>> {
    let message = message_of(&line["say"]);
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    let mut members: Vec<(&String, &Value)> = message.as_object().unwrap().iter().collect();
    members.sort_by_key(|(key, _)| match key.as_str() {
        "tool_calls" => 2,
        "content" => 1,
        _ => 0,
    });
    for (key, member) in members {
        match (key.as_str(), member) {
            ("tool_calls", Value::Array(calls)) => {
                for (index, call) in calls.iter().enumerate() {
                    deltas
                        .extend(call_deltas(index, call).map(|call| json!({"tool_calls": [call]})));
                }
            }
            ("content" | "reasoning" | "reasoning_content", Value::String(text))
                if !text.is_empty() =>
            {
                deltas.extend(chopped(text).into_iter().map(|piece| json!({key: piece})));
            }
            _ => deltas.push(json!({key: member})),
        }
    }
    let mut frames: Vec<Vec<u8>> = deltas
        .iter()
        .map(|delta| frame(&chunk(&choice(delta))))
        .collect();
    let finish = finish_of(&message, line);
    frames.push(frame(&chunk(
        &json!({"index": 0, "delta": {}, "finish_reason": finish}),
    )));
    frames.push(b"data: [DONE]\n\n".to_vec());
    frames
}

/// The pieces of a call: everything but the arguments, then these bit by bit.
fn call_deltas(index: usize, call: &Value) -> impl Iterator<Item = Value> {
    let mut first = call.clone();
    first["index"] = json!(index);
    let arguments = first["function"]["arguments"].take();
    first["function"]["arguments"] = json!("");
    let pieces = chopped(arguments.as_str().unwrap_or_default());
    let rest = move |piece| json!({"index": index, "function": {"arguments": piece}});
    std::iter::once(first).chain(pieces.into_iter().map(rest))
}

fn chopped(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(PIECE)
        .map(|piece| piece.iter().collect())
        .collect()
}

fn frames(line: &Value) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for element in line["stream"].as_array().expect("a list of pieces") {
        if let Value::String(text) = element {
            frames.push(text.clone().into_bytes());
        } else if let Some(whole) = element.get("$chunk") {
            frames.push(frame(whole));
        } else if let Some(whole) = element.get("$choice") {
            frames.push(frame(&chunk(whole)));
        } else if let Some(word) = element.get("$finish") {
            let mut last = element.clone();
            last.as_object_mut().unwrap().remove("$finish");
            last["index"] = json!(0);
            last["finish_reason"] = word.clone();
            if last.get("delta").is_none() {
                last["delta"] = json!({});
            }
            frames.push(frame(&chunk(&last)));
        } else {
            frames.push(frame(&chunk(&choice(element))));
        }
    }
    if line["done"] != false {
        frames.push(b"data: [DONE]\n\n".to_vec());
    }
    frames
}

fn choice(delta: &Value) -> Value {
    json!({"index": 0, "delta": delta, "finish_reason": null})
}

fn chunk(choice: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "served", "choices": [choice]})
}

fn frame(chunk: &Value) -> Vec<u8> {
    format!("data: {}\n\n", text_of(chunk)).into_bytes()
}
