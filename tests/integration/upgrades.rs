//! Databases of an earlier version, with the schemas 12 of SQLite and 3 of PostgreSQL: this version tells of them what that
//! version told, and goes on with everything in them. A database of this version does the very same.
//!
//! `upgrades/sqlite` and `upgrades/postgres` hold what a process left that was killed while two runs went on, and what
//! its own version told after the next start. With the path of a binary of an earlier version in
//! `LOOPWRIGHT_EARLIER_BINARY`, the tests whose name ends with `likewise` write both anew.

mod going_on;
mod kept;
mod migrated;
mod suspended;
mod told;
mod written;

use std::path::Path;

use serde_json::{Value, json};

use self::kept::{Engine, Kept, KeptSet};
use super::support::app::{Builder, TestApp};
use super::support::ask::tool;
use super::support::client::Client;
use super::support::recorded::Recorded;
use super::support::script::{Reply, calls, text, text_and_calls};
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::webhook::{self, Webhook};

/// Names a binary of an earlier version, which is to write the databases anew.
const EARLIER: &str = "LOOPWRIGHT_EARLIER_BINARY";
/// The header that names a chat of a front end.
const CHAT_HEADER: &str = "x-chat-id";
/// More than fits into any piece that a long text is stored in.
const LONG: usize = 70_000;

/// A model that does what the last message of the user says.
fn model(request: &Recorded) -> Reply {
    let messages = request.messages();
    let from = messages
        .iter()
        .rposition(|message| message["role"] == "user");
    let turn = &messages[from.unwrap()..];
    let rounds = turn
        .iter()
        .filter(|message| message["tool_calls"].is_array())
        .count();
    match (turn[0]["content"].as_str().unwrap(), rounds) {
        ("Look", 0) => text_and_calls(
            "Let me look.",
            [("long", json!({"bytes": 5000})), ("make", json!({"n": 1}))],
        ),
        ("Look closely", 0) => calls([("long", json!({"bytes": LONG}))]),
        ("Look", 1) | ("Never end", 0) => calls([("t", json!({"n": 2}))]).thinking("Once more."),
        ("Never end", 1) => calls([("hang", json!({}))]),
        ("Use both", 0) => text_and_calls("Both.", [("mine", json!({"x": 1})), ("t", json!({}))]),
        ("Say much", _) => text(&long("Much", LONG)),
        (said, _) => {
            let said: String = said.chars().take(40).collect();
            text(&format!("re {said}"))
        }
    }
}

async fn tools() -> Webhook {
    let made = json!({"content": "made", "files": [{"name": "report.txt", "mime_type": "text/plain", "data": "aGVsbG8="}]});
    Webhook::start()
        .await
        .on("t", webhook::text("server result"))
        .on_call("long", |call| {
            let bytes = call.arguments()["bytes"].as_u64().unwrap();
            webhook::text(&long("Result", usize::try_from(bytes).unwrap()))
        })
        .on("make", webhook::json(&made))
        .on("hang", webhook::hang())
}

/// A text of this many bytes whose lines differ, most of it characters of several bytes.
fn long(name: &str, bytes: usize) -> String {
    let lines = (0..).map(|number| format!("{name} {number}: über 10 €, 𝄞𝄞 und ☃☃☃☃☃☃☃☃\n"));
    let mut text = String::new();
    for line in lines {
        if text.len() >= bytes {
            break;
        }
        text += &line;
    }
    text
}

fn server(upstream: &ScriptedUpstream, hook: &Webhook) -> Builder {
    TestApp::builder()
        .upstream(upstream)
        .dispatch(hook)
        .env("ALICE", "a-key-of-alice-in-this-test")
        .env("BOB", "a-key-of-bob-in-this-test")
        .toml("max_result_chars = 2000")
        .toml(&format!("session_headers = [\"{CHAT_HEADER}\"]"))
        .toml("[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"")
        .toml("[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"")
}

fn people(app: &TestApp) -> [Client; 2] {
    let keys = ["a-key-of-alice-in-this-test", "a-key-of-bob-in-this-test"];
    keys.map(|key| app.client().key(key))
}

/// A chat request.
fn turn(session: &str, messages: &Value) -> Value {
    let mut body = nameless(messages);
    body["session_id"] = session.into();
    body
}

/// A chat request without a session.
fn nameless(messages: &Value) -> Value {
    let tools = ["mine", "t", "long", "make", "hang"].map(tool).to_vec();
    json!({"model": MODEL, "messages": messages, "tools": tools, "agent": {"client_tools": ["mine"]}})
}

/// A request of the Responses API.
fn input(input: &Value) -> Value {
    let function = |name| json!({"type": "function", "name": name, "description": "A tool.", "parameters": {"type": "object"}});
    let tools = ["mine", "t", "long", "make", "hang"].map(function).to_vec();
    json!({"model": MODEL, "input": input, "tools": tools, "agent": {"client_tools": ["mine"]}})
}

/// The same in the background.
fn in_background(mut body: Value) -> Value {
    match body.get("input") {
        Some(_) => body["background"] = true.into(),
        None => body["agent"]["background"] = true.into(),
    }
    body
}

/// A chat request and the key that it is repeated under: the first has ended, the second was broken off.
fn repeated() -> [(Value, &'static str); 2] {
    let broken = turn("broken", &json!([{"role": "user", "content": "Never end"}]));
    [
        (
            turn("keyed", &json!([{"role": "user", "content": "Look"}])),
            "held-key",
        ),
        (in_background(broken), "broken-key"),
    ]
}

/// Starts on a kept database, and goes on with everything in it.
async fn goes_on(kept: &Kept) {
    let upstream = ScriptedUpstream::answering(model).await;
    let hook = tools().await;
    let mut app = kept.restored(server(&upstream, &hook)).await.start().await;
    going_on::all(&mut app, &upstream, &kept.told()).await;
}

/// Has a process write a database, kills it, and keeps what it left.
async fn write(engine: Engine, directory: &Path, earlier: Option<&str>) {
    let upstream = ScriptedUpstream::answering(model).await;
    let hook = tools().await;
    let program = |builder: Builder| match earlier {
        Some(path) => builder.program(path, []),
        None => builder,
    };
    let kept = Kept::at(engine, directory);
    let (builder, place) = kept.fresh(server(&upstream, &hook)).await;
    let mut app = told::started(program(builder)).await;
    let ids = written::fill(&app, &hook).await;
    app.kill9().await;
    kept.keep(&mut app, &place, earlier.is_some()).await;
    let builder = kept.restored(server(&upstream, &hook)).await;
    let app = told::started(program(builder)).await;
    let told = told::of(&app, &ids).await;
    kept.keep_told(&ids, &told);
}

async fn of_this_version(engine: Engine) {
    let directory = tempfile::tempdir().unwrap();
    let earlier = std::env::var(EARLIER).ok();
    let directory = match earlier {
        Some(_) => kept::directory(engine, KeptSet::Ended),
        None => directory.path().to_owned(),
    };
    write(engine, &directory, earlier.as_deref()).await;
    goes_on(&Kept::at(engine, &directory)).await;
}

#[tokio::test]
async fn a_file_of_an_earlier_version_goes_on() {
    goes_on(&Kept::of_earlier(Engine::Sqlite, KeptSet::Ended)).await;
}

#[tokio::test]
async fn a_file_of_this_version_goes_on_likewise() {
    of_this_version(Engine::Sqlite).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_database_of_an_earlier_version_goes_on() {
    goes_on(&Kept::of_earlier(Engine::Postgres, KeptSet::Ended)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_database_of_this_version_goes_on_likewise() {
    of_this_version(Engine::Postgres).await;
}
