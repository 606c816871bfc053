//! Neighbours: one key floods the server in every way, and another is served all the while.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::app::{Builder, TestApp};
use crate::support::ask::{ask, with};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::recorded::Recorded;
use crate::support::script::{Reply, calls, text};
use crate::support::server::{Arrived, HttpReply, Outgoing, Part, Server};
use crate::support::upstream::ScriptedUpstream;

const GREEDY: &str = "greedy-greedy-greedy";
const OTHER: &str = "other-other-other-other";

/// Few connections and little memory, so that a flood of a test's size is one.
const SETTINGS: &str = r#"
max_connections = 256
max_parsed_bytes = "32MiB"
max_total_session_bytes = "64MiB"
body_timeout = 3
enable_search = true
search_url = "http://127.0.0.1:1/"
"#;
const TABLES: &str = r#"
[search.pages]
private = ["127.0.0.1", "localhost"]
[[api_keys]]
name = "greedy"
env = "GREEDY"
[[api_keys]]
name = "other"
env = "OTHER"
"#;
const CODE: &str = "enable_code_execution = true\ncode_exec_timeout = 2\n";
const INTERPRETERS: &str = "[sandbox]\nmax_workers = 2\nspares = 0\nmax_waiting = 4\n";

/// How often the other key asks for everything.
const ROUNDS: usize = 5;
/// A pause of a client that was refused, so that the flood leaves the test itself some time.
const PAUSE: Duration = Duration::from_millis(20);

/// The model does what it is told: reads pages, runs code, or greets.
fn model(request: &Recorded) -> Reply {
    let messages = request.messages();
    let last = messages.last().unwrap();
    let words = last["content"].as_str().unwrap_or_default();
    match words.split_once(' ') {
        _ if last["role"] == "tool" => text("Done."),
        Some(("read", url)) => calls([("read_page", json!({ "url": url }))]),
        Some(("read4", host)) => calls([1, 2, 3, 4].map(|number| {
            let url = format!("http://{number}.{host}/");
            ("read_page", json!({ "url": url }))
        })),
        Some(("run", code)) => calls([("execute_python", json!({ "code": code }))]),
        _ => text("Hello."),
    }
}

/// A server with one page, and one that never comes.
async fn pages() -> Server {
    let handler = |arrived: Arrived| {
        let reply = match arrived.request.uri().path() {
            "/slow" => HttpReply {
                before_head: vec![Part::Hang],
                ..HttpReply::default()
            },
            "/" => HttpReply::whole(200, "text/plain", "A quiet page."),
            _ => HttpReply::whole(404, "text/plain", "no such page"),
        };
        std::future::ready(Outgoing::Scripted(reply)).boxed()
    };
    Server::start(Arc::new(handler)).await
}

/// What one key does to the server, over and over again until this is dropped.
struct Flood {
    origin: String,
    client: Client,
    refused: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Flood {
    fn new(app: &TestApp) -> Self {
        Self {
            origin: app.origin().to_owned(),
            client: app.client().key(GREEDY),
            refused: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    /// So many connections with these bytes, which are then kept open.
    fn connections(&mut self, count: usize, bytes: &str) {
        for _ in 0..count {
            let address = self.origin.trim_start_matches("http://").to_owned();
            let (bytes, refused) = (bytes.to_owned(), self.refused.clone());
            self.tasks.spawn(async move {
                loop {
                    if let Ok(mut socket) = TcpStream::connect(&address).await {
                        let mut answer = Vec::new();
                        let _closed = socket.write_all(bytes.as_bytes()).await;
                        let _closed = socket.read_to_end(&mut answer).await;
                        count_refusal(&refused, answer.get(9..12).unwrap_or_default());
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
    }

    /// So many clients that send this request again and again; the body is made from the number of the client.
    fn requests(
        &mut self,
        count: usize,
        method: &Method,
        path: &str,
        body: impl Fn(usize) -> Value,
    ) {
        for number in 0..count {
            let path = path.replace("{}", &number.to_string());
            let request = self
                .client
                .request(method.clone(), &path)
                .header("content-type", "application/json")
                .body(body(number).to_string());
            let refused = self.refused.clone();
            self.tasks.spawn(async move {
                while let Some(request) = request.try_clone() {
                    // A connection that is closed to make room is no answer.
                    if let Ok(answer) = request.send().await {
                        count_refusal(&refused, answer.status().as_str().as_bytes());
                        let _whole = answer.bytes().await;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
    }

    /// Chats with one message that tells the model what to do.
    fn chats(&mut self, count: usize, body: impl Fn(usize) -> Value) {
        self.requests(count, &Method::POST, "/v1/chat/completions", body);
    }
}

fn count_refusal(refused: &AtomicUsize, status: &[u8]) {
    if matches!(status, b"429" | b"503") {
        refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// A head and the first byte of a body.
fn slow_body() -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {GREEDY}\r\n\
         content-type: application/json\r\ncontent-length: 1000000\r\n\r\n{{"
    )
}

async fn flood(app: &TestApp, slow: &str) -> Flood {
    let mut flood = Flood::new(app);
    flood.connections(150, "");
    flood.connections(50, "GET /healthz HTTP/1.1\r\nhost: loc");
    flood.connections(160, &slow_body());
    flood.requests(
        4,
        &Method::PUT,
        "/v1/sessions/large-{}",
        |_| json!({"messages": [{"role": "user", "content": "x".repeat(2_000_000)}]}),
    );
    flood.requests(
        2,
        &Method::POST,
        "/v1/sessions/large-{}/fork",
        |_| json!({}),
    );
    flood.chats(20, |number| ask(&format!("read {slow}?{number}")));
    let refused = flood.refused.clone();
    eventually("the excess of the flood to be refused", || async {
        (refused.load(Ordering::Relaxed) > 20).then_some(())
    })
    .await;
    flood
}

/// Everything that the other key asks for, each on a connection of its own.
async fn served(app: &TestApp, page: &str, code: bool) {
    let client = || Client::new(app.origin()).key(OTHER);
    for round in 0..ROUNDS {
        let plain = client().post_chat(ask("Hi")).await;
        assert_eq!(plain.content(), "Hello.", "round {round}");
        let turn = with(ask("Hi"), "session_id", json!("mine"));
        let turn = client().post_chat(turn).await;
        assert_eq!(turn.content(), "Hello.", "round {round}");
        let read = client().post_chat(ask(&format!("read {page}"))).await;
        let read = read.completion();
        let result = read["agentic_tool_calls"][0]["result_content"].to_string();
        assert!(result.contains("A quiet page."), "round {round}: {read}");
        if code {
            let run = with(ask("run 1+1"), "enable_code_execution", json!(true));
            let run = client().post_chat(run).await.completion();
            let result = &run["agentic_tool_calls"][0]["result_content"];
            assert_eq!(result, "result:\n2", "round {round}: {run}");
        }
    }
    let session = client().get("/v1/sessions/mine").await.json();
    let messages = session["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2 * ROUNDS, "{session}");
}

fn builder(upstream: &ScriptedUpstream) -> Builder {
    let builder = TestApp::builder().upstream(upstream);
    builder.env("GREEDY", GREEDY).env("OTHER", OTHER)
}

#[tokio::test]
async fn a_flood_of_one_key_leaves_another_served() {
    let upstream = ScriptedUpstream::answering(model).await;
    let (slow, quiet) = (pages().await, pages().await);
    let app = builder(&upstream)
        .toml(&format!("{SETTINGS}{TABLES}"))
        .start()
        .await;
    let flood = flood(&app, &format!("http://{}/slow", slow.addr())).await;
    let page = format!("http://localhost:{}/", quiet.addr().port());
    served(&app, &page, false).await;
    let before = flood.refused.load(Ordering::Relaxed);
    eventually("the flood to last", || async {
        (flood.refused.load(Ordering::Relaxed) > before).then_some(())
    })
    .await;
}

/// Where names are asked for and never answered.
const NAME_SERVER: &str = "127.77.0.1";

#[tokio::test]
#[ignore = "needs root, unshare, Python and a host that can isolate it"]
async fn a_flood_of_code_and_names_leaves_another_served() {
    let upstream = ScriptedUpstream::answering(model).await;
    let (slow, quiet) = (pages().await, pages().await);
    let _silent = UdpSocket::bind((NAME_SERVER, 53)).unwrap();
    let mut builder = builder(&upstream).toml(&format!("{SETTINGS}{CODE}{TABLES}{INTERPRETERS}"));
    let names = builder.dir().join("resolv.conf");
    let servers = format!("nameserver {NAME_SERVER}\noptions timeout:30 attempts:2\n");
    std::fs::write(&names, servers).unwrap();
    let binary = env!("CARGO_BIN_EXE_loopwright");
    let script = format!(
        "mount --bind '{}' /etc/resolv.conf && exec '{binary}' \"$@\"",
        names.display()
    );
    let app = builder
        .program("unshare", ["--mount", "sh", "-c", &script, "sh"])
        .start()
        .await;
    let mut flood = flood(&app, &format!("http://{}/slow", slow.addr())).await;
    flood.chats(20, |number| ask(&format!("read4 {number}.example.org")));
    flood.chats(12, |number| {
        let spin = with(
            ask("run while True: pass"),
            "session_id",
            json!(number.to_string()),
        );
        with(spin, "enable_code_execution", json!(true))
    });
    let operator = app.client().key(OTHER);
    eventually("the interpreters to be busy", || async {
        let ready = operator.get("/readyz").await.json();
        (ready["code_execution"]["busy"].as_u64()? >= 2).then_some(())
    })
    .await;
    let page = format!("http://localhost:{}/", quiet.addr().port());
    served(&app, &page, true).await;
}
