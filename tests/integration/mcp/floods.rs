//! Servers that send more than anybody asked for.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use serde_json::{Value, json};

use super::far::Far;
use super::sse::SseFake;
use super::{fake, in_state, record, result, start, start_with};
use crate::support::AT_ONCE;
use crate::support::app::TestApp;
use crate::support::ask::{ask, with};
use crate::support::client::Client;
use crate::support::server::{Body, Gate, HttpReply};

const LOCAL: &str = "[mcp_requests]\nprivate = [\"127.0.0.1\"]\n";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\n";
const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";

/// What a server sends again and again on a stream of events.
#[derive(Debug, Clone)]
pub(super) struct Flood {
    frame: Bytes,
    frames: Arc<AtomicUsize>,
    began: Arc<OnceLock<Instant>>,
    gate: Gate,
}

impl Flood {
    fn of(event: &str) -> Self {
        Self {
            frame: event.repeat(16 * 1024 / event.len()).into(),
            frames: Arc::default(),
            began: Arc::default(),
            gate: Gate::new(),
        }
    }

    fn begin(&self) {
        self.began.set(Instant::now()).unwrap();
        self.gate.open();
    }

    fn is_over(&self) -> bool {
        self.began.get().unwrap().elapsed() >= fake::FLOOD
    }

    /// The next frame, at once when it has begun.
    pub(super) async fn frame(&self) -> Bytes {
        self.gate.pass().await;
        if self.is_over() {
            pending::<()>().await;
        }
        tokio::task::yield_now().await;
        self.frames.fetch_add(1, Ordering::SeqCst);
        self.frame.clone()
    }

    pub(super) fn response(self) -> Response<Body> {
        let frames = unfold(self, |flood| async move {
            let bytes = flood.frame().await;
            Some((Ok(Frame::data(bytes)), flood))
        });
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(StreamBody::new(frames).boxed_unsync())
            .unwrap()
    }
}

/// The processor time that the process has used.
fn processor_time(app: &TestApp) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", app.pid())).unwrap();
    // The second field is a name in brackets and may hold blanks; utime and stime are the 14th and 15th.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields = fields.split(' ').skip(11).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
    let a_second = rustix::param::clock_ticks_per_second();
    Duration::from_millis(ticks * 1000 / a_second)
}

/// Measures for a second at a time until the process uses less than two fifths of a core, a slow one as well, but not for as
/// long as a flood lasts.
async fn assert_calm(app: &TestApp, of: &str) {
    const WINDOW: Duration = Duration::from_secs(1);
    let mut used = Vec::new();
    while used.len() < 10 {
        let before = processor_time(app);
        tokio::time::sleep(WINDOW).await;
        let within = processor_time(app) - before;
        used.push(within);
        if within < WINDOW * 2 / 5 {
            return;
        }
    }
    panic!("processor time within seconds of {of}: {used:?}");
}

fn declared(label: &str, url: &str) -> Value {
    json!({"type": "mcp", "server_label": label, "server_url": url, "require_approval": "never"})
}

/// A call of a tool of a server that the request declares: its result.
async fn declared_result(client: &Client, name: &str, server: &Value) -> Value {
    let body = with(ask(&format!("{name} {{}}")), "tools", json!([server]));
    let answer = client.post_chat(body).await.completion();
    answer["agentic_tool_calls"][0]["result_content"].clone()
}

/// The bytes that the processes below a process have written.
fn written_below(pid: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let children = tasks.flatten().filter_map(|task| {
        let children = task.ok()?.path().join("children");
        std::fs::read_to_string(children).ok()
    });
    let children = children.collect::<Vec<_>>().join(" ");
    let written = children.split_whitespace().map(|child| {
        let counts = std::fs::read_to_string(format!("/proc/{child}/io")).unwrap_or_default();
        let line = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
        let own = line.and_then(|line| line.parse::<u64>().ok());
        own.unwrap_or_default() + written_below(child)
    });
    written.sum()
}

/// Waits until no more is read within a second than the pace allows, but not for as long as a flood lasts.
async fn assert_paced(app: &TestApp, of: &str) {
    // Lists that the server announces are asked for, and read in between.
    const MOST: u64 = 4_000_000;
    let pid = app.pid().to_string();
    let mut read = Vec::new();
    while read.len() < 10 {
        let before = written_below(&pid);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let within = written_below(&pid).saturating_sub(before);
        read.push(within);
        if within > 0 && within < MOST {
            return;
        }
    }
    panic!("bytes of {of} that were read within seconds: {read:?}");
}

#[tokio::test]
async fn processes_that_flood_are_read_at_a_pace() {
    for mode in ["noise_flood", "notice_flood", "log_flood"] {
        let toml = fake::server("flood", mode, "") + &fake::server("fake", "", "");
        let (app, _upstream) = start(&toml).await;
        for name in ["flood", "fake"] {
            in_state(app.client(), name, "ready").await;
        }
        assert_paced(&app, mode).await;
        for name in ["fake", "flood"] {
            let tool = format!("{name}__echo");
            let echoed = result(app.client(), &tool, json!({"text": "x"})).await;
            assert_eq!(echoed, "x", "{mode}: {name}");
        }
        let state = result(app.client(), "flood__flood", json!({})).await;
        assert_eq!(state, "on", "{mode}");
    }
}

#[tokio::test]
async fn kept_connections_that_flood_take_no_processor_time() {
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
    let log = format!("data: {log}\n\n");
    for event in [
        &log,
        ": nothing that anybody would want to know\n",
        "data: 1\n\n",
    ] {
        let (far, old, quiet) = (
            Far::start().await,
            SseFake::start().await,
            Far::start().await,
        );
        let toml = format!("{LOCAL}{KEYS}");
        let keys = start_with(&toml, |builder| builder.env("ALICE", ALICE).env("BOB", BOB));
        let (app, _upstream) = keys.await;
        let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
        for url in [far.url(), old.url()] {
            let flood = Flood::of(event);
            far.state.lock().flood = Some(flood.clone());
            old.flood(flood.clone());
            let server = declared("loud", &url);
            assert_eq!(
                declared_result(&alice, "loud__echo", &server).await,
                "echoed"
            );
            flood.begin();
            assert_calm(&app, &format!("{event:?} of {url}")).await;
            let server = declared("quiet", &quiet.url());
            assert_eq!(
                declared_result(&bob, "quiet__echo", &server).await,
                "echoed"
            );
            // The stream of the older transport has the answer too, behind the flood.
            if url == far.url() {
                let server = declared("loud", &url);
                assert_eq!(
                    declared_result(&alice, "loud__echo", &server).await,
                    "echoed"
                );
            }
            let frames = flood.frames.load(Ordering::SeqCst);
            assert!(
                frames > 0 && !flood.is_over(),
                "{event:?} of {url}: {frames}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_that_says_much_within_a_call_is_read_at_once() {
    let mut events: String = (0..2000)
        .map(|number| {
            let params = json!({"level": "info", "data": format!("line {number}")});
            let log =
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
            format!("data: {log}\n\n")
        })
        .collect();
    let far = Far::start().await;
    let said = json!({"jsonrpc": "2.0", "id": "ID", "result": {"content": [{"type": "text", "text": "talked"}]}});
    events += &format!("data: {said}\n\n").replace("\"ID\"", "ID");
    let reply = HttpReply::whole(200, "text/event-stream", events);
    far.state.lock().calls.insert("more_0".to_owned(), reply);
    far.state.lock().more_tools = 1;
    let toml = format!(
        "{}[mcp_servers.far]\nurl = \"{}\"\n",
        fake::server("fake", "", ""),
        far.url()
    );
    let (app, _upstream) = start(&toml).await;
    for name in ["far__more_0", "fake__chatty"] {
        let began = Instant::now();
        // Again and again: what a call says is no debt of the next one.
        for _ in 0..5 {
            let call = record(app.client(), name, json!({})).await;
            assert_eq!(call["result_content"], "talked", "{name}: {call}");
        }
        assert!(began.elapsed() < AT_ONCE, "{name}: {:?}", began.elapsed());
    }
}
