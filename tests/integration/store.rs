//! The session store as an operator meets it: whose file it is, what a newer schema means, what a locked file stops.

mod full_disk;

use http::Method;
use rusqlite::{Connection, TransactionBehavior};
use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with};
use super::support::script::{calls, text};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};
use super::support::within;

fn in_session(text: &str) -> Value {
    let mut body = ask_with(text, ["t"]);
    body["session_id"] = json!("s");
    body
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_file() {
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let hook = Webhook::start().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let file = app.dir().join("sessions.db");
    let second = TestApp::builder().upstream(&upstream).toml(&format!(
        "session_store = {:?}",
        format!("sqlite:{}", file.display())
    ));
    let ended = second.run("serve").await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let line = ended.stderr.lines().last().unwrap();
    let named = line.contains(file.to_str().unwrap()) && line.contains("--session-store");
    assert!(named && line.contains("in use"), "{line}");
    // The first one goes on, and leaves the file to the next.
    assert_eq!(app.post_chat(in_session("Hi")).await.content(), "Hello.");
    app.restart().await;
    assert_eq!(app.get("/v1/sessions/s").await.status, 200);
}

#[tokio::test]
async fn a_schema_of_a_newer_binary_is_a_configuration_error() {
    let upstream = ScriptedUpstream::start([]).await;
    let mut app = TestApp::with_upstream(&upstream).await;
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0));
    let file = app.dir().join("sessions.db");
    let newer =
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (99, 'of a newer binary', TRUE, x'00', 1)";
    let database = Connection::open(&file).unwrap();
    assert_eq!(database.execute(newer, []).unwrap(), 1);
    drop(database);
    let builder = TestApp::builder().upstream(&upstream);
    let builder = builder.toml(&format!(
        "session_store = {:?}",
        format!("sqlite:{}", file.display())
    ));
    let ended = builder.run("serve").await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let line = ended.stderr.lines().last().unwrap();
    assert!(
        line.contains("schema version 99") && line.contains("sessions.db"),
        "{line}"
    );
}

#[tokio::test]
async fn a_file_that_another_process_has_locked_stops_nothing_but_its_own_writes() {
    let upstream = ScriptedUpstream::answering(|_| text("one two three")).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    app.post_chat(in_session("Hi")).await.completion();
    let mut other = Connection::open(app.dir().join("sessions.db")).unwrap();
    let lock = other
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    // Turns that have to write meanwhile.
    let client = app.client().clone();
    let waiting = tokio::spawn(async move { client.post_chat(in_session("More")).await });
    // What would wait for the lock fails in the end.
    for _ in 0..5 {
        assert_eq!(app.get("/healthz").await.status, 200);
        let (passed, broken) = app.stream_chat(ask("Hi")).await.raw().await;
        let passed = String::from_utf8_lossy(&passed);
        assert!(
            broken.is_none() && passed.ends_with("[DONE]\n\n"),
            "{passed}"
        );
        assert_eq!(app.get("/v1/sessions/s").await.status, 200);
    }
    drop(lock);
    within("the turn that had to wait", waiting)
        .await
        .unwrap()
        .completion();
    app.post_chat(in_session("And more")).await.completion();
    let stored = app.get("/v1/sessions/s").await.json();
    assert_eq!(stored["messages"].as_array().unwrap().len(), 6);
}

/// Where the store of a server is.
fn store_of(app: &mut TestApp) -> String {
    format!("sqlite:{}", app.dir().join("sessions.db").display())
}

#[tokio::test]
async fn new_sessions_are_refused_before_the_disk_is_full_and_others_go_on() {
    let upstream = ScriptedUpstream::answering(|request| {
        let told = request.tool_results();
        match request.messages()[0]["content"] == "Do" && told.is_empty() {
            true => calls([("t", json!({}))]),
            false => text("Hello."),
        }
    })
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let mut roomy = TestApp::with_tools(&upstream, &hook).await;
    roomy.post_chat(in_session("Hi")).await.completion();
    roomy.terminate().await;
    assert_eq!(roomy.wait_exit().await.code(), Some(0));
    // No disk has so much.
    let settings = format!(
        "session_store = {:?}\nmin_free_disk = \"1024000GiB\"",
        store_of(&mut roomy)
    );
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml(&settings).start().await;
    let asked = upstream.requests().len();
    let mut new = in_session("Hi");
    new["session_id"] = json!("new");
    let import = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let fork = json!({"id": "new"});
    let refused = [
        app.post_chat(new).await,
        app.client()
            .send(Method::PUT, "/v1/sessions/new", &import)
            .await,
        app.post("/v1/sessions/s/fork", &fork).await,
    ];
    for answer in refused {
        let message = answer.assert_error(507, Some("storage_full"));
        assert!(
            message.contains("min_free_disk (1099511627776000 bytes)"),
            "{message}"
        );
        assert!(
            message.contains("continue an existing session"),
            "{message}"
        );
        assert_eq!(answer.headers["x-should-retry"], "false");
    }
    assert_eq!(upstream.requests().len(), asked, "no model was called");
    assert_eq!(app.get("/v1/sessions/new").await.status, 404);
    app.post_chat(in_session("More")).await.completion();
    let stored = app.get("/v1/sessions/s").await.json();
    assert_eq!(stored["messages"].as_array().map(Vec::len), Some(4));
    // A turn that would be stored only now goes on without its session, and without the call that needs it.
    let answer = app.post_chat(ask_with("Do", ["t"])).await.completion();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello.");
    assert_eq!(
        answer["agent"]["notices"][0]["kind"], "session_store",
        "{answer}"
    );
    assert_eq!(answer["agentic_tool_calls"][0]["status"], "error");
    assert_eq!(hook.calls().len(), 0);
}

#[tokio::test]
async fn a_turn_that_runs_goes_on_when_the_disk_is_full() {
    let upstream = ScriptedUpstream::answering(|request| {
        let is_long = request.messages()[0]["content"] == "Long";
        match is_long && request.tool_results().is_empty() {
            true => calls([("t", json!({}))]),
            false => text("Fine."),
        }
    })
    .await;
    // The whole text of a result is stored, and the files of the process have no room for it.
    let long = "x".repeat(3 << 20);
    let hook = Webhook::start().await.on("t", webhook::text(&long));
    let limited = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\"";
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder
        .program("/bin/sh", ["-c", limited, env!("CARGO_BIN_EXE_loopwright")])
        .start()
        .await;
    let stream = app.stream_chat(in_session("Long")).await.collect().await;
    assert_eq!(stream.text, "Fine.");
    let notices = stream.notices();
    let full = |notice: &&Value| notice["kind"] == "session_store";
    assert!(notices.iter().any(full), "{}", stream.transcript());
    assert_eq!(stream.phase("complete")[0]["status"], "ok");
    // What was stored before the call ran is there, with the call as one that may have taken effect.
    let stored = app.get("/v1/sessions/s").await.json();
    let messages = stored["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles[..2], ["user", "assistant"], "{stored}");
    // Where there is room, sessions go on.
    let mut short = in_session("Short");
    short["session_id"] = json!("short");
    let answer = app.post_chat(short).await.completion();
    assert!(answer["agent"]["notices"].is_null(), "{answer}");
    let stored = app.get("/v1/sessions/short").await.json();
    assert_eq!(stored["messages"].as_array().map(Vec::len), Some(2));
}
