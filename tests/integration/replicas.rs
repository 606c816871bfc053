//! Replicas: several processes that share one PostgreSQL.

mod cluster;
pub(crate) mod copied;
mod cost;
mod faults;
mod killed;
pub(crate) mod tls;

use std::time::Instant;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::support::app::{Builder, TestApp};
use super::support::ask::{ask_with, with};
use super::support::client::Client;
use super::support::postgres::PostgresServer;
use super::support::recorded::Recorded;
use super::support::script::{Reply, calls, text};
use super::support::server::Gate;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};
use super::support::{AT_ONCE, eventually, within};

/// Turns that each replica is asked for at once.
const TURNS: usize = 10;

fn in_session(content: &str) -> Value {
    with(ask_with(content, ["t"]), "session_id", json!("s"))
}

/// A model that calls the tool once and then answers the user.
fn one_round(request: &Recorded) -> Reply {
    let messages = request.messages();
    if messages.last().is_some_and(|last| last["role"] == "user") {
        return calls([("t", json!({}))]);
    }
    let mut from_last = messages.iter().rev();
    let user = from_last.find(|message| message["role"] == "user").unwrap();
    text(&format!("re {}", user["content"].as_str().unwrap()))
}

async fn replica(upstream: &ScriptedUpstream, hook: &Webhook, database: &str) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    builder
        .env("LOOPWRIGHT_SESSION_STORE", database)
        .start()
        .await
}

/// Checks that the session is a sequence of whole turns; returns what the user said in each.
async fn whole_turns(client: &Client) -> Vec<String> {
    let stored = client.get("/v1/sessions/s").await.json();
    let messages = stored["messages"].as_array().unwrap();
    let turns = messages.chunks(4).map(|turn| {
        let roles: Vec<&str> = turn
            .iter()
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        assert_eq!(
            roles,
            ["user", "assistant", "tool", "assistant"],
            "{messages:?}"
        );
        let said = turn[0]["content"].as_str().unwrap();
        assert_eq!(turn[3]["content"], format!("re {said}"), "{messages:?}");
        said.to_owned()
    });
    turns.collect()
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn turns_of_a_session_on_two_replicas_never_interleave() {
    let database = PostgresServer::shared().create_database().await;
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    // Both make the schema.
    let (first, second) = tokio::join!(
        replica(&upstream, &hook, &database),
        replica(&upstream, &hook, &database)
    );
    let mut turns = JoinSet::new();
    for number in 0..TURNS {
        for (name, app) in [("first", &first), ("second", &second)] {
            let client = app.client().clone();
            let content = format!("{name} {number}");
            turns.spawn(async move {
                let answer = client.post_chat(in_session(&content)).await;
                assert_eq!(answer.content(), format!("re {content}"));
                content
            });
        }
    }
    let mut asked = turns.join_all().await;
    let mut stored = whole_turns(first.client()).await;
    assert_eq!(stored, whole_turns(second.client()).await);
    asked.sort();
    stored.sort();
    assert_eq!(stored, asked);
    assert_eq!(hook.calls().len(), 2 * TURNS);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_killed_replica_leaves_its_session_and_its_run_to_the_others() {
    let database = PostgresServer::shared().create_database().await;
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.once("t", webhook::hang());
    let hook = hook.on("t", webhook::text("r"));
    let mut first = replica(&upstream, &hook, &database).await;
    let second = replica(&upstream, &hook, &database).await;
    let body = with(
        in_session("Go"),
        "agent",
        json!({"on_disconnect": "finish"}),
    );
    let mut events = first.stream_chat(body).await;
    events.next_chunk().await;
    hook.called(1).await;
    let run = format!("/v1/chat/completions/{}", events.run_id());
    let running = second.get(&run).await;
    assert_eq!(running.status, 202);
    assert_eq!(running.json()["session_id"], "s");
    let listed = second.get("/v1/sessions").await.json();
    assert_eq!(listed["data"][0]["id"], "s");
    // It waits for the session, and for nobody to write to it any more.
    let client = second.client().clone();
    let waiting = tokio::spawn(async move { client.post_chat(in_session("Next")).await });
    let killed = Instant::now();
    first.kill9().await;
    drop(events);
    eventually("the interrupted run", async || {
        let shown = second.get(&run).await;
        (shown.status != 202).then(|| shown.assert_error(410, Some("run_interrupted")))
    })
    .await;
    assert_eq!(waiting.await.unwrap().content(), "re Next");
    // The lease lasts longer.
    assert!(killed.elapsed() < AT_ONCE, "{:?}", killed.elapsed());
    let stored = second.get("/v1/sessions/s").await.json();
    let messages = stored["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 7, "{messages:?}");
    let told = messages[2]["content"].as_str().unwrap();
    assert!(told.contains("interrupted"), "{told}");
    assert_eq!(hook.calls().len(), 2);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_replica_that_is_started_again_after_a_kill_has_its_sessions_at_once() {
    let database = PostgresServer::shared().create_database().await;
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.once("t", webhook::hang());
    let hook = hook.on("t", webhook::text("r"));
    let mut app = replica(&upstream, &hook, &database).await;
    let streamed = app.stream_chat(in_session("Go")).await;
    hook.called(1).await;
    let killed = Instant::now();
    app.restart().await;
    drop(streamed);
    let answer = app.post_chat(in_session("Next")).await;
    assert_eq!(answer.content(), "re Next");
    // The lease lasts longer.
    assert!(killed.elapsed() < AT_ONCE, "{:?}", killed.elapsed());
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_request_sent_to_two_replicas_under_one_key_has_one_effect() {
    let database = PostgresServer::shared().create_database().await;
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let first = replica(&upstream, &hook, &database).await;
    let second = replica(&upstream, &hook, &database).await;
    for number in 0..5 {
        let send = async |app: &TestApp| {
            let client = app
                .client()
                .header("idempotency-key", &format!("k{number}"));
            client
                .post_chat(in_session(&number.to_string()))
                .await
                .completion()
        };
        let (one, other) = tokio::join!(send(&first), send(&second));
        assert_eq!(one, other);
        assert_eq!(hook.calls().len(), number + 1);
    }
    assert_eq!(whole_turns(first.client()).await.len(), 5);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_database_that_crashes_stops_no_stream() {
    let server = PostgresServer::start();
    let database = server.create_database().await;
    let upstream = ScriptedUpstream::answering(one_round).await;
    let gate = Gate::new();
    let hook = Webhook::start().await;
    let hook = hook
        .once("t", webhook::text("r").gated(&gate))
        .on("t", webhook::text("r"));
    let app = replica(&upstream, &hook, &database).await;
    let streamed = app.stream_chat(in_session("Go")).await;
    hook.called(1).await;
    server.kill().await;
    gate.open();
    let unready = app.get("/readyz").await;
    assert_eq!(unready.status, 503);
    let streamed = streamed.collect().await;
    assert_eq!(streamed.text, "re Go");
    let notices = streamed.notices();
    assert!(
        notices
            .iter()
            .any(|notice| notice["kind"] == "session_store"),
        "{notices:?}"
    );
    let refused = app.post_chat(in_session("Meanwhile")).await;
    refused.assert_error(503, Some("session_store_unavailable"));
    server.restart().await;
    eventually("a turn with the database back", async || {
        let answer = app.post_chat(in_session("Again")).await;
        (answer.status == 200).then(|| assert_eq!(answer.content(), "re Again"))
    })
    .await;
    assert_eq!(app.get("/readyz").await.status, 200);
    let logs = app.logs();
    assert!(
        logs.contains("could not be renewed") || logs.contains("session write failed"),
        "{logs}"
    );
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_password_is_in_no_message() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let url = "postgres://someone:s3cret-word@127.0.0.1:1/none";
    let ended = builder
        .env("LOOPWRIGHT_SESSION_STORE", url)
        .run("serve")
        .await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("cannot open the session store"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("s3cret-word"), "{}", ended.stderr);
}
