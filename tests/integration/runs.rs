//! Runs: turns that the process owns and connections only read. Stalled and lost clients, event logs, answers by id,
//! cancelling, idempotency keys, work in the background, and what is left after kill -9.

mod abandoned;
mod answers;
mod background;
mod cancel;
mod events;
mod idempotency;
mod kept;
mod killed;
mod messages;
mod neighbours;
mod readers;
mod retried;
mod stalled;
mod unnamed;
mod written;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::app::{Builder, TestApp};
use super::support::ask::{ask, ask_with, tool, user, with};
use super::support::client::{Answer, Client};
use super::support::collect::TOOL_PROGRESS;
use super::support::recorded::Recorded;
use super::support::script::{self, Reply, calls, text, text_and_calls};
use super::support::server::Gate;
use super::support::stalled::StalledClient;
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::webhook::{self, Webhook};
use super::support::{AT_ONCE, eventually};

/// Two API keys.
const KEYS: &str =
    "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
const ALICE: &str = "alice-key-0123456789";
const BOB: &str = "bob-key-0123456789-bob";

/// The body of a request with the server-side tool `t`.
fn go() -> Value {
    ask_with("Go", ["t"])
}

/// The same in a session.
fn in_session(text: &str, session: &str) -> Value {
    with(ask_with(text, ["t"]), "session_id", json!(session))
}

/// The body with this `agent` object.
fn agent(body: Value, agent: Value) -> Value {
    with(body, "agent", agent)
}

/// The body of a run that goes on without a client.
fn finishing(body: Value) -> Value {
    agent(body, json!({"on_disconnect": "finish"}))
}

/// A server for two API keys with a scripted model server and a scripted webhook.
async fn keyed(upstream: &ScriptedUpstream, hook: &Webhook) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    let builder = builder.toml(KEYS).env("ALICE", ALICE).env("BOB", BOB);
    builder.start().await
}

/// The path of a run.
fn path(id: &str) -> String {
    format!("/v1/chat/completions/{id}")
}

/// Asks a run to stop.
async fn cancel(client: &Client, id: &str, mode: &str) -> Answer {
    let path = format!("{}/cancel", path(id));
    client.post(&path, &json!({ "mode": mode })).await
}

/// How many runs there are, as the metrics have it.
async fn running(client: &Client) -> usize {
    let page = client.get("/metrics").await.text();
    let found = page
        .lines()
        .find_map(|line| line.strip_prefix("loopwright_runs "));
    let count = found.unwrap_or_else(|| panic!("no `loopwright_runs` in\n{page}"));
    count.trim().parse().unwrap()
}

/// Waits until no run is left.
pub(super) async fn none_running(client: &Client) {
    eventually("the end of every run", || async {
        (running(client).await == 0).then_some(())
    })
    .await;
}

/// Waits until a run has ended, and gives what its id then leads to.
async fn ended(client: &Client, id: &str) -> Answer {
    eventually("the end of a run", || async {
        let answer = client.get(&path(id)).await;
        (answer.status != 202).then_some(answer)
    })
    .await
}

/// The messages of a session.
async fn history(client: &Client, session: &str) -> Vec<Value> {
    let answer = client.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["messages"].as_array().unwrap().clone()
}

/// Waits until a session has this many messages, and gives them.
async fn history_of(client: &Client, session: &str, count: usize) -> Vec<Value> {
    let what = format!("{count} messages in the session");
    let path = format!("/v1/sessions/{session}");
    eventually(&what, || async {
        let stored = client.get(&path).await.json();
        let messages = stored["messages"].as_array()?.clone();
        (messages.len() >= count).then_some(messages)
    })
    .await
}

/// The roles of messages.
fn roles(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message["role"].as_str().unwrap_or("?"))
        .collect()
}

/// The text of a message.
fn content(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

/// The ids of all sessions.
async fn session_ids(client: &Client) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    loop {
        let after = ids.last().map(|id| format!("&after={id}"));
        let path = format!("/v1/sessions?limit=100{}", after.unwrap_or_default());
        let page = client.get(&path).await.json();
        let data = page["data"].as_array().unwrap();
        ids.extend(
            data.iter()
                .map(|row| row["id"].as_str().unwrap().to_owned()),
        );
        if page["has_more"] != true || data.is_empty() {
            return ids;
        }
    }
}

/// A JSON value without what differs between two equal runs.
fn comparable(mut value: Value) -> Value {
    const OWN: [&str; 6] = [
        "id",
        "created",
        "duration_ms",
        "session_id",
        "tool_call_id",
        "system_fingerprint",
    ];
    match &mut value {
        Value::Object(members) => {
            members.retain(|name, _| !OWN.contains(&name.as_str()));
            for member in members.values_mut() {
                *member = comparable(member.take());
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = comparable(item.take());
            }
        }
        _ => {}
    }
    value
}

/// The data of events without what differs between two equal runs.
fn comparable_data(data: &[String]) -> Vec<Value> {
    let parsed = |line: &String| match serde_json::from_str(line) {
        Ok(value) => comparable(value),
        Err(_) => json!(line),
    };
    data.iter().map(parsed).collect()
}

/// A model that calls `t` once and then has an answer, however many runs ask at the same time.
fn one_round(request: &Recorded) -> Reply {
    match request.tool_results().is_empty() {
        true => text_and_calls("Let me see.", [("t", json!({"n": 1}))]),
        false => text("It is done."),
    }
}
