//! MCP servers that requests declare.

mod approvals;
mod limits;
mod recorded;
mod refused;
mod suspended;

use serde_json::{Value, json};

use super::far::{Far, header};
use super::{fake, in_state, start, start_with};
use crate::support::app::TestApp;
use crate::support::ask::{ask, tool, with};
use crate::support::client::Client;
use crate::support::server::HttpReply;
use crate::support::upstream::ScriptedUpstream;
use crate::support::{AT_ONCE, eventually};

/// Servers on loopback may be declared.
const LOCAL: &str = "[mcp_requests]\nprivate = [\"127.0.0.1\"]\n";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\n";
const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";

async fn start_for_two(toml: &str) -> (TestApp, ScriptedUpstream) {
    let toml = format!("{toml}{KEYS}");
    start_with(&toml, |builder| builder.env("ALICE", ALICE).env("BOB", BOB)).await
}

/// The entry of a server.
fn entry(label: &str, url: &str) -> Value {
    json!({"type": "mcp", "server_label": label, "server_url": url, "require_approval": "never"})
}

/// The request in which the model calls a tool of the declared servers.
fn calling(name: &str, arguments: &Value, servers: &[Value]) -> Value {
    with(ask(&format!("{name} {arguments}")), "tools", json!(servers))
}

/// The record of that call.
async fn record(client: &Client, name: &str, arguments: Value, server: &Value) -> Value {
    let body = calling(name, &arguments, std::slice::from_ref(server));
    let answer = client.post_chat(body).await.completion();
    answer["agentic_tool_calls"][0].clone()
}

async fn result(client: &Client, name: &str, arguments: Value, server: &Value) -> String {
    let record = record(client, name, arguments, server).await;
    assert_eq!(record["status"], "ok", "{record}");
    record["result_content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_brings_its_servers() {
    let (first, second) = (Far::start().await, Far::start().await);
    let (app, upstream) = start(LOCAL).await;
    let mut docs = entry("docs", &first.url());
    docs["allowed_tools"] = json!({"tool_names": ["echo", "e*"]});
    docs["server_description"] = json!("Holds the handbook.");
    let mut crm = entry("crm", &second.url());
    crm["headers"] = json!({"X-Team": "blue"});
    crm["allowed_tools"] = json!(["team"]);
    crm["require_approval"] = json!({"always": {"tool_names": []}});
    let servers = [docs, tool("own"), crm];

    let body = calling("crm__team", &json!({}), &servers);
    let answer = app.client().post_chat(body.clone()).await.completion();
    let call = &answer["agentic_tool_calls"][0];
    assert_eq!(call["result_content"], "blue", "{answer}");
    assert!(
        answer["agent"]["notices"]
            .as_array()
            .is_none_or(Vec::is_empty),
        "{answer}"
    );
    let sent = upstream.request(0);
    assert_eq!(sent.tool_names(), ["own", "docs__echo", "crm__team"]);
    let described = sent.body["tools"][1]["function"]["description"].to_string();
    assert!(described.contains("Holds the handbook."), "{described}");

    let streamed = app.stream_chat(body).await.collect().await;
    assert_eq!(streamed.text, "Done.");
    // The connections are kept.
    assert_eq!(
        (first.count("initialize"), second.count("initialize")),
        (1, 1)
    );
    assert_eq!(second.count("tools/list"), 1);
    first.assert_clean();
    second.assert_clean();
    upstream.assert_clean();
    // Nobody else is offered their tools.
    app.client().post_chat(ask("Hello")).await;
    assert_eq!(upstream.last().tool_names(), [""; 0]);
    assert_eq!(
        app.client().get("/v1/agent/tools").await.json()["data"],
        json!([])
    );
}

#[tokio::test]
async fn a_filter_chooses_tools_by_name_and_by_what_they_say_of_themselves() {
    let far = Far::start().await;
    let (app, upstream) = start(LOCAL).await;
    for (filter, expected) in [
        (json!({"read_only": false}), &["far__remember"][..]),
        (
            json!({"tool_names": ["echo", "remember"], "read_only": true}),
            &["far__echo"],
        ),
        (
            json!({"tool_names": ["remember"], "read_only": null}),
            &["far__remember"],
        ),
        (json!({"tool_names": ["remember"], "read_only": true}), &[]),
    ] {
        let mut server = entry("far", &far.url());
        server["allowed_tools"] = filter.clone();
        let body = with(ask("Hello"), "tools", json!([server]));
        app.post_chat(body).await.completion();
        assert_eq!(upstream.last().tool_names(), expected, "{filter}");
    }
    let mut server = entry("far", &far.url());
    server["allowed_tools"] = json!({"read_only": true});
    let body = with(ask("Hello"), "tools", json!([server]));
    app.post_chat(body).await.completion();
    let names = upstream.last().tool_names();
    assert!(
        names.len() > 1 && !names.contains(&"far__remember".to_owned()),
        "{names:?}"
    );
}

#[tokio::test]
async fn nothing_is_shared_between_owners_or_credentials() {
    let far = Far::start().await;
    let (app, _upstream) = start_for_two(LOCAL).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let server = entry("far", &far.url());
    let said = async |client: &Client, fact: &str, server: &Value| {
        result(client, "far__remember", json!({"fact": fact}), server).await
    };
    assert_eq!(said(&alice, "a", &server).await, "session-1: a");
    assert_eq!(said(&bob, "b", &server).await, "session-2: b");
    assert_eq!(said(&alice, "c", &server).await, "session-1: a,c");
    let mut other = server.clone();
    other["authorization"] = json!("token-1");
    assert_eq!(said(&alice, "d", &other).await, "session-3: d");
    other["authorization"] = json!("token-2");
    assert_eq!(said(&alice, "e", &other).await, "session-4: e");
    // Another label is the same server.
    let mut renamed = server.clone();
    renamed["server_label"] = json!("again");
    let found = result(&alice, "again__remember", json!({"fact": "f"}), &renamed).await;
    assert_eq!(found, "session-1: a,c,f");
    far.assert_clean();
}

#[tokio::test]
async fn secrets_are_in_no_byte_that_leaves() {
    let far = Far::start().await;
    far.state.lock().tokens.insert("token-secret".to_owned());
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("sessions.db");
    let toml = format!(
        "session_store = \"sqlite:{}\"\nlog_level = \"debug\"\n{LOCAL}",
        store.display()
    );
    let (app, upstream) = start(&toml).await;
    let mut server = entry("far", &format!("{}?key=query-secret", far.url()));
    server["authorization"] = json!("token-secret");
    server["headers"] = json!({"x-api-key": "header-secret"});
    let mut texts = Vec::new();
    for (name, arguments) in [
        ("far__echo", json!({})),
        ("far__cut", json!({})),
        // It repeats what it was sent.
        ("far__leak", json!({})),
        ("far__leak_error", json!({})),
        ("far__moved", json!({"to": "http://127.0.0.1:1/"})),
    ] {
        let body = calling(name, &arguments, std::slice::from_ref(&server));
        let body = with(body, "session_id", json!("s-1"));
        texts.push(app.client().post_chat(body.clone()).await.text());
        texts.push(app.stream_chat(body).await.collect().await.transcript());
    }
    let call = far
        .seen()
        .into_iter()
        .find(|seen| seen.message["method"] == "tools/call")
        .unwrap();
    assert_eq!(
        header(&call.headers, "authorization"),
        "Bearer token-secret"
    );
    assert_eq!(header(&call.headers, "x-api-key"), "header-secret");
    // A server that refuses, one that is down, and a request that is refused.
    far.state.lock().tokens.clear();
    far.state.lock().tokens.insert("other".to_owned());
    let mut wrong = server.clone();
    wrong["authorization"] = json!("wrong-secret");
    texts.push(
        app.client()
            .post_chat(calling("far__echo", &json!({}), &[wrong.clone()]))
            .await
            .text(),
    );
    drop(far);
    wrong["headers"] = json!({"x-api-key": "other-secret"});
    texts.push(
        app.client()
            .post_chat(calling("far__echo", &json!({}), &[wrong.clone()]))
            .await
            .text(),
    );
    wrong["headers"] = json!({"host": "host-secret"});
    texts.push(
        app.client()
            .post_chat(calling("far__echo", &json!({}), &[wrong.clone()]))
            .await
            .text(),
    );
    wrong["headers"] = json!({"authorization": "twice-secret"});
    texts.push(
        app.client()
            .post_chat(calling("far__echo", &json!({}), &[wrong]))
            .await
            .text(),
    );
    for path in [
        "/metrics",
        "/readyz",
        "/v1/agent/tools",
        "/v1/sessions",
        "/v1/sessions/s-1",
    ] {
        texts.push(app.client().get(path).await.text());
    }
    texts.extend(
        upstream
            .requests()
            .iter()
            .map(|request| String::from_utf8_lossy(&request.bytes).into_owned()),
    );
    texts.push(app.logs());
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let path = file.unwrap().path();
        let bytes = match path.is_file() {
            true => std::fs::read(path).unwrap(),
            false => continue,
        };
        texts.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    assert!(texts.iter().any(|text| text.contains("far__echo")));
    for text in texts {
        let found = text
            .find("-secret")
            .map(|at| text.split_at(at.saturating_sub(100)).1);
        assert_eq!(found, None);
    }
}

#[tokio::test]
async fn a_server_that_is_down_is_a_notice() {
    let (far, down) = (Far::start().await, Far::start().await);
    let gone = down.url();
    drop(down);
    let (app, upstream) = start(LOCAL).await;
    let servers = [entry("gone", &gone), entry("far", &far.url())];
    let body = calling("far__echo", &json!({"text": "x"}), &servers);
    let answer = app.client().post_chat(body.clone()).await.completion();
    assert_eq!(
        answer["agentic_tool_calls"][0]["result_content"], "x",
        "{answer}"
    );
    let notice = &answer["agent"]["notices"][0];
    let message = notice["message"].as_str().unwrap();
    assert!(
        message.contains("'gone'") && message.contains("cannot be reached"),
        "{message}"
    );
    assert!(!message.contains("127.0.0.1"), "{message}");
    let names = upstream.request(0).tool_names();
    assert!(
        names.iter().all(|name| name.starts_with("far__")),
        "{names:?}"
    );
    let collected = app.stream_chat(body).await.collect().await;
    assert!(
        collected.transcript().contains("agentic_notice"),
        "{}",
        collected.transcript()
    );

    // A server that goes away between listing and call is news for the model.
    far.state.lock().instead = Some(HttpReply::whole(503, "text/plain", "later"));
    let call = record(
        app.client(),
        "far__echo",
        json!({}),
        &entry("far", &far.url()),
    )
    .await;
    assert_eq!(call["status"], "error", "{call}");
    assert!(
        call["result_content"]
            .as_str()
            .unwrap()
            .contains("HTTP 503"),
        "{call}"
    );
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (far, inside) = (Far::start().await, Far::start().await);
    let (app, _upstream) = start(LOCAL).await;
    let server = entry("far", &far.url());
    let to = json!({"to": inside.url()});
    let call = record(app.client(), "far__moved", to, &server).await;
    assert!(
        call["result_content"]
            .as_str()
            .unwrap()
            .contains("HTTP 307"),
        "{call}"
    );
    let mut moved = HttpReply::whole(307, "text/plain", "");
    moved.headers.push(("location".to_owned(), inside.url()));
    let other = Far::start().await;
    other.state.lock().instead = Some(moved);
    let body = with(ask("Hello"), "tools", json!([entry("other", &other.url())]));
    let answer = app.client().post_chat(body).await.completion();
    assert!(
        answer["agent"]["notices"].to_string().contains("HTTP 307"),
        "{answer}"
    );
    assert!(inside.seen().is_empty(), "{:?}", inside.seen());
}

#[tokio::test]
async fn hints_of_a_declared_server_switch_nothing_off() {
    let far = Far::start().await;
    let (app, _upstream) = start(LOCAL).await;
    // It says that the tool may be called twice.
    let call = record(
        app.client(),
        "far__cut",
        json!({}),
        &entry("far", &far.url()),
    )
    .await;
    assert_eq!(call["status"], "error", "{call}");
    assert_eq!(far.count("tools/call"), 1);
}

#[tokio::test]
async fn a_response_shows_calls_under_the_label_of_their_server_and_no_secret() {
    let far = Far::start().await;
    let (app, _upstream) = start(LOCAL).await;
    let mut server = entry("crm", &far.url());
    server["headers"] = json!({"X-Team": "blue"});
    let body = json!({"model": "test-model", "input": "crm__team {}", "tools": [server]});
    for progress in ["auto", "declared"] {
        let body = with(body.clone(), "agent", json!({"progress": progress}));
        let answer = app.client().post("/v1/responses", &body).await;
        assert!(!answer.text().contains("X-Team"), "{}", answer.text());
        let response = answer.json();
        let call = &response["output"][1];
        assert_eq!(call["type"], "mcp_call", "{response}");
        assert_eq!(
            (&call["server_label"], &call["name"]),
            (&json!("crm"), &json!("team"))
        );
        assert_eq!(call["output"], "blue");
        assert_eq!(response["tools"][0]["server_url"], far.url());
    }
}

#[tokio::test]
async fn a_session_that_a_declared_server_has_lost_is_opened_anew() {
    for (status, text) in [
        (400, "No valid session ID provided"),
        (401, "Session not found"),
    ] {
        let far = Far::start().await;
        far.state.lock().lost = Some(HttpReply::whole(status, "text/plain", text));
        let (app, _upstream) = start(LOCAL).await;
        let server = entry("far", &far.url());
        for text in ["before", "after"] {
            let said = result(app.client(), "far__echo", json!({"text": text}), &server).await;
            assert_eq!(said, text, "{status}");
            far.state.lock().sessions.clear();
        }
        assert_eq!(far.count("initialize"), 2, "{status}");
    }
}
