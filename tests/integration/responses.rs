//! The Responses API over the same loop.

mod bodies;
mod containers;
mod conversations;
mod errors;
mod files;
mod history;
mod hostile;
mod items;
mod native;
mod properties;
mod state;
mod turns;

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::client::{Answer, Client};

/// Where requests go.
const PATH: &str = "/v1/responses";

/// A request that is not stored.
fn request(input: Value) -> Value {
    json!({"model": "test-model", "input": input, "store": false})
}

/// A function tool.
fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": "A tool.", "parameters": {"type": "object"}})
}

/// The same request with one field more.
fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

/// Sends a request and takes the response.
async fn create(app: &TestApp, body: Value) -> Value {
    response(&app.post(PATH, &body).await)
}

/// The response of an answer, held against what every response has.
fn response(answer: &Answer) -> Value {
    let body = answer.json();
    assert_eq!(answer.status, 200, "{body}");
    assert_eq!(body["object"], "response");
    body
}

/// Sends a request and takes its events.
async fn stream(client: &Client, body: Value) -> Vec<Value> {
    let answer = client.post(PATH, &with(body, "stream", json!(true))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.header("x-completion-id").unwrap().to_owned();
    let events = events(&answer);
    assert_eq!(events[0]["response"]["id"], id);
    events
}

/// The events of an answer, held against the rules of their order.
pub(super) fn events(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let (text, done) = text.rsplit_once("data: ").unwrap();
    assert_eq!(done, "[DONE]\n\n");
    let mut events: Vec<Value> = Vec::new();
    for frame in text.split("\n\n").filter(|frame| !frame.is_empty()) {
        let lines: Vec<&str> = frame
            .lines()
            .filter(|line| !line.starts_with(':'))
            .collect();
        let [event, data] = lines[..] else {
            panic!("{frame}");
        };
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event.strip_prefix("event: ").unwrap(), data["type"]);
        assert_eq!(data["sequence_number"], events.len(), "{data}");
        events.push(data);
    }
    check(&events);
    events
}

/// Items are added in order, are referred to only while they are open, and are done before the end.
fn check(events: &[Value]) {
    assert_eq!(events[0]["type"], "response.created");
    let id = &events[0]["response"]["id"];
    let mut items: Vec<(Value, Option<Value>)> = Vec::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => {
                assert_eq!(event["output_index"], items.len(), "{event}");
                items.push((event["item"].clone(), None));
            }
            "response.output_item.done" => {
                let index = event["output_index"].as_u64().unwrap();
                let (added, done) = &mut items[usize::try_from(index).unwrap()];
                assert_eq!(*done, None, "{event}");
                assert_eq!(added["id"], event["item"]["id"]);
                assert_eq!(added["type"], event["item"]["type"]);
                *done = Some(event["item"].clone());
            }
            _ => {}
        }
        if let Some(of) = event.get("item_id") {
            let index = event["output_index"].as_u64().unwrap();
            let (added, done) = &items[usize::try_from(index).unwrap()];
            assert_eq!(added["id"], *of, "{event}");
            assert_eq!(*done, None, "{event}");
        }
        if let Some(response) = event.get("response") {
            assert_eq!(response["id"], *id);
        }
    }
    let done: Vec<Value> = items.into_iter().map(|(_, done)| done.unwrap()).collect();
    assert_eq!(events.last().unwrap()["response"]["output"], json!(done));
}

/// The response of the last event.
fn last(events: &[Value]) -> &Value {
    &events.last().unwrap()["response"]
}

/// The types of the events, deltas of one kind once.
fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    types.dedup();
    types
}

/// The types of the items.
fn kinds(response: &Value) -> Vec<&str> {
    let items = response["output"].as_array().unwrap().iter();
    items.map(|item| item["type"].as_str().unwrap()).collect()
}

/// The text of an item.
fn text_of(item: &Value) -> &str {
    item["content"][0]["text"].as_str().unwrap()
}
