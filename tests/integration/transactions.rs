//! Operations on long messages and long instructions are written in short transactions, which other writes can run between.

use http::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::ask;
use super::support::script::text;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::Webhook;

/// Most pages that one transaction may write: 2 MiB of new data, and what belongs to them.
const MOST_PAGES: usize = 640;
/// Bytes of a long message or of long instructions; a body may have 32 MiB.
const LONG: usize = 24 << 20;

/// The pages of each transaction in a write-ahead log.
pub(super) fn transactions(log: &[u8]) -> Vec<usize> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let page = number(&log[8..]) as usize;
    let mut transactions = vec![0];
    for frame in log[32..].chunks_exact(24 + page) {
        // The frames of the log before have other salts.
        if frame[8..16] != log[16..24] {
            break;
        }
        *transactions.last_mut().unwrap() += 1;
        // The last one of a transaction has the size of the database.
        if number(&frame[4..]) > 0 {
            transactions.push(0);
        }
    }
    transactions
}

/// Reads the database as long as the connection is open, so that its log is kept.
pub(super) fn keep_log(app: &mut TestApp) -> Connection {
    let reader = Connection::open(app.dir().join("sessions.db")).unwrap();
    reader
        .execute_batch("BEGIN; SELECT * FROM sessions")
        .unwrap();
    reader
}

/// Checks that transactions with at least so many bytes were written, each of them short.
fn check_transactions(app: &mut TestApp, least: usize) {
    let log = std::fs::read(app.dir().join("sessions.db-wal")).unwrap();
    let transactions = transactions(&log);
    let pages: usize = transactions.iter().sum();
    assert!(pages * 4096 > least, "{pages} pages in all");
    let most = transactions.iter().max().unwrap();
    assert!(*most <= MOST_PAGES, "{most} pages in one transaction");
}

/// A text of this many bytes, which differs at every place.
fn digits(bytes: usize) -> String {
    (0..bytes / 8)
        .map(|number| format!("{number:08}"))
        .collect()
}

async fn put(app: &TestApp, session: &str, import: &Value, status: u16) {
    let path = format!("/v1/sessions/{session}");
    let put = app.client().send(Method::PUT, &path, import).await;
    assert_eq!(put.status, status, "{}", put.text());
}

async fn fork(app: &TestApp, source: &str, body: &Value) {
    let fork = app.post(&format!("/v1/sessions/{source}/fork"), body).await;
    assert_eq!(fork.status, 201, "{}", fork.text());
}

/// The messages of a session, instructions included.
async fn messages(app: &TestApp, session: &str) -> Vec<Value> {
    let stored = app.get(&format!("/v1/sessions/{session}")).await.json();
    stored["messages"].as_array().unwrap().clone()
}

#[tokio::test]
async fn no_operation_on_a_long_message_is_one_long_transaction() {
    let upstream = ScriptedUpstream::answering(|_| text("Seen.")).await;
    let hook = Webhook::start().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let _reader = keep_log(&mut app);
    let long = digits(LONG);
    let messages = json!([
        {"role": "user", "content": long},
        {"role": "assistant", "content": "Read."},
    ]);
    let import = json!({ "messages": messages });
    put(&app, "s", &import, 201).await;
    // A turn that is too large for one transaction copies what lies before it; a fork shares it.
    let large = "x".repeat(3 << 20);
    for (session, count) in [("s", 4), ("f", 6)] {
        let mut turn = ask(&large);
        turn["session_id"] = json!(session);
        assert_eq!(app.post_chat(turn).await.content(), "Seen.");
        let stored = app.get(&format!("/v1/sessions/{session}")).await.json();
        assert!(stored["messages"][0] == messages[0]);
        assert_eq!(stored["messages"].as_array().map(Vec::len), Some(count));
        if session == "s" {
            fork(&app, "s", &json!({"id": "f"})).await;
        }
    }
    put(&app, "s", &json!({"messages": []}), 200).await;
    assert_eq!(app.client().delete("/v1/sessions/f").await.status, 200);
    check_transactions(&mut app, 2 * LONG);
}

#[tokio::test]
async fn no_operation_on_long_instructions_is_one_long_transaction() {
    let upstream = ScriptedUpstream::answering(|_| text("Seen.")).await;
    let hook = Webhook::start().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let _reader = keep_log(&mut app);
    let system = |text: &str| json!({"role": "system", "content": text});
    let long = [system(&digits(LONG / 3 * 2)), system(&digits(LONG / 3))];
    let read = [
        json!({"role": "user", "content": "Read it."}),
        json!({"role": "assistant", "content": "Read."}),
    ];
    let all = [&long[..], &read].concat();
    put(&app, "s", &json!({ "messages": all }), 201).await;
    // A short turn, and one that copies what lies before it.
    let turn = async |session: &str, leading: &[Value], text: &str| {
        let mut turn = ask(text);
        turn["session_id"] = json!(session);
        let said = turn["messages"].as_array().unwrap().clone();
        turn["messages"] = Value::Array([leading, &said].concat());
        assert_eq!(app.post_chat(turn).await.content(), "Seen.");
    };
    turn("s", &[], "Go on.").await;
    turn("s", &[], &"x".repeat(3 << 20)).await;
    fork(&app, "s", &json!({"id": "whole"})).await;
    fork(&app, "s", &json!({"id": "part", "before_message": 1})).await;
    turn("whole", &[], "Go on.").await;
    turn("part", &[], "Go on.").await;
    // New instructions in place of those that the forks have too, and of those that nobody else has.
    let other = [system(&digits(LONG).replace('0', "o"))];
    turn("s", &other, "And now?").await;
    turn("s", &[system("Be short.")], "And now?").await;
    turn("s", &other, "And now?").await;
    for (session, instructions, count) in [
        ("s", &other[..], 13),
        ("whole", &long, 10),
        ("part", &long[..1], 3),
    ] {
        let stored = messages(&app, session).await;
        assert!(stored[..instructions.len()] == *instructions, "{session}");
        assert_eq!(stored.len(), count, "{session}");
    }
    put(&app, "s", &json!({"messages": read}), 200).await;
    assert_eq!(app.client().delete("/v1/sessions/whole").await.status, 200);
    assert_eq!(messages(&app, "part").await[0], long[0]);
    assert_eq!(app.client().delete("/v1/sessions/part").await.status, 200);
    check_transactions(&mut app, 3 * LONG);
}
