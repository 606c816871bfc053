//! `loopwright store backup`: what it copies while a server runs, and how a copy is put back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::files::{uploaded, uploaded_for};
use crate::replicas::copied::{everything, obedient, tools, turn};
use crate::support::app::{Builder, Ended, TestApp};
use crate::support::client::Client;
use crate::support::postgres::PostgresServer;
use crate::support::script::text;
use crate::support::storage::Storage;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::Webhook;
use crate::support::{eventually, within};

/// Turns that run at once.
const TURNS: usize = 20;

/// How a store is named.
enum Engine {
    Sqlite,
    Postgres(String),
}

impl Engine {
    async fn postgres() -> Self {
        Self::Postgres(PostgresServer::shared().create_database().await)
    }

    fn url(&self) -> &str {
        match self {
            Self::Sqlite => "sqlite:sessions.db",
            Self::Postgres(url) => url,
        }
    }

    async fn start(&self, upstream: &ScriptedUpstream, hook: &Webhook) -> TestApp {
        let builder = TestApp::builder().upstream(upstream).dispatch(hook);
        builder
            .env("LOOPWRIGHT_SESSION_STORE", self.url())
            .start()
            .await
    }
}

/// Runs a command line as a shell does, in the directory of an app.
async fn shell(app: &mut TestApp, lines: &str, store: &str) -> Ended {
    let binary = Path::new(env!("CARGO_BIN_EXE_loopwright"));
    let folders = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let mut command = Command::new("/bin/sh");
    command
        .args(["-e", "-c", lines])
        .current_dir(app.dir())
        .env_clear()
        .env("PATH", folders)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if !store.is_empty() {
        command.env("LOOPWRIGHT_SESSION_STORE", store);
    }
    let ended = within(lines, command.output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended {
        code: ended.status.code(),
        stdout: text(ended.stdout),
        stderr: text(ended.stderr),
    }
}

/// Makes a backup with the settings of an app, and returns what the command has printed.
async fn backed_up(app: &mut TestApp, engine: &Engine, arguments: &str) -> String {
    let line = format!("loopwright store backup {arguments} --config loopwright.toml");
    let ended = shell(app, &line, engine.url()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

/// A number that the command has printed.
fn printed(said: &str, name: &str) -> u64 {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let line = line.unwrap_or_else(|| panic!("no {name} in {said}"));
    let number = line.split([' ', ',', ';']).next();
    number.unwrap().parse().unwrap()
}

/// A server on a backup in a directory of its own.
async fn restored(upstream: &ScriptedUpstream, hook: &Webhook, backup: &Path) -> TestApp {
    let mut builder = TestApp::builder().upstream(upstream).dispatch(hook);
    let directory = builder.dir().to_owned();
    std::fs::copy(backup, directory.join("sessions.db")).unwrap();
    let files = backup.with_extension("");
    let files = format!("{}-files", files.display());
    if Path::new(&files).is_dir() {
        let target = directory.join("sessions-files");
        let mut copy = std::process::Command::new("cp");
        assert!(
            copy.arg("-R")
                .args([files.into(), target])
                .status()
                .unwrap()
                .success()
        );
    }
    builder
        .toml("session_store = \"sqlite:sessions.db\"")
        .start()
        .await
}

/// Turns that were answered, by session, in their order.
type Acknowledged = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// Asks for one turn after another in a session until it is told to stop.
async fn keep_asking(client: Client, session: String, done: Acknowledged, stop: Arc<AtomicBool>) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let content = format!("{session} {number}");
        let answer = client.post_chat(turn(&session, &content)).await;
        assert_eq!(answer.content(), format!("re {content}"));
        let mut done = done.lock();
        done.entry(session.clone()).or_default().push(content);
    }
}

async fn nothing_that_was_answered_is_missing(engine: Engine) {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let mut app = engine.start(&upstream, &hook).await;
    let (done, stop) = (Acknowledged::default(), Arc::new(AtomicBool::new(false)));
    let mut asking = JoinSet::new();
    for number in 0..TURNS {
        let (client, done, stop) = (app.client().clone(), done.clone(), stop.clone());
        asking.spawn(keep_asking(client, format!("s{number}"), done, stop));
    }
    let answered = || done.lock().values().map(Vec::len).sum::<usize>();
    eventually("two turns of each session", || async {
        (answered() >= 2 * TURNS).then_some(())
    })
    .await;
    let before = done.lock().clone();
    let said = backed_up(&mut app, &engine, "first.db").await;
    assert!(!said.contains("files"), "there are none: {said}");
    assert_eq!(printed(&said, "sessions"), before.len() as u64, "{said}");
    let count = answered();
    eventually("turns after the backup", || async {
        (answered() > count + TURNS).then_some(())
    })
    .await;
    let later = done.lock().clone();
    backed_up(&mut app, &engine, "second.db").await;
    stop.store(true, Ordering::Relaxed);
    asking.join_all().await;

    for (backup, before) in [("first.db", before), ("second.db", later)] {
        let backup = app.dir().join(backup);
        let copy = restored(&upstream, &hook, &backup).await;
        for (session, turns) in before {
            let stored = copy.get(&format!("/v1/sessions/{session}")).await.json();
            let messages = stored["messages"].as_array().unwrap();
            let contents: Vec<&str> = messages
                .iter()
                .map(|message| message["content"].as_str().unwrap())
                .collect();
            let expected: Vec<String> = turns
                .iter()
                .flat_map(|turn| [turn.clone(), format!("re {turn}")])
                .collect();
            assert_eq!(contents[..expected.len()], expected, "{session}");
            // The session goes on.
            let answer = copy.post_chat(turn(&session, "after")).await;
            assert_eq!(answer.content(), "re after");
        }
    }
}

#[tokio::test]
async fn nothing_that_was_answered_before_a_backup_of_sqlite_is_missing_in_it() {
    nothing_that_was_answered_is_missing(Engine::Sqlite).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn nothing_that_was_answered_before_a_backup_of_postgresql_is_missing_in_it() {
    nothing_that_was_answered_is_missing(Engine::postgres().await).await;
}

/// Sessions, long texts, forks, files, answers and calls that wait for their client; returns the runs.
async fn filled(client: &Client) -> Vec<String> {
    let mut runs = Vec::new();
    let mut waiting = Value::Null;
    for (session, content) in [
        ("named", "long and make"),
        ("named", "t"),
        ("waiting", "mine"),
    ] {
        waiting = client.post_chat(turn(session, content)).await.completion();
        runs.push(waiting["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(waiting["choices"][0]["finish_reason"], "tool_calls");
    let messages: Vec<Value> = (0..200)
        .map(|number| match number % 2 {
            0 => json!({"role": "user", "content": format!("question {number}\u{0}")}),
            _ => json!({"role": "assistant", "content": "x".repeat(3000)}),
        })
        .collect();
    let system = json!({"role": "system", "content": "Be brief. ".repeat(3000)});
    let messages: Vec<Value> = std::iter::once(system).chain(messages).collect();
    let import = json!({"messages": messages});
    let put = client.send(http::Method::PUT, "/v1/sessions/imported", &import);
    assert_eq!(put.await.status, 201);
    let fork = json!({"id": "fork", "before_message": 151});
    assert_eq!(
        client
            .post("/v1/sessions/imported/fork", &fork)
            .await
            .status,
        201
    );
    uploaded(client, "own.txt", b"own").await;
    uploaded_for(client, "named", "of-the-session.txt", b"of the session").await;
    runs
}

/// Makes a backup of what [`filled`] has made, and checks what the command says of it.
async fn checked_backup(app: &mut TestApp, engine: &Engine) -> PathBuf {
    let said = backed_up(app, engine, "backup.db --files").await;
    assert_eq!(printed(&said, "sessions"), 4, "{said}");
    assert_eq!(printed(&said, "files"), 3, "{said}");
    assert!(printed(&said, "rows") > 200, "{said}");
    let backup = app.dir().join("backup.db");
    let bytes = std::fs::metadata(&backup).unwrap().len();
    assert_eq!(printed(&said, "bytes"), bytes, "{said}");
    assert!(!said.contains("without content"), "{said}");
    backup
}

fn assert_same(expected: &[(String, Value)], found: &[(String, Value)]) {
    for ((path, expected), (_, found)) in expected.iter().zip(found) {
        assert_eq!(expected, found, "{path}");
    }
    assert_eq!(expected.len(), found.len());
}

async fn a_backup_has_everything(engine: Engine) {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let mut app = engine.start(&upstream, &hook).await;
    let runs = filled(app.client()).await;
    let keyed = app.client().header("idempotency-key", "k");
    let once = keyed.post_chat(turn("named", "once")).await.completion();
    let before = everything(app.client(), &runs).await;

    let backup = checked_backup(&mut app, &engine).await;
    let mut copy = restored(&upstream, &hook, &backup).await;
    assert_same(&before, &everything(copy.client(), &runs).await);
    let asked = upstream.requests().len();
    let keyed = copy.client().header("idempotency-key", "k");
    let again = keyed.post_chat(turn("named", "once")).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.completion(), once);
    assert_eq!(upstream.requests().len(), asked);
    uploaded(copy.client(), "new.txt", b"new").await;
    let answer = copy.post_chat(turn("fork", "t")).await.content();
    assert!(answer.starts_with("Done with"), "{answer}");
    let gone = copy.client().delete("/v1/sessions/imported").await;
    assert_eq!(gone.status, 200);

    // A backup of the backup has what the copy has.
    let found = everything(copy.client(), &runs).await;
    backed_up(&mut copy, &Engine::Sqlite, "again.db --files").await;
    let third = restored(&upstream, &hook, &copy.dir().join("again.db")).await;
    assert_eq!(everything(third.client(), &runs).await, found);
}

#[tokio::test]
async fn a_backup_of_sqlite_has_everything() {
    a_backup_has_everything(Engine::Sqlite).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_backup_of_postgresql_has_everything() {
    a_backup_has_everything(Engine::postgres().await).await;
}

#[tokio::test]
#[cfg_attr(not(feature = "s3"), ignore = "needs the feature")]
async fn files_in_object_storage_are_copied_into_a_directory() {
    let storage = Storage::start().await;
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let builder = standalone(&upstream, &hook, "sqlite:sessions.db");
    let mut app = storage.keep_files(builder).start().await;
    let runs = filled(app.client()).await;
    let before = everything(app.client(), &runs).await;
    // The variables of the storage, as the server has them.
    let environ = std::fs::read_to_string(format!("/proc/{}/environ", app.pid())).unwrap();
    let variables: String = environ
        .split('\0')
        .filter(|variable| variable.starts_with("AWS_"))
        .map(|variable| format!("export '{variable}'\n"))
        .collect();
    let line = format!(
        "{variables}loopwright store backup backup.db --files --config loopwright.toml --files-dir s3://files/some/prefix"
    );
    let ended = shell(&mut app, &line, "").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(printed(&ended.stdout, "files"), 3, "{ended:?}");
    assert_eq!(storage.keys().len(), 3);
    let copy = restored(&upstream, &hook, &app.dir().join("backup.db")).await;
    assert_same(&before, &everything(copy.client(), &runs).await);
}

#[tokio::test]
async fn what_deleted_files_had_is_not_in_a_backup_and_what_is_lost_is_counted() {
    let upstream = ScriptedUpstream::answering(|_| text("x")).await;
    let hook = tools().await;
    let mut app = Engine::Sqlite.start(&upstream, &hook).await;
    let client = app.client().clone();
    let secret = "a word that is nowhere else";
    let import = json!({"messages": [{"role": "user", "content": secret}]});
    client
        .send(http::Method::PUT, "/v1/sessions/gone", &import)
        .await;
    client.delete("/v1/sessions/gone").await;
    for name in ["kept.txt", "lost.txt"] {
        uploaded(&client, name, name.as_bytes()).await;
    }
    let directory = app.dir().to_owned();
    let contents = crate::files::contents(&directory.join("sessions-files"));
    let lost = contents
        .into_iter()
        .find(|path| std::fs::read(path).is_ok_and(|content| content == b"lost.txt"));
    std::fs::remove_file(lost.unwrap()).unwrap();
    let said = backed_up(&mut app, &Engine::Sqlite, "backup.db --files").await;
    assert_eq!(printed(&said, "files"), 1, "{said}");
    assert_eq!(printed(&said, "files without content"), 1, "{said}");
    let said = backed_up(&mut app, &Engine::Sqlite, "rows.db").await;
    assert!(
        said.contains("files: 2, whose contents are not copied"),
        "{said}"
    );
    let backup = std::fs::read(directory.join("backup.db")).unwrap();
    let found = backup
        .windows(secret.len())
        .any(|bytes| bytes == secret.as_bytes());
    assert!(!found, "a deleted message is in the backup");
}

#[tokio::test]
async fn a_backup_overwrites_nothing_and_leaves_nothing_after_a_failure() {
    let upstream = ScriptedUpstream::answering(|_| text("x")).await;
    let hook = tools().await;
    let mut app = Engine::Sqlite.start(&upstream, &hook).await;
    let directory = app.dir().to_owned();
    std::fs::write(directory.join("taken.db"), "mine").unwrap();
    std::fs::write(
        directory.join("text.db"),
        "no database at all, only a text ".repeat(200),
    )
    .unwrap();
    std::fs::write(directory.join("other.db.partial"), "").unwrap();
    std::fs::create_dir(directory.join("full-files")).unwrap();
    for (store, arguments, part) in [
        ("sqlite:sessions.db", "taken.db", "taken.db already exists"),
        ("sqlite:sessions.db", "other.db", "remove other.db.partial"),
        (
            "sqlite:sessions.db",
            "full.db --files",
            "full-files already exists",
        ),
        (
            "sqlite:sessions.db",
            "no/such/folder.db",
            "cannot write no/such/folder.db",
        ),
        (
            "sqlite:nowhere.db",
            "new.db",
            "there is no SQLite store nowhere.db",
        ),
        ("sqlite:text.db", "new.db", "cannot copy the session store"),
        (
            "postgres://u:s3cret@127.0.0.1:1/d",
            "new.db",
            "cannot copy the session store",
        ),
        (
            "sqlite:sessions.db",
            "new.db --files --files-dir nowhere",
            "",
        ),
    ] {
        let line = format!("loopwright store backup {arguments}");
        let ended = shell(&mut app, &line, store).await;
        if part.is_empty() {
            // There are no files, so that none is missing.
            assert_eq!(ended.code, Some(0), "{ended:?}");
            continue;
        }
        assert_eq!(ended.code, Some(1), "{line}: {ended:?}");
        assert!(ended.stderr.contains(part), "{line}: {ended:?}");
        assert!(!ended.stderr.contains("s3cret"), "{ended:?}");
        assert!(!directory.join("new.db").exists(), "{line}");
        assert!(!directory.join("new.db.partial").exists(), "{line}");
    }
    assert_eq!(std::fs::read(directory.join("taken.db")).unwrap(), b"mine");
    uploaded(app.client(), "a.txt", b"a").await;
    let line = "loopwright store backup last.db --files --files-dir nowhere";
    let ended = shell(&mut app, line, "sqlite:sessions.db").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("nowhere"), "{ended:?}");
    assert!(!directory.join("last.db").exists() && !directory.join("last-files").exists());
    let ended = shell(&mut app, "loopwright store backup x.db", "memory:").await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

#[tokio::test]
async fn the_file_of_an_idle_server_alone_has_everything() {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let mut app = Engine::Sqlite.start(&upstream, &hook).await;
    let directory = app.dir().to_owned();
    let copied = |sql: &'static str| {
        let copy = directory.join("copy.db");
        std::fs::copy(directory.join("sessions.db"), &copy).unwrap();
        let connection = rusqlite::Connection::open(&copy).unwrap();
        connection.query_row(sql, [], |row| row.get::<_, i64>(0))
    };
    // The tables of a new store, then two turns that are written after one another.
    eventually("the tables", || async {
        copied("SELECT count(*) FROM sessions").ok()
    })
    .await;
    for number in 1..=2 {
        app.post_chat(turn("s", "t")).await.content();
        eventually("the turn in the file", || async {
            let count = copied("SELECT message_count FROM sessions").ok()?;
            (count == 4 * number).then_some(())
        })
        .await;
    }
    assert!(
        !app.logs().contains("could not be written back"),
        "{}",
        app.logs()
    );
}

/// The blocks of commands of a section of the manual.
fn commands(section: &str) -> Vec<String> {
    let page = include_str!("../../src/server/commands/manual/operations.md");
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

fn standalone(upstream: &ScriptedUpstream, hook: &Webhook, store: &str) -> Builder {
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    builder.toml(&format!("session_store = \"{store}\""))
}

#[tokio::test]
async fn the_commands_of_the_manual_restore_a_sqlite_store() {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let mut app = standalone(&upstream, &hook, "sqlite:loopwright.db")
        .start()
        .await;
    let runs = filled(app.client()).await;
    let before = everything(app.client(), &runs).await;
    let commands = commands("Backup and restore");
    let ended = shell(&mut app, &commands[0], "").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");

    // Damage, and what was done after the backup.
    app.post_chat(turn("late", "t")).await.content();
    app.terminate().await;
    app.wait_exit().await;
    std::fs::write(app.dir().join("loopwright.db"), "damaged").unwrap();
    let (restore, serve) = commands[1].trim_end().rsplit_once('\n').unwrap();
    let ended = shell(&mut app, restore, "").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // As the tests start it.
    assert_eq!(serve, "loopwright serve --config loopwright.toml");
    app.restart().await;
    assert_eq!(everything(app.client(), &runs).await, before);
    assert_eq!(app.get("/v1/sessions/late").await.status, 404);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn the_commands_of_the_manual_restore_a_postgresql_store() {
    let upstream = ScriptedUpstream::answering(obedient).await;
    let hook = tools().await;
    let (old, new) = (Engine::postgres().await, Engine::postgres().await);
    let mut app = old.start(&upstream, &hook).await;
    let runs = filled(app.client()).await;
    let before = everything(app.client(), &runs).await;
    let commands = commands("Backup and restore");
    for (block, database) in [(&commands[2], &old), (&commands[3], &new)] {
        let (export, rest) = block.split_once('\n').unwrap();
        assert!(
            export.starts_with("export LOOPWRIGHT_SESSION_STORE='postgres://"),
            "{export}"
        );
        let ended = shell(&mut app, rest, database.url()).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let files: PathBuf = app.dir().join("backup-files");
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let copy = builder
        .toml(&format!("files_dir = {files:?}"))
        .env("LOOPWRIGHT_SESSION_STORE", new.url())
        .start()
        .await;
    assert_eq!(everything(copy.client(), &runs).await, before);
}
