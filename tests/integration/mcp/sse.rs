//! The HTTP+SSE transport of the protocol of 2024-11-05.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::far::header;
use super::floods::Flood;
use super::{in_state, record, result, start, start_with};
use crate::runs::none_running;
use crate::support::app::TestApp;
use crate::support::ask::{ask, with};
use crate::support::eventually;
use crate::support::server::{Arrived, Gate, Handler, HttpReply, Outgoing, Server};

#[derive(Default)]
struct SseState {
    /// The open streams.
    streams: BTreeMap<usize, mpsc::UnboundedSender<String>>,
    opened: usize,
    /// What begins each stream, in place of its endpoint.
    beginning: Option<String>,
    /// The status of a POST to the stream's own path.
    refusal: u16,
    /// Method, path, credentials.
    seen: Vec<(String, String, String)>,
    notes: Vec<String>,
    /// It floods its streams between messages.
    flood: Option<Flood>,
    /// Holds the answer to the POST of a call of `held`.
    held: Option<Gate>,
}

pub(super) struct SseFake {
    server: Server,
    state: Arc<Mutex<SseState>>,
}

impl SseFake {
    pub(super) async fn start() -> Self {
        let state = Arc::new(Mutex::new(SseState {
            refusal: 405,
            ..SseState::default()
        }));
        let handler: Handler = {
            let state = state.clone();
            Arc::new(move |arrived| {
                let state = state.clone();
                Box::pin(async move { answer(arrived, &state).await })
            })
        };
        Self {
            server: Server::start(handler).await,
            state,
        }
    }

    pub(super) fn flood(&self, flood: Flood) {
        self.state.lock().flood = Some(flood);
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/sse", self.server.addr())
    }

    fn table(&self, lines: &str) -> String {
        format!("[mcp_servers.old]\nurl = \"{}\"\n{lines}\n", self.url())
    }

    fn seen(&self) -> Vec<(String, String, String)> {
        self.state.lock().seen.clone()
    }
}

async fn answer(arrived: Arrived, state: &Mutex<SseState>) -> Outgoing {
    let (head, body) = arrived.request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    if message["params"]["name"] == "held" {
        let gate = {
            let mut state = state.lock();
            state.notes.push("held".to_owned());
            state.held.clone().unwrap()
        };
        gate.pass().await;
        state.lock().notes.push("accepted".to_owned());
    }
    let mut state = state.lock();
    let path = head.uri.path_and_query().unwrap().to_string();
    let credentials = header(&head.headers, "authorization");
    state
        .seen
        .push((head.method.to_string(), path.clone(), credentials));
    let plain = |status| Outgoing::Scripted(HttpReply::whole(status, "text/plain", ""));
    match (head.method.as_str(), path.split_once("session=")) {
        ("GET", None) => {
            let (send, receive) = mpsc::unbounded_channel::<String>();
            state.opened += 1;
            let id = state.opened;
            let endpoint = format!("event: endpoint\ndata: /messages?session={id}\n\n");
            send.send(state.beginning.clone().unwrap_or(endpoint))
                .unwrap();
            state.streams.insert(id, send);
            let flood = state.flood.clone();
            let frames = unfold((receive, flood), |(mut receive, flood)| async move {
                let flood_frame = async || match &flood {
                    Some(flood) => flood.frame().await,
                    None => pending().await,
                };
                let bytes = tokio::select! {
                    biased;
                    text = receive.recv() => Bytes::from(text?),
                    bytes = flood_frame() => bytes,
                };
                Some((Ok(Frame::data(bytes)), (receive, flood)))
            });
            let response = Response::builder()
                .header("content-type", "text/event-stream; charset=utf-8")
                .body(StreamBody::new(frames).boxed_unsync());
            Outgoing::Response(response.unwrap())
        }
        ("POST", Some((_, id))) => {
            let id: usize = id.parse().unwrap();
            let Some(text) = state.take(&message) else {
                return plain(202);
            };
            match text.as_str() {
                "end" => drop(state.streams.remove(&id)),
                text => {
                    if let Some(stream) = state.streams.get(&id) {
                        let _stream_may_have_ended = stream.send(text.to_owned());
                    }
                }
            }
            plain(202)
        }
        ("POST", None) => plain(state.refusal),
        _ => plain(405),
    }
}

impl SseState {
    /// What the stream says to a message.
    fn take(&mut self, message: &Value) -> Option<String> {
        let event = |value: Value| Some(format!("event: message\ndata: {value}\n\n"));
        let answer =
            |result: Value| event(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        let say = |text: &str| answer(json!({"content": [{"type": "text", "text": text}]}));
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => answer(json!({
                "protocolVersion": "2024-11-05",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            })),
            "tools/list" => {
                let names = ["echo", "noise", "end", "large", "silent", "held", "notes"];
                let tools =
                    names.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
                answer(json!({"tools": tools}))
            }
            "tools/call" => match message["params"]["name"].as_str().unwrap() {
                "noise" => {
                    let noise = ": comment\n\ndata: no JSON\n\nevent: endpoint\ndata: http://127.0.0.1:1/\n\nevent: other\ndata: {}\n\n";
                    say("heard").map(|said| format!("{noise}{said}"))
                }
                "end" => Some("end".to_owned()),
                "large" => say(&"x".repeat(10 * 1024 * 1024)),
                "silent" | "held" => None,
                "notes" => say(&self.notes.join(" ")),
                _ => say("echoed"),
            },
            "ping" => answer(json!({})),
            "notifications/cancelled" => {
                self.notes.push("cancelled".to_owned());
                None
            }
            _ => None,
        }
    }
}

#[tokio::test]
async fn a_server_that_has_nothing_newer_is_found_and_used() {
    for (refusal, lines) in [(405, ""), (404, ""), (400, ""), (500, "type = \"sse\"")] {
        let fake = SseFake::start().await;
        fake.state.lock().refusal = refusal;
        let toml = fake.table(&format!("bearer_token = \"token\"\n{lines}"));
        let (app, _upstream) = start(&toml).await;
        in_state(app.client(), "old", "ready").await;
        assert_eq!(result(app.client(), "old__echo", json!({})).await, "echoed");
        assert_eq!(result(app.client(), "old__noise", json!({})).await, "heard");
        let seen = fake.seen();
        assert!(
            seen.iter()
                .all(|(_, _, credentials)| credentials == "Bearer token"),
            "{seen:?}"
        );
        let tried = seen
            .iter()
            .any(|(method, path, _)| method == "POST" && path == "/sse");
        assert_eq!(tried, lines.is_empty(), "{seen:?}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_for_another_reason_is_not_asked_again() {
    for refusal in [401, 403, 429, 500] {
        let fake = SseFake::start().await;
        fake.state.lock().refusal = refusal;
        let (app, _upstream) = start(&fake.table("")).await;
        let down = in_state(app.client(), "old", "down").await;
        assert!(
            down.to_string().contains(&format!("HTTP {refusal}")),
            "{down}"
        );
        assert!(
            fake.seen().iter().all(|(method, _, _)| method == "POST"),
            "{:?}",
            fake.seen()
        );
    }
}

#[tokio::test]
async fn calls_are_cancelled_and_lost_ones_are_errors() {
    let fake = SseFake::start().await;
    let (app, _upstream) = start(&fake.table("timeout_ms = 300")).await;
    in_state(app.client(), "old", "ready").await;
    let silent = record(app.client(), "old__silent", json!({})).await;
    assert_eq!(silent["status"], "timeout", "{silent}");
    eventually("the server to be told", || async {
        let notes = result(app.client(), "old__notes", json!({})).await;
        (notes == "cancelled").then_some(())
    })
    .await;
    let (app, _upstream) = start(&fake.table("")).await;
    in_state(app.client(), "old", "ready").await;
    for tool in ["end", "large"] {
        let call = record(app.client(), &format!("old__{tool}"), json!({})).await;
        assert_eq!(call["status"], "error", "{}", call["result_content"]);
        // It comes back.
        in_state(app.client(), "old", "ready").await;
        assert_eq!(result(app.client(), "old__echo", json!({})).await, "echoed");
    }
}

#[tokio::test]
async fn a_cancellation_does_not_overtake_its_call() {
    let fake = SseFake::start().await;
    let gate = Gate::new();
    fake.state.lock().held = Some(gate.clone());
    let (app, _upstream) = start(&fake.table("")).await;
    let client = app.client();
    in_state(client, "old", "ready").await;
    let stream = client.stream_chat(ask("old__held {}")).await;
    gate.reached(1).await;
    drop(stream);
    none_running(client).await;
    // Other calls do not wait for it.
    assert_eq!(result(client, "old__notes", json!({})).await, "held");
    gate.open();
    eventually("the server to be told", || async {
        let notes = result(client, "old__notes", json!({})).await;
        (notes == "held accepted cancelled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hostile_stream_gets_no_credentials_elsewhere_and_no_memory() {
    let inside = SseFake::start().await;
    let elsewhere = format!("event: endpoint\ndata: {}\n\n", inside.url());
    for (beginning, words) in [
        (elsewhere, "not of its origin"),
        (
            "event: endpoint\ndata: //example.org/m\n\n".to_owned(),
            "not of its origin",
        ),
        ("event: endpoint\ndata: http://\n\n".to_owned(), "no URL"),
        (
            format!("event: endpoint\ndata: /{}\n\n", "x".repeat(5000)),
            "no URL",
        ),
        ("data: {}\n\n".repeat(100), "does not begin"),
        (
            format!("data: {}\n\n", "x".repeat(5 * 1024 * 1024)),
            "larger than",
        ),
    ] {
        let fake = SseFake::start().await;
        fake.state.lock().beginning = Some(beginning);
        let toml = fake.table("type = \"sse\"\nbearer_token = \"token\"");
        let (app, _upstream) = start(&toml).await;
        let down = in_state(app.client(), "old", "down").await;
        assert!(down.to_string().contains(words), "{words}: {down}");
        let seen = fake.seen();
        assert!(
            seen.iter().all(|(method, _, _)| method == "GET"),
            "{seen:?}"
        );
    }
    assert!(inside.seen().is_empty(), "{:?}", inside.seen());
    // A stream that never names an endpoint holds the start only so long.
    let fake = SseFake::start().await;
    fake.state.lock().beginning = Some(": wait\n\n".to_owned());
    let toml = format!("mcp_start_timeout = 0.3\n{}", fake.table("type = \"sse\""));
    let (app, _upstream) = start(&toml).await;
    let down = in_state(app.client(), "old", "down").await;
    assert!(down.to_string().contains("within 0.3 s"), "{down}");
}

#[tokio::test]
async fn a_request_can_declare_such_a_server() {
    let fake = SseFake::start().await;
    let local = "[mcp_requests]\nprivate = [\"127.0.0.1\"]\n";
    let (app, _upstream): (TestApp, _) = start_with(local, |builder| builder).await;
    let server = json!({"type": "mcp", "server_label": "old", "server_url": fake.url(), "authorization": "t", "require_approval": "never"});
    let body = with(ask("old__echo {}"), "tools", json!([server]));
    let answer = app.client().post_chat(body).await.completion();
    assert_eq!(
        answer["agentic_tool_calls"][0]["result_content"], "echoed",
        "{answer}"
    );
}
