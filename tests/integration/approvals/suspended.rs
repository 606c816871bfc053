//! Suspended runs that a process cannot resume: they keep their decisions, say why, are tried again and can be cancelled.

use std::path::Path;

use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::alone::{approve, ended, in_background, path, waiting, waits};
use super::{
    ASK, Builder, Client, ScriptedUpstream, TestApp, Value, Webhook, calls, charge, decide,
    decided, hook, json, server, statuses, text, with,
};
use crate::mcp::fake;
use crate::support::eventually;
use crate::support::upstream::MODEL;

/// The database, also where other tests use another one: its rows are changed.
pub(super) const STORE: &str = "session_store = \"sqlite:sessions.db\"";
/// The start of the line that tells of a run which cannot resume.
const TOLD: &str = "a suspended run cannot resume; its decisions are kept";
/// Why one that another version has stored cannot.
const OTHER_VERSION: &str =
    "another version of the server has stored the turn, and this one cannot read it";
/// More runs than one look takes.
const MANY: usize = 101;

/// Calls `charge` once, and is done.
pub(super) async fn charging() -> ScriptedUpstream {
    ScriptedUpstream::answering(|request| match request.messages().len() {
        1 => calls([charge(5)]),
        _ => text("Paid."),
    })
    .await
}

/// Waits until a run cannot be resumed, and gives the reason.
async fn blocked(client: &Client, id: &Value) -> String {
    eventually("the reason why a run does not resume", || async {
        let answer = client.get(&path(id)).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        let body = answer.json();
        let reason = body["blocked"].as_str().map(str::to_owned)?;
        assert_eq!(body["approvals"], json!([]), "all is decided");
        Some(reason)
    })
    .await
}

/// The lines of the log that hold this text.
fn told(app: &TestApp, text: &str) -> Vec<String> {
    let logs = app.logs();
    let lines = logs.lines().filter(|line| line.contains(text));
    lines.map(str::to_owned).collect()
}

/// How often the log says that this run cannot resume.
fn told_of(app: &TestApp, id: &Value) -> usize {
    let run = id.as_str().unwrap().trim_start_matches("chatcmpl-");
    let lines = told(app, TOLD).into_iter();
    lines.filter(|line| line.contains(run)).count()
}

pub(super) async fn stop(app: &mut TestApp) {
    app.terminate().await;
    app.wait_exit().await;
}

/// The stored turn of a session.
fn stored(database: &Connection, session: &str) -> String {
    let sql = "SELECT turn FROM parked_turns WHERE session = (SELECT num FROM sessions WHERE session_id = ?1)";
    let row = database.query_row(sql, [session], |row| row.get(0));
    row.unwrap()
}

fn store(database: &Connection, session: &str, turn: &str) {
    let sql = "UPDATE parked_turns SET turn = ?2 WHERE session = (SELECT num FROM sessions WHERE session_id = ?1)";
    let changed = database.execute(sql, params![session, turn]).unwrap();
    assert_eq!(changed, 1);
}

/// A turn with another text in the place of one that it has once.
fn replaced(turn: &str, from: &str, to: &str) -> String {
    assert_eq!(turn.matches(from).count(), 1, "{from} in {turn}");
    turn.replacen(from, to, 1)
}

fn of_another_form(turn: &str) -> String {
    replaced(turn, "\"form\":2", "\"form\":99")
}

fn with_an_unknown_word(turn: &str) -> String {
    let draft = turn.find("\"draft\":").unwrap();
    let (before, draft) = turn.split_at(draft);
    let word = "\"unoffered\":\"Refuse\"";
    format!(
        "{before}{}",
        replaced(draft, word, "\"unoffered\":\"Sideways\"")
    )
}

fn with_unknown_members(turn: &str) -> String {
    let turn = replaced(turn, "\"form\":2", "\"form\":2,\"of_tomorrow\":[1]");
    let turn = replaced(
        &turn,
        "\"draft\":{",
        "\"draft\":{\"of_tomorrow\":{\"a\":1},",
    );
    let tools = replaced(
        &turn,
        "\"legacy_functions\":",
        "\"of_tomorrow\":null,\"legacy_functions\":",
    );
    replaced(
        &tools,
        "\"reply\":{\"chat\":{",
        "\"reply\":{\"chat\":{\"of_tomorrow\":1,",
    )
}

fn without_members(turn: &str) -> String {
    let mut turn = turn.to_owned();
    for member in [
        "\"lacks_servers\":false",
        "\"legacy_functions\":false",
        "\"of_client_machine\":false",
        "\"official_sdk\":false",
        "\"ephemeral\":false",
        "\"extended\":true",
    ] {
        let rest = [format!(",{member}"), format!("{member},")];
        let found = rest.iter().find(|text| turn.contains(*text));
        turn = replaced(&turn, found.expect(member), "");
    }
    turn
}

/// What becomes of the text of a turn.
type TurnChange = fn(&str) -> String;

/// What becomes of a stored turn, by the session that has it.
const CHANGES: [(&str, TurnChange); 6] = [
    ("form", of_another_form),
    ("form-restored", of_another_form),
    ("word", with_an_unknown_word),
    ("word-restored", with_an_unknown_word),
    ("more", with_unknown_members),
    ("fewer", without_members),
];

#[tokio::test]
async fn what_another_version_has_stored_resumes_or_keeps_its_decision() {
    let (upstream, hook) = (charging().await, hook().await);
    let mut app = server(&upstream, &hook, STORE).start().await;
    let mut runs = Vec::new();
    for (session, _) in CHANGES {
        runs.push(waits(app.client(), session).await);
    }
    stop(&mut app).await;
    let database = Connection::open(app.dir().join("sessions.db")).unwrap();
    let turns = CHANGES.map(|(session, _)| stored(&database, session));
    for ((session, change), turn) in CHANGES.into_iter().zip(&turns) {
        store(&database, session, &change(turn));
    }
    drop(database);
    app.restart().await;
    for ((session, _), (_, approval)) in CHANGES.iter().zip(&runs) {
        let decision = match *session {
            "word-restored" => "deny",
            _ => "approve",
        };
        decided(app.client(), approval, json!({"decision": decision})).await;
    }
    for (id, _) in &runs[4..] {
        assert_eq!(ended(app.client(), id).await.content(), "Paid.");
    }
    assert_eq!(hook.names(), ["charge", "charge"]);
    for (id, approval) in &runs[..4] {
        assert_eq!(blocked(app.client(), id).await, OTHER_VERSION);
        assert_eq!(told_of(&app, id), 1, "{}", app.logs());
        let again = decide(app.client(), approval, json!({"decision": "approve"})).await;
        again.assert_error(409, Some("approval_decided"));
    }
    for place in [0, 2] {
        assert_cancelled(&app, CHANGES[place].0, &runs[place].0).await;
    }
    restored(&mut app, [(1, &turns[1]), (3, &turns[3])]).await;
    let approved = ended(app.client(), &runs[1].0).await;
    assert_eq!(statuses(&approved), ["charge ok"]);
    let denied = ended(app.client(), &runs[3].0).await;
    assert_eq!(statuses(&denied), ["charge denied"]);
    assert_eq!(hook.names(), ["charge"; 3]);
}

/// Cancels a run that cannot resume: it has ended then, and its session goes on.
async fn assert_cancelled(app: &TestApp, session: &str, id: &Value) {
    let cancel = format!("{}/cancel", path(id));
    let cancelled = app.post(&cancel, &json!({})).await;
    assert_eq!(cancelled.status, 202, "{}", cancelled.text());
    let answer = app.get(&path(id)).await;
    assert_eq!(answer.completion()["agent"]["stop_reason"], "cancelled");
    let again = app.post(&cancel, &json!({})).await;
    again.assert_error(409, Some("not_running"));
    let say = with(in_background(), "session_id", json!(session));
    let mut say = with(say, "messages", json!([super::user("Hi")]));
    say["agent"] = json!({});
    assert_eq!(app.post_chat(say).await.content(), "Paid.");
}

/// Starts again with turns as they were before the change.
async fn restored<const N: usize>(app: &mut TestApp, turns: [(usize, &String); N]) {
    stop(app).await;
    let database = Connection::open(app.dir().join("sessions.db")).unwrap();
    for (place, turn) in turns {
        store(&database, CHANGES[place].0, turn);
    }
    drop(database);
    app.restart().await;
}

#[tokio::test]
async fn blocked_runs_keep_no_other_back() {
    let (upstream, hook) = (charging().await, hook().await);
    let mut app = server(&upstream, &hook, STORE).start().await;
    let mut runs = Vec::new();
    for number in 0..MANY {
        runs.push(waits(app.client(), &format!("s{number}")).await);
    }
    stop(&mut app).await;
    let database = Connection::open(app.dir().join("sessions.db")).unwrap();
    let sql = "UPDATE parked_turns SET turn = replace(turn, '\"form\":2', '\"form\":99')";
    assert_eq!(database.execute(sql, []).unwrap(), MANY);
    drop(database);
    app.restart().await;
    let other = waits(app.client(), "other").await;
    for (_, approval) in runs.iter().chain([&other]) {
        approve(app.client(), approval).await;
    }
    assert_eq!(ended(app.client(), &other.0).await.content(), "Paid.");
    blocked(app.client(), &runs[MANY - 1].0).await;
    assert_eq!(hook.names(), ["charge"]);
}

/// A server whose model server takes these models alone.
pub(super) fn serving(
    upstream: &ScriptedUpstream,
    hook: &Webhook,
    dir: &Path,
    model: &str,
    more: &str,
) -> Builder {
    let (url, store) = (upstream.base_url(), dir.join("sessions.db"));
    let store = format!("session_store = \"sqlite:{}\"", store.display());
    let upstreams =
        format!("[[upstreams]]\nname = \"u\"\nbase_url = \"{url}\"\nmodels = [\"{model}\"]");
    let builder = TestApp::builder().dispatch(hook);
    builder.toml(&format!("{store}\n{upstreams}\n{more}\n{ASK}"))
}

pub(super) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn a_run_resumes_once_its_model_is_back() {
    let (upstream, hook, dir) = (charging().await, hook().await, directory());
    let served = async |model: &str| {
        let builder = serving(&upstream, &hook, dir.path(), model, "");
        builder.start().await
    };
    let mut first = served(MODEL).await;
    let (id, approval) = waits(first.client(), "s").await;
    stop(&mut first).await;
    let mut second = served("other").await;
    approve(second.client(), &approval).await;
    let reason = blocked(second.client(), &id).await;
    let expected = format!("no upstream serves the model '{MODEL}'");
    assert!(reason.contains(&expected), "{reason}");
    assert_eq!(told_of(&second, &id), 1, "{}", second.logs());
    stop(&mut second).await;
    assert!(hook.calls().is_empty());
    let third = served(MODEL).await;
    let answer = ended(third.client(), &id).await;
    assert_eq!(answer.content(), "Paid.");
    assert_eq!(statuses(&answer), ["charge ok"]);
    assert_eq!(hook.names(), ["charge"]);
}

/// The model server has connectors itself, and the token of one is a secret of the request.
#[tokio::test]
async fn the_token_of_a_connector_is_not_stored() {
    const TOKEN: &str = "t0ken-of-a-connector";
    let (upstream, hook, dir) = (charging().await, hook().await, directory());
    let quirks = "[upstreams.quirks]\nhosted_tools = [\"mcp\"]";
    let builder = serving(&upstream, &hook, dir.path(), MODEL, quirks);
    let mut app = builder.start().await;
    let connector = json!({"type": "mcp", "server_label": "mail", "connector_id": "connector_mail", "authorization": TOKEN});
    let mut body = with(in_background(), "session_id", json!("s"));
    body["tools"].as_array_mut().unwrap().push(connector);
    let id = app.post_chat(body).await.json()["id"].clone();
    waiting(app.client(), &id).await;
    assert!(upstream.last().body.to_string().contains(TOKEN));
    stop(&mut app).await;
    let database = Connection::open(dir.path().join("sessions.db")).unwrap();
    let turn = stored(&database, "s");
    assert!(!turn.contains(TOKEN), "{turn}");
}

/// An MCP server reads nothing before a file is there. The request wants one of its tools called.
#[tokio::test]
async fn a_blocked_run_is_tried_again_and_told_of_once() {
    let (upstream, hook, dir) = (charging().await, hook().await, directory());
    let file = dir.path().join("go");
    let tool = json!({"name": "find", "description": "d", "inputSchema": {"type": "object"}});
    let table = json!({"wait": file.to_str().unwrap(), "tools": [tool]});
    std::fs::write(&file, "").unwrap();
    let builder = server(
        &upstream,
        &hook,
        &format!("{STORE}\nmcp_start_timeout = 0.2"),
    );
    let mut app = builder.toml(&fake::table("docs", &table)).start().await;
    eventually("the tool", || async {
        let listed = app.get("/v1/agent/tools").await.text();
        listed.contains("docs__find").then_some(())
    })
    .await;
    let unread = waits(app.client(), "unread").await;
    let choice = json!({"type": "function", "function": {"name": "docs__find"}});
    let choosing = with(in_background(), "tool_choice", choice);
    let id = app.post_chat(choosing).await.json()["id"].clone();
    let approval = waiting(app.client(), &id).await.remove(0);
    stop(&mut app).await;
    std::fs::remove_file(&file).unwrap();
    let database = Connection::open(app.dir().join("sessions.db")).unwrap();
    let turn = with_an_unknown_word(&stored(&database, "unread"));
    store(&database, "unread", &turn);
    drop(database);
    app.restart().await;
    approve(app.client(), &unread.1).await;
    approve(app.client(), &approval).await;
    let reason = blocked(app.client(), &id).await;
    assert!(reason.contains("docs__find"), "{reason}");
    assert_eq!(blocked(app.client(), &unread.0).await, OTHER_VERSION);
    std::fs::write(&file, "").unwrap();
    let answer = ended(app.client(), &id).await;
    assert_eq!(statuses(&answer), ["charge ok"]);
    assert_eq!(hook.names(), ["charge"]);
    // The look that found the tool has looked at the other run as well.
    for id in [&id, &unread.0] {
        assert_eq!(told_of(&app, id), 1, "{}", app.logs());
    }
    let lines = told(&app, "a stored turn cannot be read");
    assert!(lines.len() <= 1, "{lines:?}");
}
