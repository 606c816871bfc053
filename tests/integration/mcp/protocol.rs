//! What the protocol asks of a client over streamable HTTP: sessions, resumption, versions.

use std::sync::Arc;

use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::far::{Far, header, json_reply};
use super::{in_state, record, result, start};
use crate::support::eventually;
use crate::support::server::{Arrived, Gate, Handler, HttpReply, Outgoing, Part, Server};

fn table(url: &str) -> String {
    format!("[mcp_servers.far]\nurl = \"{url}\"\n")
}

#[tokio::test]
async fn a_session_that_has_expired_is_followed_by_another() {
    let far = Far::start().await;
    let (app, _upstream) = start(&table(&far.url())).await;
    in_state(app.client(), "far", "ready").await;
    let fact = |fact: &str| json!({"fact": fact});
    assert_eq!(
        result(app.client(), "far__remember", fact("a")).await,
        "session-1: a"
    );
    far.state.lock().sessions.clear();
    assert_eq!(
        result(app.client(), "far__remember", fact("b")).await,
        "session-2: b"
    );
    assert_eq!(far.count("initialize"), 2);
    far.assert_clean();
}

#[tokio::test]
async fn the_version_is_negotiated() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let far = Far::start().await;
        far.state.lock().version = Some(version.to_owned());
        let (app, _upstream) = start(&table(&far.url())).await;
        in_state(app.client(), "far", "ready").await;
        assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
        let seen = far.seen();
        assert_eq!(seen[0].message["params"]["protocolVersion"], "2025-11-25");
        far.assert_clean();
    }
    let far = Far::start().await;
    far.state.lock().version = Some("1999-01-01".to_owned());
    let (app, _upstream) = start(&table(&far.url())).await;
    let down = in_state(app.client(), "far", "down").await;
    assert!(down.to_string().contains("version"), "{down}");
}

/// A server whose answers to calls come on streams that break off.
#[derive(Default)]
struct Broken {
    /// The ids after which streams were resumed.
    resumed: Vec<String>,
    waiting: Option<Value>,
    modern: bool,
    /// News of the list of tools come when this is open.
    news: Option<Gate>,
    renamed: bool,
    /// Streams are resumed for ever.
    endless: bool,
    seen: Vec<Value>,
}

fn events(text: String) -> HttpReply {
    HttpReply::whole(200, "text/event-stream", text)
}

async fn broken(arrived: Arrived, state: &Mutex<Broken>) -> Outgoing {
    let (head, body) = arrived.request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut state = state.lock();
    state.seen.push(message.clone());
    let answer = |id: &Value, result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    let id = &message["id"];
    let capabilities = json!({"tools": {"listChanged": state.modern}});
    let name = if state.renamed { "fast" } else { "slow" };
    let tools = json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]});
    let reply = match (
        head.method.as_str(),
        message["method"].as_str().unwrap_or_default(),
    ) {
        (_, "initialize") if state.modern => json_reply(
            400,
            &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "there is no handshake"}}),
        ),
        (_, "server/discover") => json_reply(
            200,
            &answer(
                id,
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}),
            ),
        ),
        (_, "initialize") => json_reply(
            200,
            &answer(
                id,
                json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "b", "version": "1"}}),
            ),
        ),
        (_, "subscriptions/listen") => {
            let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
            let news = |method: &str, mut params: Value| {
                params["_meta"] = meta.clone();
                let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
                Part::Bytes(format!("data: {message}\n\n").into())
            };
            let accepted = message["params"]["notifications"].clone();
            HttpReply {
                headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
                body: vec![
                    news(
                        "notifications/subscriptions/acknowledged",
                        json!({"notifications": accepted}),
                    ),
                    Part::Wait(state.news.clone().unwrap()),
                    news("notifications/tools/list_changed", json!({})),
                    Part::Hang,
                ],
                ..HttpReply::default()
            }
        }
        (_, "tools/list") => json_reply(200, &answer(id, tools)),
        (_, "tools/call") if !state.modern => {
            let result = json!({"content": [{"type": "text", "text": "late"}]});
            state.waiting = Some(answer(id, result));
            events("id: event-7\nretry: 10\ndata:\n\n".to_owned())
        }
        (_, "tools/call") => {
            let result =
                json!({"content": [{"type": "text", "text": "modern"}], "resultType": "complete"});
            json_reply(200, &answer(id, result))
        }
        ("GET", _) if state.endless => {
            state.resumed.push(header(&head.headers, "last-event-id"));
            events("id: again\nretry: 0\ndata:\n\n".to_owned())
        }
        ("GET", _) => {
            let last = header(&head.headers, "last-event-id");
            match (last.as_str(), state.waiting.take()) {
                ("", waiting) => {
                    state.waiting = waiting;
                    json_reply(405, &json!({}))
                }
                (last, Some(waiting)) => {
                    state.resumed.push(last.to_owned());
                    events(format!("id: event-8\ndata: {waiting}\n\n"))
                }
                (_, None) => json_reply(404, &json!({})),
            }
        }
        (_, "ping") => json_reply(200, &answer(id, json!({}))),
        _ => HttpReply::whole(202, "application/json", ""),
    };
    Outgoing::Scripted(reply)
}

async fn start_broken(modern: bool) -> (Server, Arc<Mutex<Broken>>) {
    let state = Arc::new(Mutex::new(Broken {
        modern,
        news: Some(Gate::new()),
        ..Broken::default()
    }));
    let handler: Handler = {
        let state = state.clone();
        Arc::new(move |arrived| {
            let state = state.clone();
            Box::pin(async move { broken(arrived, &state).await })
        })
    };
    (Server::start(handler).await, state)
}

#[tokio::test]
async fn an_answer_whose_stream_breaks_off_is_resumed() {
    let (server, state) = start_broken(false).await;
    let url = format!("http://{}/mcp", server.addr());
    let (app, _upstream) = start(&table(&url)).await;
    in_state(app.client(), "far", "ready").await;
    assert_eq!(result(app.client(), "far__slow", json!({})).await, "late");
    assert_eq!(state.lock().resumed, ["event-7"]);
}

#[tokio::test]
async fn streams_that_end_at_once_are_opened_again_with_pauses_only() {
    let (server, state) = start_broken(false).await;
    state.lock().endless = true;
    let url = format!("http://{}/mcp", server.addr());
    let toml = format!("{}timeout_ms = 1200\n", table(&url));
    let (app, _upstream) = start(&toml).await;
    in_state(app.client(), "far", "ready").await;
    let call = record(app.client(), "far__slow", json!({})).await;
    assert_eq!(call["status"], "timeout", "{call}");
    let resumed = state.lock().resumed.len();
    // Of the stream of the call, and of the one for messages of the server.
    assert!((2..=12).contains(&resumed), "{resumed}");
}

#[tokio::test]
async fn a_server_without_a_handshake_is_asked_what_it_knows() {
    let (server, state) = start_broken(true).await;
    let url = format!("http://{}/mcp", server.addr());
    let (app, _upstream) = start(&table(&url)).await;
    in_state(app.client(), "far", "ready").await;
    assert_eq!(result(app.client(), "far__slow", json!({})).await, "modern");
    let seen = state.lock().seen.clone();
    let call = seen
        .iter()
        .find(|message| message["method"] == "tools/call")
        .unwrap();
    let version = &call["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
    assert_eq!(version, "2026-07-28", "{call}");
    // It is asked for news of its list.
    let listening = seen
        .iter()
        .find(|message| message["method"] == "subscriptions/listen");
    assert_eq!(
        listening.unwrap()["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    let gate = {
        let mut state = state.lock();
        state.renamed = true;
        state.news.clone().unwrap()
    };
    gate.open();
    eventually("the changed list", || async {
        let found = super::server(app.client(), "far").await;
        (found["tools"] == json!(["far__fast"])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_whose_answers_never_come_is_an_error() {
    let far = Far::start().await;
    let (app, _upstream) = start(&format!("{}timeout_ms = 300\n", table(&far.url()))).await;
    in_state(app.client(), "far", "ready").await;
    let call = record(app.client(), "far__hang", json!({})).await;
    assert_eq!(call["status"], "timeout", "{call}");
    assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
    // The server is told.
    eventually("the cancellation", || async {
        (far.count("notifications/cancelled") == 1).then_some(())
    })
    .await;
    far.assert_clean();
}
