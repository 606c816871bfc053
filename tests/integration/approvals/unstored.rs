//! Turns that are not stored: their calls wait in their streams only.

use super::{
    EventReader, ScriptedUpstream, TestApp, Value, Webhook, calls, charge, decide, decided,
    eventually, hook, json, pay, question, server, start, text, with,
};

fn unstored() -> Value {
    let mut body = with(pay(), "store", json!(false));
    body.as_object_mut().unwrap().remove("session_id");
    body
}

/// The calls that the list shows.
async fn listed(app: &TestApp) -> Vec<Value> {
    let answer = app.client().get("/v1/agent/approvals").await.json();
    answer["data"].as_array().unwrap().clone()
}

/// A stream that waits for a decision, and its question.
async fn asking(more: &str) -> (ScriptedUpstream, Webhook, TestApp, EventReader, Value) {
    let script = [calls([charge(5)]), text("Done.")];
    let (upstream, hook, app) = start(script, more).await;
    let mut stream = app.stream_chat(unstored()).await;
    let approval = question(&mut stream).await;
    (upstream, hook, app, stream, approval)
}

#[tokio::test]
async fn a_call_is_decided_in_its_stream() {
    let (_upstream, hook, app, stream, approval) = asking("").await;
    let listed_then = listed(&app).await;
    assert_eq!(listed_then.len(), 1);
    assert_eq!(listed_then[0]["approval_id"], approval["approval_id"]);
    assert_eq!(listed_then[0]["session_id"], Value::Null);
    let edited = json!({"decision": "approve", "arguments": {"account": "a", "cents": 4}});
    assert_eq!(
        decided(app.client(), &approval, edited.clone()).await,
        "resolved"
    );
    assert_eq!(stream.collect().await.text, "Done.");
    let made = hook.calls();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].arguments(), &json!({"account": "a", "cents": 4}));
    // It has ended with its turn, and nothing is left in the store.
    assert_eq!(decide(app.client(), &approval, edited).await.status, 404);
    assert!(listed(&app).await.is_empty());
    let sessions = app.client().get("/v1/sessions").await.json();
    assert_eq!(sessions["data"], json!([]));
}

#[tokio::test]
async fn a_denial_reaches_the_model_and_counts_once() {
    let (upstream, hook, app, stream, approval) = asking("").await;
    let no = json!({"decision": "deny", "message": "not today"});
    assert_eq!(decided(app.client(), &approval, no).await, "resolved");
    assert_eq!(stream.collect().await.text, "Done.");
    assert!(upstream.last().tool_results()[0].1.contains("not today"));
    assert!(hook.calls().is_empty());
    let logs = app.logs();
    let audit = logs.lines().find(|line| line.contains("audit")).unwrap();
    assert!(!audit.contains("session_id"), "{audit}");
}

#[tokio::test]
async fn what_nobody_decides_in_time_is_denied_in_the_same_answer() {
    let (upstream, hook, app, stream, _approval) = asking("approval_wait = 1").await;
    assert_eq!(stream.collect().await.text, "Done.");
    assert!(
        upstream.last().tool_results()[0]
            .1
            .contains("nobody decided")
    );
    assert!(hook.calls().is_empty() && listed(&app).await.is_empty());
}

#[tokio::test]
async fn a_reader_that_leaves_takes_the_question_along() {
    let (_upstream, hook, app, stream, approval) = asking("").await;
    drop(stream);
    eventually("the end of the turn", || async {
        listed(&app).await.is_empty().then_some(())
    })
    .await;
    let late = decide(app.client(), &approval, json!({"decision": "approve"})).await;
    assert_eq!(late.status, 404);
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn without_a_stream_nobody_is_asked() {
    let script = [calls([charge(5)]), text("Done.")];
    let (upstream, hook, app) = start(script, "").await;
    let answer = app.post_chat(unstored()).await;
    assert_eq!(answer.content(), "Done.");
    assert!(
        upstream.last().tool_results()[0]
            .1
            .contains("nobody can give it")
    );
    assert!(hook.calls().is_empty() && listed(&app).await.is_empty());
}

#[tokio::test]
async fn a_key_sees_and_decides_its_own_only() {
    let script = [calls([charge(5)]), text("Done.")];
    let (upstream, hook) = (ScriptedUpstream::start(script).await, hook().await);
    let names = ["ALICE", "BOB"];
    let key = |name: &str| format!("key-of-{name}-with-sixteen-characters");
    let keys = names.map(|name| format!("[[api_keys]]\nname = '{name}'\nenv = '{name}'\n"));
    let builder = names
        .into_iter()
        .fold(server(&upstream, &hook, ""), |builder, name| {
            builder.env(name, &key(name))
        });
    let app = builder.toml(&keys.concat()).start().await;
    let [alice, bob] = names.map(|name| app.client().key(&key(name)));
    let mut stream = alice.stream_chat(unstored()).await;
    let approval = question(&mut stream).await;
    let of_bob = bob.get("/v1/agent/approvals").await.json();
    assert_eq!(of_bob["data"], json!([]));
    let foreign = decide(&bob, &approval, json!({"decision": "approve"})).await;
    assert_eq!(foreign.status, 404);
    assert_eq!(
        decided(&alice, &approval, json!({"decision": "approve"})).await,
        "resolved"
    );
    assert_eq!(stream.collect().await.text, "Done.");
}
