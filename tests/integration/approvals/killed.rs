//! Approvals over `kill -9` and over replicas: the effect happens once or not at all.

use super::{
    ScriptedUpstream, asked, calls, charge, decided, go_on, held, hook, json, pay, question,
    server, statuses, text,
};
use crate::support::server::Gate;

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
    assert_eq!(statuses(&answer), ["charge cancelled"]);
    assert_eq!(hook.calls().len(), 1);
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
