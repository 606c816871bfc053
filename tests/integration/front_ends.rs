//! What chat front ends do: ids of chats in a header, requests beside the conversation, citations, plots.

mod chats;
mod images;
mod offers;

use serde_json::{Value, json};

use super::support::app::{Builder, TestApp};
use super::support::ask::{ask, assistant, tool, user, with};
use super::support::client::Client;
use super::support::eventually;
use super::support::recorded::Recorded;
use super::support::script::{Reply, calls, text, text_and_calls};
use super::support::server::Gate;
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::webhook::{self, Webhook};

/// The header in which Open WebUI sends the id of a chat.
const CHAT_HEADER: &str = "x-openwebui-chat-id";

/// A server that knows Open WebUI's header.
fn builder(upstream: &ScriptedUpstream, hook: &Webhook) -> Builder {
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    builder.toml("session_headers = [\"x-openwebui-chat-id\"]")
}

/// The ids of all sessions, sorted.
async fn session_ids(client: &Client) -> Vec<String> {
    let page = client.get("/v1/sessions?limit=100").await.json();
    let rows = page["data"].as_array().unwrap();
    let mut ids: Vec<String> = rows
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}
