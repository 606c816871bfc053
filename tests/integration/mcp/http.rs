//! Streamable HTTP, with a fake server.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{in_state, record, result, server, start_with};
use crate::support::server::{Arrived, Handler, HttpReply, Outgoing, Server};

/// What the server got: method, headers of interest, message.
#[derive(Debug, Clone)]
struct Seen {
    method: String,
    path: String,
    authorization: String,
    session: String,
    message: Value,
}

pub(super) struct HttpFake {
    server: Server,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl HttpFake {
    pub(super) async fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    async fn start_at(addr: SocketAddr) -> Self {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let handler: Handler = {
            let seen = seen.clone();
            Arc::new(move |arrived| {
                let seen = seen.clone();
                Box::pin(async move { answer(arrived, &seen).await })
            })
        };
        Self {
            server: Server::start_at(addr, handler).await,
            seen,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp?token=query-secret", self.server.addr())
    }
}

fn reply(status: u16, body: &Value) -> HttpReply {
    let mut reply = HttpReply::whole(status, "application/json", body.to_string());
    reply
        .headers
        .push(("mcp-session-id".to_owned(), "s-1".to_owned()));
    reply
}

async fn answer(arrived: Arrived, seen: &Mutex<Vec<Seen>>) -> Outgoing {
    let (head, body) = arrived.request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let header = |name: &str| {
        let value = head.headers.get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or_default().to_owned()
    };
    seen.lock().push(Seen {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        authorization: header("authorization"),
        session: header("mcp-session-id"),
        message: message.clone(),
    });
    let result = |result: Value| {
        reply(
            200,
            &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
        )
    };
    let said = |text: &str| result(json!({"content": [{"type": "text", "text": text}]}));
    let found = match (
        head.method.as_str(),
        message["method"].as_str().unwrap_or_default(),
    ) {
        ("GET", _) => reply(405, &json!({})),
        ("DELETE", _) => reply(200, &json!({})),
        (_, "initialize") => result(json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "fake", "version": "1"},
        })),
        (_, "tools/list") => {
            let names = ["echo", "moved", "broken", "denied", "large", "page"];
            let tools = names.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            result(json!({"tools": tools}))
        }
        (_, "tools/call") => match message["params"]["name"].as_str().unwrap() {
            "echo" => said("echoed"),
            "moved" => {
                let mut moved = HttpReply::whole(307, "text/plain", "");
                let elsewhere = header("host").replace("127.0.0.1", "127.0.0.2");
                let elsewhere = format!("http://{elsewhere}/elsewhere");
                moved.headers.push(("location".to_owned(), elsewhere));
                moved
            }
            "broken" => HttpReply::whole(500, "text/plain", "stack trace with db-secret"),
            "denied" => {
                let mut denied = HttpReply::whole(401, "text/plain", "");
                denied.headers.push((
                    "www-authenticate".to_owned(),
                    "Bearer realm=\"x\"".to_owned(),
                ));
                denied
            }
            "large" => said(&"x".repeat(10 * 1024 * 1024)),
            _ => HttpReply::whole(200, "text/html", "<p>A page.</p>"),
        },
        _ => HttpReply::whole(202, "application/json", ""),
    };
    Outgoing::Scripted(found)
}

#[tokio::test]
async fn a_server_behind_a_url_is_used_with_its_session_and_credentials() {
    let fake = HttpFake::start().await;
    let toml = format!(
        "[mcp_servers.far]\nurl = \"{}\"\nbearer_token = \"${{TOKEN}}\"\nheaders = {{ x-team = \"blue\" }}\n",
        fake.url()
    );
    let (app, _upstream) = start_with(&toml, |builder| builder.env("TOKEN", "bearer-secret")).await;
    in_state(app.client(), "far", "ready").await;
    assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
    let seen = fake.seen.lock().clone();
    assert!(
        seen.iter()
            .all(|seen| seen.authorization == "Bearer bearer-secret"),
        "{seen:?}"
    );
    let call = seen
        .iter()
        .find(|seen| seen.message["method"] == "tools/call")
        .unwrap();
    assert_eq!(
        (call.method.as_str(), call.session.as_str()),
        ("POST", "s-1")
    );

    for (tool, part) in [
        ("moved", "HTTP 307"),
        ("broken", "HTTP 500"),
        ("denied", "HTTP 401"),
        ("large", "larger than 4194304 bytes"),
        ("page", "content type"),
    ] {
        let call = record(app.client(), &format!("far__{tool}"), json!({})).await;
        let content = call["result_content"].as_str().unwrap();
        assert_eq!(call["status"], "error", "{tool}: {content}");
        assert!(content.contains(part), "{tool}: {content}");
    }
    let elsewhere = |seen: &Seen| seen.path != "/mcp";
    assert!(
        !fake.seen.lock().iter().any(elsewhere),
        "a redirect was followed"
    );
    assert_eq!(server(app.client(), "far").await["state"], "ready");
    assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
    for secret in ["bearer-secret", "query-secret", "db-secret"] {
        assert!(!app.logs().contains(secret), "{}", app.logs());
    }
}

#[tokio::test]
async fn a_server_behind_a_url_that_goes_away_is_found_down_and_back() {
    let fake = HttpFake::start().await;
    let address = fake.server.addr();
    let toml = format!("[mcp_servers.far]\nurl = \"{}\"\n", fake.url());
    let (app, _upstream) = start_with(&toml, |builder| builder).await;
    in_state(app.client(), "far", "ready").await;
    drop(fake);
    let call = record(app.client(), "far__echo", json!({})).await;
    assert_eq!(call["status"], "error", "{call}");
    let down = in_state(app.client(), "far", "down").await;
    assert!(!down.to_string().contains(&address.to_string()), "{down}");
    let _back = HttpFake::start_at(address).await;
    in_state(app.client(), "far", "ready").await;
    assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
}
