//! A database of an earlier version, `database/`, opens and goes on; a fresh one does the very same.
//!
//! `LOOPWRIGHT_WRITE_DATABASE=1 cargo test --test integration golden::database` writes `database/` anew. That is
//! for a version that stores more than the one in the repository, and only after the old one has been read with it.

use std::fs;
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Value, json};

use super::builder;
use super::clients::answered;
use super::record::Golden;
use super::stable::Stable;
use crate::files::{uploaded, uploaded_for};
use crate::support::app::{Builder, TestApp};
use crate::support::ask::{tool, user};
use crate::support::client::Client;
use crate::support::script::{calls, text, text_and_calls};
use crate::support::upstream::{MODEL, ScriptedUpstream};
use crate::support::webhook::{self, Webhook};

/// Asks for `database/` to be written anew.
const WRITE: &str = "LOOPWRIGHT_WRITE_DATABASE";
/// The database and the directory of its files: what the process calls them, and a directory that keeps them.
const NAMES: [(&str, &str); 2] = [
    ("sessions.db", "sessions.sqlite"),
    ("sessions-files", "sessions-files"),
];

/// Where the database of the earlier version lies.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/golden/database")
}

fn server(upstream: &ScriptedUpstream, hook: &Webhook) -> Builder {
    builder()
        .upstream(upstream)
        .dispatch(hook)
        .env("ALICE", "a-key-of-alice-in-this-test")
        .env("BOB", "a-key-of-bob-in-this-test")
        .toml("session_ttl = 0\nmax_result_chars = 2000")
        .toml("[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"")
        .toml("[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"")
}

async fn hook() -> Webhook {
    let made = json!({"content": "made", "files": [{"name": "report.txt", "mime_type": "text/plain", "data": "aGVsbG8="}]});
    Webhook::start()
        .await
        .on("t", webhook::text("server result"))
        .on("long", webhook::text(&"a long result ".repeat(400)))
        .on("make", webhook::json(&made))
}

fn people(app: &TestApp) -> (Client, Client) {
    let client = app.client();
    (
        client.key("a-key-of-alice-in-this-test"),
        client.key("a-key-of-bob-in-this-test"),
    )
}

fn turn(session: &str, messages: Value) -> Value {
    let tools = ["mine", "t", "long", "make"].map(tool).to_vec();
    json!({"model": MODEL, "session_id": session, "messages": messages, "tools": tools, "agent": {"client_tools": ["mine"]}})
}

/// Fills a database with a bit of everything and leaves it to the directory.
async fn write(directory: &Path) {
    let upstream = ScriptedUpstream::start([
        text("Answer 1."),
        text("Answer 2."),
        text_and_calls(
            "Let me look.",
            [("long", json!({})), ("make", json!({"n": 1}))],
        ),
        text("Seen."),
        calls([("t", json!({"n": 2}))]).thinking("Once more."),
        text("Seen again."),
        text_and_calls("Both.", [("mine", json!({"x": 1})), ("t", json!({}))]),
        text("Bob's."),
    ])
    .await;
    let hook = hook().await;
    let mut app = server(&upstream, &hook).start().await;
    let (alice, bob) = people(&app);
    let system = json!({"role": "system", "content": "Be brief."});
    for (id, messages) in [
        ("plain", json!([system, user("Q1")])),
        ("plain", json!([user("Q2")])),
        ("rounds", json!([user("Look")])),
        ("rounds", json!([user("And again")])),
    ] {
        alice.post_chat(turn(id, messages)).await.completion();
    }
    uploaded_for(&alice, "rounds", "of-the-session.txt", b"of the session").await;
    let mut waiting = turn("", json!([user("Go")]));
    waiting.as_object_mut().unwrap().remove("session_id");
    let waiting = alice.post_chat(waiting).await.completion();
    assert_eq!(waiting["choices"][0]["finish_reason"], "tool_calls");
    bob.post_chat(turn("plain", json!([user("Mine?")])))
        .await
        .completion();
    let sources =
        json!([{"index": 1, "sources": [{"number": 1, "url": "https://a.test/", "title": "A"}]}]);
    let imported = json!({
        "created_at": 1_780_000_000, "updated_at": 1_780_000_001,
        "messages": [user("Cite"), {"role": "assistant", "content": "As said [1]."}],
        "agent": {"message_meta": sources},
    });
    let put = alice
        .send(Method::PUT, "/v1/sessions/imported", &imported)
        .await;
    assert_eq!(put.status, 201, "{}", put.text());
    uploaded(&alice, "own.txt", b"own").await;
    // The last connection to close writes everything back into the one file.
    app.terminate().await;
    assert!(app.wait_exit().await.success());
    for (name, as_kept) in NAMES {
        copy(&app.dir().join(name), &directory.join(as_kept));
    }
    for leftover in ["sessions.db-wal", "sessions.db-shm"] {
        assert!(!app.dir().join(leftover).exists(), "{leftover}");
    }
}

/// Starts on a copy of a database, and goes on with everything in it.
async fn goes_on(directory: &Path, name: &str) {
    let answers = [
        "Answer 3.",
        "Answer 2, other words.",
        "Seen for the third time.",
    ];
    let more = ["Done.", "Done.", "Yes."];
    let upstream = ScriptedUpstream::start(answers.into_iter().chain(more).map(text)).await;
    let hook = hook().await;
    let mut server = server(&upstream, &hook);
    for (name, as_kept) in NAMES {
        copy(&directory.join(as_kept), &server.dir().join(name));
    }
    let app = server.start().await;
    let (alice, bob) = people(&app);
    let mut golden = Golden::default();
    let waiting = show(&mut golden, &alice, &bob).await;
    go_on_with_sessions(&mut golden, &alice, &upstream).await;
    answer_waiting_call(&mut golden, &alice, &upstream, &waiting).await;

    golden.heading("another owner");
    let body = turn("plain", json!([user("Still there?")]));
    golden.streamed_chat(&bob, &body).await;
    golden.upstream(&upstream);
    golden.session(&bob, "plain").await;
    let delete = alice.request(Method::DELETE, "/v1/sessions/rounds");
    golden.ask(delete).await;
    golden.get(&alice, "/v1/files").await;
    golden.check_with(name, Stable::without_times());
}

/// Records everything that is stored; gives the id of the session that waits for its client.
async fn show(golden: &mut Golden, alice: &Client, bob: &Client) -> String {
    golden.heading("what is there");
    for client in [alice, bob] {
        golden.get(client, "/v1/sessions").await;
        golden.get(client, "/v1/files").await;
    }
    let ids = ids(&alice.get("/v1/sessions").await.json());
    for id in &ids {
        golden.session(alice, id).await;
    }
    golden.session(bob, "plain").await;
    for id in self::ids(&alice.get("/v1/files").await.json()) {
        golden.get(alice, &format!("/v1/files/{id}/content")).await;
    }
    let waiting = ids.into_iter().find(|id| id.starts_with("sess_"));
    waiting.unwrap()
}

fn ids(list: &Value) -> Vec<String> {
    let entries = list["data"].as_array().unwrap().iter();
    entries
        .map(|entry| entry["id"].as_str().unwrap().to_owned())
        .collect()
}

async fn go_on_with_sessions(golden: &mut Golden, alice: &Client, upstream: &ScriptedUpstream) {
    let said = crate::support::ask::assistant;
    let edited = json!([user("Q1"), said("Answer 1."), user("Q2, edited")]);
    let replayed = json!([
        user("Look"),
        said("Let me look.\n\nSeen."),
        user("And again"),
        said("Seen again."),
        user("And again!"),
    ]);
    for (heading, id, messages) in [
        ("append", "plain", json!([user("Q3")])),
        ("edit", "plain", edited),
        ("replay over hidden rounds", "rounds", replayed),
    ] {
        golden.heading(heading);
        golden.chat(alice, &turn(id, messages)).await;
        golden.upstream(upstream);
        golden.session(alice, id).await;
    }
}

/// The client answers without a session id, twice, as one that repeats its request.
async fn answer_waiting_call(
    golden: &mut Golden,
    alice: &Client,
    upstream: &ScriptedUpstream,
    session: &str,
) {
    golden.heading("the client's answer to the waiting call, twice");
    let stored = alice.get(&format!("/v1/sessions/{session}")).await.json();
    let calls = stored["messages"][1]["tool_calls"].as_array().unwrap();
    let mine = |call: &&Value| call["function"]["name"] == "mine";
    let calls: Vec<Value> = calls.iter().filter(mine).cloned().collect();
    let mut body = turn("", answered(&calls, "Both."));
    body.as_object_mut().unwrap().remove("session_id");
    for _ in 0..2 {
        golden.chat(alice, &body).await;
        golden.upstream(upstream);
    }
    golden.session(alice, session).await;
}

#[tokio::test]
async fn a_database_of_an_earlier_version_goes_on() {
    goes_on(&kept(), "database_goes_on").await;
}

#[tokio::test]
async fn a_database_of_this_version_goes_on_likewise() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path()).await;
    if std::env::var_os(WRITE).is_some() {
        for (_, as_kept) in NAMES {
            copy(&directory.path().join(as_kept), &kept().join(as_kept));
        }
    }
    goes_on(directory.path(), "database_of_this_version_goes_on").await;
}

/// Copies a file or a directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
}
