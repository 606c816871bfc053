//! The client of a conversation, in both dialects, streamed and not, and what it has after a request.

use std::fmt;

use reqwest::Response;
use serde_json::{Map, Value, json};

use super::super::responses;
use super::super::support::client::Answer;
use super::super::support::events::EventReader;
use super::super::support::within;

/// Fields in which reasoning comes.
const REASONING: [&str; 4] = [
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
];

/// How the client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// Through the Responses API.
    pub(super) responses: bool,
    /// As a stream.
    pub(super) streamed: bool,
}

/// A client with the conversation as it knows it.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    way: Way,
    model: String,
    tools: Vec<Value>,
    /// The named session, if there is one.
    session: Option<String>,
    /// Messages or items.
    history: Vec<Value>,
    /// The calls that wait for results: id and name.
    waiting: Vec<(String, String)>,
}

impl Way {
    /// All ways.
    pub(super) const ALL: [Self; 4] = [
        Self {
            responses: false,
            streamed: false,
        },
        Self {
            responses: false,
            streamed: true,
        },
        Self {
            responses: true,
            streamed: false,
        },
        Self {
            responses: true,
            streamed: true,
        },
    ];

    /// The words for it.
    pub(super) fn words(self) -> [&'static str; 2] {
        [
            if self.responses { "responses" } else { "chat" },
            if self.streamed { "streamed" } else { "whole" },
        ]
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.words().join(" "))
    }
}

/// What a client of one of these servers connects with; shared, as it takes long to make.
pub(super) fn connections() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

impl Client {
    /// A client that offers these tools.
    pub(super) fn new(
        http: &reqwest::Client,
        way: Way,
        model: &str,
        tools: Vec<Value>,
        session: Option<String>,
    ) -> Self {
        Self {
            http: http.clone(),
            way,
            model: model.to_owned(),
            tools,
            session,
            history: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Sends a turn; `more` are the members of the request besides. Gives what the client has afterwards, and what breaks
    /// the rules of a stream.
    pub(super) async fn ask(
        &mut self,
        origin: &str,
        turn: &Value,
        model: Option<&str>,
        more: &Map<String, Value>,
    ) -> (Value, Vec<String>) {
        let new = self.new_part(&turn["turn"]);
        self.history.extend(new.iter().cloned());
        let brought = if self.session.is_some() {
            new
        } else {
            self.history.clone()
        };
        let model = model.map_or_else(
            || self.model.clone(),
            |other| format!("{}/{other}", self.model),
        );
        let mut body = json!({"model": model, "tools": self.tools});
        if let Some(session) = &self.session {
            body["session_id"] = json!(session);
        }
        body[if self.way.responses {
            "input"
        } else {
            "messages"
        }] = json!(brought);
        for (key, member) in more {
            body[key] = self.member(key, member);
        }
        if self.way.streamed {
            body["stream"] = json!(true);
        }
        let path = if self.way.responses {
            "/v1/responses"
        } else {
            "/v1/chat/completions"
        };
        let request = self
            .http
            .post(format!("{origin}{path}"))
            .header("content-type", "application/json")
            .body(body.to_string());
        let response = within("an answer", request.send()).await.unwrap();
        let (view, problems) = if self.way.responses {
            Self::response(response).await
        } else {
            Self::completion(response).await
        };
        self.remember(&view);
        (view, problems)
    }

    /// A member of a chat request in the form of this dialect.
    fn member(&self, key: &str, member: &Value) -> Value {
        match (self.way.responses, key) {
            (true, "tool_choice") if member["function"].is_object() => {
                json!({"type": member["type"], "name": member["function"]["name"]})
            }
            _ => member.clone(),
        }
    }

    /// What a turn adds to the conversation.
    fn new_part(&mut self, turn: &Value) -> Vec<Value> {
        if let Value::Array(messages) = turn {
            return messages.clone();
        }
        let Some(results) = turn["results"].as_object() else {
            return vec![json!({"role": "user", "content": turn})];
        };
        let result = |(id, name): (String, String)| match self.way.responses {
            true => {
                json!({"type": "function_call_output", "call_id": id, "output": results[&name]})
            }
            false => json!({"role": "tool", "tool_call_id": id, "content": results[&name]}),
        };
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(result)
            .collect()
    }

    fn remember(&mut self, view: &Value) {
        let said = &view["said"];
        let calls: Vec<(&Value, &Value)> = if self.way.responses {
            let items = said.as_array().into_iter().flatten();
            self.history.extend(items.clone().cloned());
            let calls = items.filter(|item| item["type"] == "function_call");
            calls
                .map(|call| (&call["call_id"], &call["name"]))
                .collect()
        } else {
            self.history.extend(said.is_object().then(|| said.clone()));
            let calls = said["tool_calls"].as_array().into_iter().flatten();
            calls
                .map(|call| (&call["id"], &call["function"]["name"]))
                .collect()
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.waiting = calls
            .into_iter()
            .map(|(id, name)| (text(id), text(name)))
            .collect();
    }

    async fn completion(response: Response) -> (Value, Vec<String>) {
        let status = response.status().as_u16();
        if !is_stream(&response) {
            let (body, raw) = whole(response).await;
            if status >= 400 || body.get("error").is_some() {
                return (
                    json!({"status": status, "error": body["error"], "raw": raw}),
                    Vec::new(),
                );
            }
            let mut choice = body["choices"][0].clone();
            let message = choice["message"].take();
            let mut view = view_of(&message, &choice);
            view["status"] = json!(status);
            view["stop_reason"] = body["agent"]["stop_reason"].clone();
            view["raw"] = json!(raw);
            return (view, Vec::new());
        }
        let (collected, problems) = EventReader::new(response).collect_with_problems().await;
        let mut message = json!({});
        let mut choice = json!({});
        for frame in &collected.frames {
            let chunk: Value = serde_json::from_str(&frame.data).unwrap_or_default();
            for part in chunk["choices"].as_array().into_iter().flatten() {
                let mut part = part.clone();
                accumulate(&mut message, part["delta"].take());
                accumulate(&mut choice, part);
            }
        }
        let mut view = view_of(&message, &choice);
        view["status"] = json!(status);
        view["raw"] = json!(collected.data().join("\n"));
        if let Some(finish) = &collected.finish {
            view["finish_reason"] = finish["choices"][0]["finish_reason"].clone();
            view["stop_reason"] = finish["agent"]["stop_reason"].clone();
        }
        if let Some(error) = collected.error {
            view["error"] = error;
        }
        (view, problems)
    }

    async fn response(response: Response) -> (Value, Vec<String>) {
        let status = response.status();
        if !is_stream(&response) {
            let (body, raw) = whole(response).await;
            if body["object"] == "response" {
                return (view_of_response(&body), Vec::new());
            }
            return (
                json!({"status": status.as_u16(), "error": body["error"], "raw": raw}),
                Vec::new(),
            );
        }
        let answer = Answer {
            status,
            headers: response.headers().clone(),
            body: within("a stream", response.bytes()).await.unwrap(),
        };
        let events = responses::events(&answer);
        (
            view_of_response(&events.last().unwrap()["response"]),
            Vec::new(),
        )
    }
}

fn is_stream(response: &Response) -> bool {
    let media = response.headers().get("content-type");
    media.is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream"))
}

async fn whole(response: Response) -> (Value, String) {
    let raw = within("a body", response.text()).await.unwrap();
    (serde_json::from_str(&raw).unwrap_or_default(), raw)
}

/// What the client has of a message and its choice.
fn view_of(message: &Value, choice: &Value) -> Value {
    let mut calls = message["tool_calls"].clone();
    for call in calls.as_array_mut().into_iter().flatten() {
        let call = call.as_object_mut().unwrap();
        call.remove("id");
        call.remove("index");
    }
    let reasoning = REASONING.iter().find_map(|field| message[*field].as_str());
    let mut said = message.clone();
    for call in said["tool_calls"].as_array_mut().into_iter().flatten() {
        call.as_object_mut().unwrap().remove("index");
    }
    if said["tool_calls"].is_null() {
        said.as_object_mut().unwrap().remove("tool_calls");
    }
    said["role"] = json!("assistant");
    let text = message["content"].as_str().unwrap_or_default();
    json!({
        "content": text,
        "reasoning": reasoning.unwrap_or_default(),
        "finish_reason": choice["finish_reason"],
        "tool_calls": if calls.is_null() { json!([]) } else { calls },
        "message": message,
        "choice": choice,
        "said": said,
    })
}

/// The texts in parts of a kind.
fn texts(items: &[&Value], kind: &str, list: &str, part: &str) -> String {
    let items = items.iter().filter(|item| item["type"] == kind);
    let parts = items.flat_map(|item| item[list].as_array().into_iter().flatten());
    let parts = parts.filter(|found| found["type"] == part);
    parts.filter_map(|found| found["text"].as_str()).collect()
}

fn view_of_response(body: &Value) -> Value {
    let items: Vec<&Value> = body["output"].as_array().into_iter().flatten().collect();
    // A text ends with a blank line before the next one, which the client adds where it is missing.
    let messages = items.iter().filter(|item| item["type"] == "message");
    let messages = messages.map(|item| {
        texts(
            std::slice::from_ref(item),
            "message",
            "content",
            "output_text",
        )
    });
    let messages: Vec<String> = messages.filter(|text| !text.is_empty()).collect();
    let blocks = messages
        .iter()
        .map(|text| text.strip_suffix("\n\n").unwrap_or(text));
    let calls = items.iter().filter(|item| item["type"] == "function_call");
    let calls: Vec<Value> = calls
        .map(|item| json!({"type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}}))
        .collect();
    let reason = match (
        body["status"].as_str(),
        body["incomplete_details"]["reason"].as_str(),
    ) {
        (Some("completed"), _) if calls.is_empty() => "stop",
        (Some("completed"), _) => "tool_calls",
        (_, Some("max_output_tokens")) => "length",
        (_, Some(other)) => other,
        (status, None) => status.unwrap_or_default(),
    };
    let mut view = json!({
        "status": 200,
        "content": blocks.collect::<Vec<_>>().join("\n\n"),
        "reasoning": texts(&items, "reasoning", "content", "reasoning_text"),
        "finish_reason": reason,
        "stop_reason": body["agent"]["stop_reason"],
        "tool_calls": calls,
        "said": items,
    });
    if !body["error"].is_null() {
        view["error"] = body["error"].clone();
    }
    view
}

/// Adds a delta to what came before, as the SDKs of OpenAI do it.
fn accumulate(target: &mut Value, delta: Value) {
    match (target, delta) {
        (Value::Object(known), Value::Object(members)) => {
            for (key, member) in members {
                let is_set =
                    ["index", "type", "role", "id", "finish_reason"].contains(&key.as_str());
                match known.get_mut(&key) {
                    Some(before) if !is_set && !before.is_null() => accumulate(before, member),
                    _ => {
                        let member = if key == "tool_calls" {
                            indexed(&member)
                        } else {
                            member
                        };
                        known.insert(key, member);
                    }
                }
            }
        }
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(entries), Value::Array(more)) => {
            for entry in more {
                let same = entries
                    .iter_mut()
                    .find(|known| !entry["index"].is_null() && known["index"] == entry["index"]);
                match same {
                    Some(known) => accumulate(known, entry),
                    None => entries.push(entry),
                }
            }
        }
        (_, Value::Null) => {}
        (target, other) => *target = other,
    }
}

/// The calls of the first piece, each with its index once.
fn indexed(calls: &Value) -> Value {
    let mut list = json!([]);
    accumulate(&mut list, calls.clone());
    list
}
