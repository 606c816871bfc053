//! Approvals over `kill -9` and over replicas: the effect happens once or not at all.

use super::alone::{approve, ended, in_background, path, waiting};
#[cfg(all(feature = "mcp", feature = "postgres"))]
use super::cancelled::suspended;
use super::{
    ScriptedUpstream, Webhook, asked, calls, charge, decided, go_on, held, hook, json, pay,
    question, server, statuses, text,
};
#[cfg(all(feature = "mcp", feature = "postgres"))]
use crate::support::eventually;
use crate::support::script::text_and_calls;
use crate::support::server::Gate;
use crate::support::webhook;

#[tokio::test]
async fn what_waits_survives_the_process() {
    let upstream =
        ScriptedUpstream::start([calls([charge(5), ("read", json!({}))]), text("Paid.")]).await;
    let hook = hook().await;
    let mut app = server(&upstream, &hook, "").start().await;
    let approval = asked(&app.post_chat(pay()).await).remove(0);
    app.kill9().await;
    app.restart().await;
    let listed = app.get("/v1/agent/approvals").await.json();
    assert_eq!(listed["data"][0]["approval_id"], approval["approval_id"]);
    decided(app.client(), &approval, json!({"decision": "approve"})).await;
    // Between the decision and the run.
    app.kill9().await;
    app.restart().await;
    assert_eq!(app.post_chat(go_on()).await.content(), "Paid.");
    assert_eq!(hook.names(), ["read", "charge"]);
}

#[tokio::test]
async fn a_stream_that_breaks_while_it_waits_is_gone_on_with() {
    let upstream = ScriptedUpstream::start([calls([charge(5)]), text("Paid.")]).await;
    let hook = hook().await;
    let mut app = server(&upstream, &hook, "").start().await;
    let mut stream = app.stream_chat(pay()).await;
    let approval = question(&mut stream).await;
    app.kill9().await;
    drop(stream);
    app.restart().await;
    decided(app.client(), &approval, json!({"decision": "approve"})).await;
    assert_eq!(app.post_chat(go_on()).await.content(), "Paid.");
    assert_eq!(hook.names(), ["charge"]);
}

#[tokio::test]
async fn a_call_that_had_started_when_the_process_was_killed_is_not_made_again() {
    let upstream = ScriptedUpstream::start([calls([charge(5)]), text("I do not know.")]).await;
    let gate = Gate::new();
    let hook = held(hook().await, &gate);
    let mut app = server(&upstream, &hook, "").start().await;
    let approval = asked(&app.post_chat(pay()).await).remove(0);
    decided(app.client(), &approval, json!({"decision": "approve"})).await;
    let client = app.client().clone();
    let going = tokio::spawn(async move {
        if let Ok(reader) = client.try_stream_chat(go_on()).await {
            let _broken_off = reader.raw().await;
        }
    });
    hook.called(1).await;
    app.kill9().await;
    gate.open();
    let _broken = going.await;
    app.restart().await;
    let answer = app.post_chat(go_on()).await;
    assert_eq!(answer.content(), "I do not know.");
    assert_eq!(statuses(&answer), ["charge interrupted"]);
    assert_eq!(hook.calls().len(), 1);
}

/// A batch with two calls that wait, and text around it.
fn whole() -> [crate::support::script::Reply; 2] {
    let batch = [charge(5), ("read", json!({})), charge(6)];
    [text_and_calls("First.", batch), text("Paid.")]
}

/// Another call holds the session, so that the run does not resume before the kill.
#[tokio::test]
async fn a_run_that_is_decided_when_the_process_is_killed_has_each_effect_once() {
    let upstream = ScriptedUpstream::start(whole()).await;
    let hook: Webhook = hook().await.on("slow", webhook::hang());
    let mut app = server(&upstream, &hook, "session_wait_ms = 100")
        .start()
        .await;
    let id = app.post_chat(in_background()).await.json()["id"].clone();
    let approvals = waiting(app.client(), &id).await;
    let client = app.client().clone();
    let session = json!({"session_id": approvals[0]["session_id"]});
    let holding = tokio::spawn(async move {
        let request = client.request(http::Method::POST, "/v1/agent/tools/slow/call");
        let request = request.header("content-type", "application/json");
        let _broken_off = request.body(session.to_string()).send().await;
    });
    hook.called(2).await;
    for approval in &approvals {
        approve(app.client(), approval).await;
    }
    assert_eq!(app.get(&path(&id)).await.json()["approvals"], json!([]));
    app.kill9().await;
    let _broken = holding.await;
    assert_eq!(hook.names(), ["read", "slow"]);
    app.restart().await;
    let answer = ended(app.client(), &id).await;
    assert_eq!(answer.content(), "First.\n\nPaid.");
    assert_eq!(statuses(&answer), ["charge ok", "read ok", "charge ok"]);
    let mut names = hook.names();
    names.sort_unstable();
    assert_eq!(names, ["charge", "charge", "read", "slow"]);
    app.restart().await;
    assert_eq!(app.get(&path(&id)).await.json(), answer.json());
}

#[cfg(all(feature = "mcp", feature = "postgres"))]
#[tokio::test]
#[ignore = "needs PostgreSQL; tests/run installs it"]
async fn every_replica_has_the_same_whole_answer() {
    use crate::support::postgres::PostgresServer;

    let database = PostgresServer::shared().create_database().await;
    for kills in [false, true] {
        let upstream = ScriptedUpstream::start(whole()).await;
        let hook = hook().await;
        let replica = async || {
            let builder = server(&upstream, &hook, "");
            let builder = builder.env("LOOPWRIGHT_SESSION_STORE", &database);
            builder.start().await
        };
        let (mut first, second): (super::TestApp, super::TestApp) =
            (replica().await, replica().await);
        let body = super::with(
            in_background(),
            "session_id",
            json!(format!("kills-{kills}")),
        );
        let id = first.post_chat(body).await.json()["id"].clone();
        let approvals = waiting(second.client(), &id).await;
        suspended(&first).await;
        if kills {
            first.kill9().await;
        }
        for approval in &approvals {
            approve(second.client(), approval).await;
        }
        let answer = ended(second.client(), &id).await;
        assert_eq!(answer.content(), "First.\n\nPaid.");
        assert_eq!(statuses(&answer), ["charge ok", "read ok", "charge ok"]);
        if kills {
            first.restart().await;
        }
        let of_first = eventually("the answer on the other replica", || async {
            let found = first.get(&path(&id)).await;
            (found.status == 200).then_some(found)
        })
        .await;
        assert_eq!(of_first.json(), answer.json());
        assert_eq!(hook.names().len(), 3, "{:?}", hook.names());
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
#[ignore = "needs PostgreSQL; tests/run installs it"]
async fn one_replica_asks_another_is_told_and_a_third_goes_on() {
    use crate::support::postgres::PostgresServer;

    let upstream = ScriptedUpstream::start([
        calls([charge(5)]),
        text("Paid."),
        calls([charge(6)]),
        text("Paid."),
    ])
    .await;
    let hook = hook().await;
    let database = PostgresServer::shared().create_database().await;
    let replica = async || {
        let builder = server(&upstream, &hook, "");
        builder
            .env("LOOPWRIGHT_SESSION_STORE", &database)
            .start()
            .await
    };
    let (first, second, third): (super::TestApp, super::TestApp, super::TestApp) =
        (replica().await, replica().await, replica().await);
    let approval = asked(&first.post_chat(pay()).await).remove(0);
    assert_eq!(
        decided(second.client(), &approval, json!({"decision": "approve"})).await,
        "queued"
    );
    assert_eq!(third.post_chat(go_on()).await.content(), "Paid.");
    // A stream hears of a decision that another replica was told.
    let mut stream = first.stream_chat(pay()).await;
    let approval = question(&mut stream).await;
    assert_eq!(
        decided(third.client(), &approval, json!({"decision": "approve"})).await,
        "resolved"
    );
    assert_eq!(stream.collect().await.text, "Paid.");
    assert_eq!(hook.names(), ["charge", "charge"]);
}
