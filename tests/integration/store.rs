//! The session store as an operator meets it: whose file it is, what a newer schema means, what a locked file stops.

use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with};
use super::support::script::text;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};
use super::support::within;

/// How long another process holds the lock of the file.
const LOCKED: Duration = Duration::from_secs(3);
/// Longest answer of what must not wait for the lock.
const AT_ONCE: Duration = Duration::from_secs(1);

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
    let locked = Instant::now();
    // Turns that have to write meanwhile.
    let client = app.client().clone();
    let waiting = tokio::spawn(async move { client.post_chat(in_session("More")).await });
    let mut rounds = 0;
    while locked.elapsed() < LOCKED {
        let asked = Instant::now();
        assert_eq!(app.get("/healthz").await.status, 200);
        let (passed, broken) = app.stream_chat(ask("Hi")).await.raw().await;
        let passed = String::from_utf8_lossy(&passed);
        assert!(
            broken.is_none() && passed.ends_with("[DONE]\n\n"),
            "{passed}"
        );
        assert_eq!(app.get("/v1/sessions/s").await.status, 200);
        assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
        rounds += 1;
    }
    assert!(rounds >= 3, "only {rounds} rounds in {LOCKED:?}");
    drop(lock);
    within("the turn that had to wait", waiting)
        .await
        .unwrap()
        .completion();
    app.post_chat(in_session("And more")).await.completion();
    let stored = app.get("/v1/sessions/s").await.json();
    assert_eq!(stored["messages"].as_array().unwrap().len(), 6);
}
