//! `loopwright store copy`: a SQLite store moves to PostgreSQL and back, with everything in it.

use std::path::Path;
use std::process::Stdio;

use http::Method;
use sqlx::{Connection, Executor, PgConnection};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::*;
use crate::files::{content_path, uploaded, uploaded_for};
use crate::support::app::Ended;
use crate::support::ask::{assistant, user};
use crate::support::fault_proxy::{FaultProxy, Network};
use crate::support::upstream::MODEL;
use crate::support::within;

/// What stands for the password in URLs of the proxy.
const PASSWORD: &str = "s3cret-word";

fn command(from: &Path, database: &str) -> Command {
    copying(&format!("sqlite:{}", from.display()), database)
}

fn copying(from: &str, to: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loopwright"));
    command.args(["store", "copy", from, to]);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn copy(from: &Path, database: &str) -> Ended {
    ended(command(from, database)).await
}

async fn ended(mut command: Command) -> Ended {
    let ended = within("a copy", command.output()).await;
    let ended = ended.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let copied = Ended {
        code: ended.status.code(),
        stdout: text(ended.stdout),
        stderr: text(ended.stderr),
    };
    for said in [&copied.stdout, &copied.stderr] {
        assert!(!said.contains(PASSWORD), "{said}");
    }
    copied
}

/// A copy that fails; gives what it says.
async fn refused(from: &Path, database: &str) -> String {
    let copied = copy(from, database).await;
    assert_eq!(copied.code, Some(1), "{copied:?}");
    assert_eq!(copied.stdout, "");
    copied.stderr
}

async fn on_sqlite(upstream: &ScriptedUpstream, hook: &Webhook) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    // Named, so that it is this store whatever the tests run with.
    builder
        .toml("session_store = \"sqlite:sessions.db\"")
        .start()
        .await
}

async fn on_copy(
    upstream: &ScriptedUpstream,
    hook: &Webhook,
    source: &mut TestApp,
    database: &str,
) -> TestApp {
    let files = source.dir().join("sessions-files");
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    builder
        .toml(&format!("files_dir = {files:?}"))
        .env("LOOPWRIGHT_SESSION_STORE", database)
        .start()
        .await
}

async fn stop(app: &mut TestApp) -> std::path::PathBuf {
    app.terminate().await;
    assert!(app.wait_exit().await.success());
    app.dir().join("sessions.db")
}

pub(crate) fn turn(session: &str, content: &str) -> Value {
    let body = with(
        ask_with(content, ["t", "long", "make", "mine"]),
        "session_id",
        json!(session),
    );
    with(body, "agent", json!({"client_tools": ["mine"]}))
}

/// A model that calls the tools that the user names.
pub(crate) fn obedient(request: &Recorded) -> Reply {
    let messages = request.messages();
    let last = messages.last().unwrap();
    if last["role"] != "user" {
        return text(&format!("Done with {} messages.", messages.len()));
    }
    match last["content"].as_str().unwrap() {
        "long and make" => calls([("long", json!({})), ("make", json!({"n": 1}))]),
        "mine" => calls([("t", json!({})), ("mine", json!({"x": 1}))]),
        "t" => calls([("t", json!({}))]),
        other => text(&format!("re {other}")),
    }
}

pub(crate) async fn tools() -> Webhook {
    let made = json!({"content": "made", "files": [{"name": "report.txt", "mime_type": "text/plain", "data": "aGVsbG8="}]});
    let hook = Webhook::start().await.on("t", webhook::text("r\u{0}x"));
    // Longer than a row of SQLite.
    let long = webhook::text(&"a long result ".repeat(20_000));
    hook.on("long", long).on("make", webhook::json(&made))
}

/// Everything that can be read, by path.
pub(crate) async fn everything(client: &Client, runs: &[String]) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    let sessions = client.get("/v1/sessions?limit=100").await.json();
    let ids = sessions["data"].as_array().unwrap().iter();
    let paths: Vec<String> = ids
        .map(|session| format!("/v1/sessions/{}", session["id"].as_str().unwrap()))
        .collect();
    found.push(("sessions".to_owned(), sessions));
    let runs = runs.iter().map(|run| format!("/v1/chat/completions/{run}"));
    for path in paths.into_iter().chain(runs) {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        found.push((path, answer.json()));
    }
    let files = client.get("/v1/files?limit=100").await.json();
    for file in files["data"].as_array().unwrap() {
        let path = content_path(file);
        let content = client.get(&path).await;
        assert_eq!(content.status, 200, "{path}");
        found.push((path, content.text().into()));
    }
    found.push(("files".to_owned(), files));
    found
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_store_moves_to_postgresql_with_everything_in_it() {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let mut source = on_sqlite(&upstream, &hook).await;
    let client = source.client().clone();
    let mut runs = Vec::new();
    let mut ask = async |session: &str, content: &str| {
        let done = client.post_chat(turn(session, content)).await.completion();
        runs.push(done["id"].as_str().unwrap().to_owned());
        done
    };
    ask("named", "long and make").await;
    ask("named", "t").await;
    let waiting = ask("waiting", "mine").await;
    assert_eq!(waiting["choices"][0]["finish_reason"], "tool_calls");
    // Enough for a fork to share its messages.
    let system = json!({"role": "system", "content": "Be brief."});
    let said = (0..200).map(|number| match number % 2 {
        0 => user(&format!("question {number}")),
        _ => assistant(&"x".repeat(3000)),
    });
    let messages: Vec<Value> = std::iter::once(system).chain(said).collect();
    let import = json!({"messages": messages});
    let put = client.send(Method::PUT, "/v1/sessions/imported", &import);
    assert_eq!(put.await.status, 201);
    for (from, to, before) in [("imported", "fork", 151), ("fork", "fork-2", 90)] {
        let fork = json!({"id": to, "before_message": before});
        let path = format!("/v1/sessions/{from}/fork");
        assert_eq!(client.post(&path, &fork).await.status, 201);
    }
    ask("fork", "t").await;
    uploaded(&client, "own.txt", b"own").await;
    uploaded_for(&client, "named", "of-the-session.txt", b"of the session").await;
    let gone = client.send(Method::PUT, "/v1/sessions/gone", &import).await;
    assert_eq!(gone.status, 201);
    client.delete("/v1/sessions/gone").await;
    let keyed = client.header("idempotency-key", "k");
    let once = keyed.post_chat(turn("named", "once")).await.completion();

    let before = everything(&client, &runs).await;
    let file = stop(&mut source).await;
    let database = PostgresServer::shared().create_database().await;
    let copied = copy(&file, &database).await;
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let rows = |table: &str| {
        let line = copied
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(table));
        let line = line.unwrap_or_else(|| panic!("no {table} in {copied:?}"));
        let number = line.trim_start_matches(": ").split(' ').next().unwrap();
        number.parse::<usize>().unwrap()
    };
    assert_eq!(rows("sessions"), 5);
    let stored = |path: &&(String, Value)| path.0.starts_with("/v1/sessions/");
    let messages = before.iter().filter(stored);
    let messages = messages.map(|(_, session)| session["messages"].as_array().unwrap().len());
    assert_eq!(rows("messages"), messages.sum::<usize>());
    assert_eq!((rows("client_calls"), rows("files")), (1, 3));
    assert_eq!((rows("runs"), rows("idempotency_keys")), (5, 1));
    assert!(
        copied.stderr.contains("copying messages: 0 of "),
        "{copied:?}"
    );

    let app = on_copy(&upstream, &hook, &mut source, &database).await;
    for ((path, expected), (_, found)) in before.iter().zip(everything(app.client(), &runs).await) {
        assert_eq!(*expected, found, "{path}");
    }
    let (asked, done) = (upstream.requests().len(), hook.calls().len());
    let keyed = app.client().header("idempotency-key", "k");
    let again = keyed.post_chat(turn("named", "once")).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.completion(), once);
    assert_eq!(
        (upstream.requests().len(), hook.calls().len()),
        (asked, done)
    );
    // What waits for its client goes on, and new rows find numbers of their own.
    let call = &waiting["choices"][0]["message"]["tool_calls"][0];
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "of the client"});
    let body = json!({"model": MODEL, "messages": [result]});
    let answer = app.post_chat(body).await.content();
    assert_eq!(answer, "Done with 4 messages.");
    let answer = app.post_chat(turn("new", "t")).await.content();
    assert_eq!(answer, "Done with 3 messages.");
    uploaded(app.client(), "new.txt", b"new").await;

    let again = refused(&file, &database).await;
    assert!(again.contains("a finished copy of this store"), "{again}");
    assert_eq!(app.get("/v1/sessions/new").await.status, 200);
    let found = everything(app.client(), &runs).await;

    // And back into a file, once nobody serves from the database.
    let back = source.dir().join("back.db");
    let target = format!("sqlite:{}", back.display());
    let busy = ended(copying(&database, &target)).await;
    assert_eq!(busy.code, Some(1), "{busy:?}");
    assert!(busy.stderr.contains("is in use by another"), "{busy:?}");
    let mut app = app;
    app.terminate().await;
    assert!(app.wait_exit().await.success());
    let mut returning = copying("-", &target);
    returning.env("LOOPWRIGHT_SESSION_STORE", &database);
    let copied = ended(returning).await;
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let again = ended(copying(&database, &target)).await;
    assert!(
        again.stderr.contains("a finished copy of this store"),
        "{again:?}"
    );
    let app = on_copy(&upstream, &hook, &mut source, &target).await;
    for ((path, expected), (_, found)) in found.iter().zip(everything(app.client(), &runs).await) {
        assert_eq!(*expected, found, "{path}");
    }
    let answer = app.post_chat(turn("new", "t")).await.content();
    assert_eq!(answer, "Done with 7 messages.");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_wrong_clock_before_a_copy_makes_nothing_expire_after_it() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = tools().await;
    let mut source = on_sqlite(&upstream, &hook).await;
    source.post_chat(in_session("Go")).await.completion();
    let file = stop(&mut source).await;
    let years = 10 * 365 * 24 * 3600 * 1_000_000_i64;
    let written = rusqlite::Connection::open(&file).unwrap();
    let sql = "UPDATE sessions SET updated_at = updated_at + ?1";
    assert_eq!(written.execute(sql, [years]).unwrap(), 1);
    drop(written);
    let database = PostgresServer::shared().create_database().await;
    let copied = copy(&file, &database).await;
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let mut connection = PgConnection::connect(&database).await.unwrap();
    let ahead = "SELECT trusted - micros_1() FROM expiry_time";
    let ahead: i64 = sqlx::query_scalar(ahead)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(ahead < 60_000_000, "{ahead}");
    // The same of a backup of the copy.
    let backup = source.dir().join("backup.db");
    let ended = Command::new(env!("CARGO_BIN_EXE_loopwright"))
        .args(["store", "backup"])
        .arg(&backup)
        .env("LOOPWRIGHT_SESSION_STORE", &database)
        .output();
    let ended = within("a backup", ended).await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let kept = rusqlite::Connection::open(&backup).unwrap();
    let read = |sql: &str| kept.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let (trusted, newest) = (
        read("SELECT trusted FROM expiry_time"),
        read("SELECT max(updated_at) FROM sessions"),
    );
    assert!(newest - trusted > years / 2, "{trusted} {newest}");
}

/// A stopped store with about 10 MB of messages.
async fn large_store(
    upstream: &ScriptedUpstream,
    hook: &Webhook,
) -> (TestApp, Vec<(String, Value)>) {
    let source = on_sqlite(upstream, hook).await;
    let mut runs = Vec::new();
    for number in 0..4 {
        let messages: Vec<Value> = (0..40)
            .map(|message| user(&format!("{number}.{message} {}", "x".repeat(64_000))))
            .collect();
        let path = format!("/v1/sessions/s{number}");
        let import = json!({"messages": messages});
        let put = source.client().send(Method::PUT, &path, &import).await;
        assert_eq!(put.status, 201);
    }
    let done = source.post_chat(turn("s", "t")).await.completion();
    runs.push(done["id"].as_str().unwrap().to_owned());
    let found = everything(source.client(), &runs).await;
    (source, found)
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_copy_that_was_killed_goes_on_and_doubles_nothing() {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let (mut source, before) = large_store(&upstream, &hook).await;
    let file = stop(&mut source).await;
    let database = PostgresServer::shared().create_database().await;
    let proxy = FaultProxy::start(&database).await;
    let said = part_of(&file, &proxy).await;
    assert!(
        said.contains("copying messages: 0 of 164") && !said.contains("client_calls"),
        "{said}"
    );
    assert!(!said.contains(PASSWORD), "{said}");
    // Nobody serves half of a store.
    let builder = TestApp::builder().upstream(&upstream);
    let builder = builder.env("LOOPWRIGHT_SESSION_STORE", &database);
    let ended = builder.run("serve").await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("a store is being copied into"),
        "{}",
        ended.stderr
    );
    // And no other store goes into it.
    let mut other = on_sqlite(&upstream, &hook).await;
    let refused = refused(&stop(&mut other).await, &database).await;
    assert!(refused.contains("data of another store"), "{refused}");

    let copied = copy(&file, proxy.url()).await;
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let line = copied
        .stderr
        .lines()
        .find(|line| line.contains("copying messages"));
    let line = line.unwrap();
    assert!(
        line.ends_with(" of 164 rows") && !line.contains(": 0 of"),
        "{line}"
    );
    assert!(copied.stdout.contains("messages: 164 rows"), "{copied:?}");
    let app = on_copy(&upstream, &hook, &mut source, &database).await;
    let runs = before
        .iter()
        .filter_map(|(path, _)| path.strip_prefix("/v1/chat/completions/"));
    let runs: Vec<String> = runs.map(ToOwned::to_owned).collect();
    for ((path, expected), (_, found)) in before.iter().zip(everything(app.client(), &runs).await) {
        assert_eq!(*expected, found, "{path}");
    }
}

/// Copies some of the messages, and kills the copy; gives what it had said.
async fn part_of(file: &Path, proxy: &FaultProxy) -> String {
    proxy.silent_after(5 * 1024 * 1024);
    let mut copying = command(file, proxy.url());
    let mut copying = copying.stderr(Stdio::piped()).spawn().unwrap();
    proxy.silent().await;
    copying.start_kill().unwrap();
    within("the end of the copy", copying.wait()).await.unwrap();
    let mut said = String::new();
    let mut stderr = copying.stderr.take().unwrap();
    stderr.read_to_string(&mut said).await.unwrap();
    proxy.set(Network::Whole);
    said
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_copy_whose_sides_differ_is_never_served() {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let (mut source, _) = large_store(&upstream, &hook).await;
    let file = stop(&mut source).await;
    let [database, other] = [(); 2].map(|()| PostgresServer::shared().create_database());
    let (database, other) = tokio::join!(database, other);
    for database in [&database, &other] {
        part_of(&file, &FaultProxy::start(database).await).await;
    }
    let mut connection = PgConnection::connect(&database).await.unwrap();
    let deleted = connection.execute("DELETE FROM messages WHERE seq = 3");
    let deleted = deleted.await.unwrap().rows_affected();
    assert!(deleted > 0);
    let said = refused(&file, &database).await;
    let rows = format!(
        "messages differs: 164 rows in the source, {}",
        164 - deleted
    );
    assert!(said.contains(&rows), "{said}");

    source.restart().await;
    let import = json!({"messages": [user("other words")]});
    let put = source
        .client()
        .send(Method::PUT, "/v1/sessions/s0", &import);
    assert_eq!(put.await.status, 200);
    stop(&mut source).await;
    let said = refused(&file, &other).await;
    assert!(said.contains("the source was used after"), "{said}");
    for database in [&database, &other] {
        let builder = TestApp::builder().upstream(&upstream);
        let builder = builder.env("LOOPWRIGHT_SESSION_STORE", database);
        assert_eq!(builder.run("serve").await.code, Some(1));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn stores_that_are_in_use_are_not_copied() {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let mut source = on_sqlite(&upstream, &hook).await;
    source.post_chat(turn("s", "t")).await.completion();
    let database = PostgresServer::shared().create_database().await;
    let file = source.dir().join("sessions.db");
    let said = refused(&file, &database).await;
    assert!(said.contains("sessions.db is in use"), "{said}");
    let said = refused(&file.with_file_name("none.db"), &database).await;
    assert!(said.contains("there is no SQLite store"), "{said}");
    assert!(!file.with_file_name("none.db").exists());
    stop(&mut source).await;

    let mut target = replica(&upstream, &hook, &database).await;
    let said = refused(&file, &database).await;
    assert!(
        said.contains("a loopwright process uses postgres:"),
        "{said}"
    );
    // It goes on, and what it stores is not copied over.
    target.post_chat(turn("own", "t")).await.completion();
    let said = refused(&file, &database).await;
    assert!(said.contains("data of another store"), "{said}");
    target.restart().await;
    target.terminate().await;
    assert!(target.wait_exit().await.success());
    let said = refused(&file, &database).await;
    assert!(said.contains("data of another store"), "{said}");

    let proxy = FaultProxy::start(&database).await;
    proxy.set(Network::Refused);
    let said = refused(&file, proxy.url()).await;
    assert!(said.contains("start the same copy again"), "{said}");
}
