//! MCP servers as a source of tools: a fake one of the tests' own, and those that people use.

mod calls;
pub(super) mod fake;
pub(super) mod far;
mod floods;
mod hostile;
mod http;
mod life;
mod listing;
mod oauth;
mod owners;
mod protocol;
mod real;
mod requested;
mod search;
mod secrets;
mod sse;
mod table;

use serde_json::Value;

use super::support::app::{Builder, TestApp};
use super::support::ask::ask;
use super::support::client::Client;
use super::support::eventually;
use super::support::recorded::Recorded;
use super::support::script::{Reply, calls, text};
use super::support::upstream::ScriptedUpstream;

/// The model calls the tool that the user names, with the arguments that follow, and then says that it is done.
fn model(request: &Recorded) -> Reply {
    let messages = request.messages();
    let last = messages.last().unwrap();
    let words = last["content"].as_str().unwrap_or_default();
    match words.split_once(' ') {
        Some((name, arguments)) if last["role"] == "user" => {
            calls([(name, serde_json::from_str(arguments).unwrap())])
        }
        Some(_) | None => text("Done."),
    }
}

/// A server in front of that model, and the model.
async fn start(toml: &str) -> (TestApp, ScriptedUpstream) {
    start_with(toml, |builder| builder).await
}

async fn start_with(
    toml: &str,
    change: impl FnOnce(Builder) -> Builder,
) -> (TestApp, ScriptedUpstream) {
    let upstream = ScriptedUpstream::answering(model).await;
    let builder = TestApp::builder().upstream(&upstream).toml(toml);
    let app = change(builder).start().await;
    (app, upstream)
}

/// A turn in which the model calls one tool: the record of the call.
async fn record(client: &Client, name: &str, arguments: Value) -> Value {
    let body = client.post_chat(ask(&format!("{name} {arguments}"))).await;
    let body = body.completion();
    body["agentic_tool_calls"][0].clone()
}

/// The text that the model is given.
async fn result(client: &Client, name: &str, arguments: Value) -> String {
    let record = record(client, name, arguments).await;
    record["result_content"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// What `/v1/agent/tools` says of a server.
async fn server(client: &Client, name: &str) -> Value {
    let listed = client.get("/v1/agent/tools").await.json();
    let servers = listed["mcp_servers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let found = servers.into_iter().find(|server| server["name"] == name);
    found.unwrap_or(Value::Null)
}

/// Waits until a server is in a state.
async fn in_state(client: &Client, name: &str, state: &str) -> Value {
    eventually(&format!("{name} to be {state}"), || async {
        let found = server(client, name).await;
        (found["state"] == state).then_some(found)
    })
    .await
}

/// Whether a process exists, other than as a zombie.
fn is_alive(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, after)| after);
    state.is_some_and(|state| !state.starts_with('Z'))
}

async fn gone(id: &str) {
    eventually(&format!("process {id} to be gone"), || async {
        (!is_alive(id)).then_some(())
    })
    .await;
}
