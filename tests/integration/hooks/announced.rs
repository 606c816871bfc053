//! The webhook that hears of calls which wait for a person.

use serde_json::{Value, json};

use super::receiver::{Receiver, said};
use super::{Answer, TestApp, Webhook, ask_with, calling, tools, with};
use crate::support::app::Builder;
use crate::support::eventually;
use crate::support::server::HttpReply;
use crate::support::upstream::ScriptedUpstream;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const RULE: &str = "[[permissions]]\ntool = 'charge'\neffect = 'ask'\nreason = 'money'\n";

fn builder(
    upstream: &ScriptedUpstream,
    tools: &Webhook,
    receiver: &Receiver,
    more: &str,
) -> Builder {
    let section = receiver.approval_webhook("secret_env = 'APPROVAL_SECRET'");
    let builder = TestApp::builder().upstream(upstream).dispatch(tools);
    let builder = builder.toml(&format!("{more}\n{section}{RULE}"));
    builder.env("APPROVAL_SECRET", SECRET)
}

fn pay(session: &str) -> Value {
    with(
        ask_with("Pay", ["charge"]),
        "session_id",
        Value::from(session),
    )
}

fn approval(answer: &Answer) -> Value {
    answer.completion()["agent"]["approvals"][0].clone()
}

async fn approve(app: &TestApp, approval: &Value) {
    let path = format!(
        "/v1/agent/approvals/{}",
        approval["approval_id"].as_str().unwrap()
    );
    let decided = app
        .client()
        .post(&path, &json!({"decision": "approve"}))
        .await;
    assert_eq!(decided.status, 200, "{}", decided.text());
}

/// Waits until so many events have come.
async fn told(receiver: &Receiver, count: usize) -> Vec<Value> {
    eventually("events", || async {
        let bodies = receiver.bodies();
        (bodies.len() >= count).then_some(bodies)
    })
    .await
}

fn types(bodies: &[Value]) -> Vec<&str> {
    let types = bodies.iter().map(|body| body["type"].as_str().unwrap());
    types.collect()
}

#[tokio::test]
async fn it_hears_of_a_question_and_of_its_decision() {
    let receiver = Receiver::always(json!({})).await;
    let (upstream, tools) = (
        calling([("charge", json!({"card": "4711"}))]).await,
        tools().await,
    );
    let app = builder(&upstream, &tools, &receiver, "").start().await;
    let answer = app.post_chat(pay("s")).await;
    let asked = approval(&answer);
    let requested = told(&receiver, 1).await.remove(0);
    let session_key = requested["session_key"].as_str().unwrap();
    assert!(!session_key.is_empty() && session_key != "s");
    let expected = json!({
        "type": "approval.requested",
        "approval_id": asked["approval_id"],
        "run_id": answer.completion()["id"],
        "session_id": "s",
        "session_key": session_key,
        "tool": "charge",
        "reason": "money",
        "expires_at": asked["expires_at"],
    });
    assert_eq!(requested, expected);
    approve(&app, &asked).await;
    let bodies = told(&receiver, 2).await;
    let decided = with(expected, "type", json!("approval.decided"));
    assert_eq!(bodies[1], decided);
    let answer = app.post_chat(with(pay("s"), "messages", json!([]))).await;
    assert_eq!(answer.content(), "Done.");
    let verifier = standardwebhooks::Webhook::new(SECRET).unwrap();
    for request in receiver.seen() {
        verifier.verify(&request.bytes, &request.headers).unwrap();
        assert!(!String::from_utf8_lossy(&request.bytes).contains("4711"));
    }
    assert_eq!(receiver.seen().len(), 2, "nothing is told twice");
}

#[tokio::test]
async fn it_hears_of_what_nobody_decided_and_of_what_was_left() {
    let receiver = Receiver::always(json!({})).await;
    let (upstream, tools) = (calling([("charge", json!({}))]).await, tools().await);
    let app = builder(&upstream, &tools, &receiver, "approval_timeout = 1")
        .start()
        .await;
    app.post_chat(pay("s")).await;
    let bodies = told(&receiver, 2).await;
    assert_eq!(types(&bodies), ["approval.requested", "approval.expired"]);
    assert_eq!(bodies[0]["approval_id"], bodies[1]["approval_id"]);

    let receiver = Receiver::always(json!({})).await;
    let (upstream, tools) = (calling([("charge", json!({}))]).await, self::tools().await);
    let app = builder(&upstream, &tools, &receiver, "").start().await;
    app.post_chat(pay("s")).await;
    told(&receiver, 1).await;
    // The user says something else.
    let text = json!([{"role": "user", "content": "Never mind."}]);
    let next = app.post_chat(with(pay("s"), "messages", text)).await;
    assert_eq!(next.content(), "Done.");
    let bodies = told(&receiver, 2).await;
    assert_eq!(types(&bodies), ["approval.requested", "approval.expired"]);
    assert!(tools.calls().is_empty());
}

#[tokio::test]
async fn a_receiver_that_fails_holds_nothing_up_and_is_told_again() {
    let receiver = Receiver::start({
        let failures = std::sync::atomic::AtomicUsize::new(0);
        move |_, _| match failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => HttpReply::whole(500, "text/plain", "no"),
            _ => said(&json!({})),
        }
    })
    .await;
    let (upstream, tools) = (calling([("charge", json!({}))]).await, tools().await);
    let app = builder(&upstream, &tools, &receiver, "").start().await;
    let asked = approval(&app.post_chat(pay("s")).await);
    approve(&app, &asked).await;
    let answer = app.post_chat(with(pay("s"), "messages", json!([]))).await;
    assert_eq!(answer.content(), "Done.");
    let bodies = told(&receiver, 3).await;
    let expected = [
        "approval.requested",
        "approval.requested",
        "approval.decided",
    ];
    assert_eq!(types(&bodies), expected);
}

#[tokio::test]
async fn an_event_before_the_end_of_the_process_is_told_once() {
    let receiver = Receiver::always(json!({})).await;
    let (upstream, tools) = (calling([("charge", json!({}))]).await, tools().await);
    let mut app = builder(&upstream, &tools, &receiver, "").start().await;
    let asked = approval(&app.post_chat(pay("s")).await);
    told(&receiver, 1).await;
    app.kill9().await;
    app.restart().await;
    approve(&app, &asked).await;
    let bodies = told(&receiver, 2).await;
    assert_eq!(types(&bodies), ["approval.requested", "approval.decided"]);
}

#[cfg(feature = "postgres")]
#[tokio::test]
#[ignore = "needs PostgreSQL; tests/run installs it"]
async fn two_replicas_tell_each_event_once() {
    use crate::support::postgres::PostgresServer;

    let receiver = Receiver::always(json!({})).await;
    let (upstream, tools) = (ScriptedUpstream::start(questions()).await, tools().await);
    let database = PostgresServer::shared().create_database().await;
    let replica = async || -> TestApp {
        let builder = builder(&upstream, &tools, &receiver, "");
        builder
            .env("LOOPWRIGHT_SESSION_STORE", &database)
            .start()
            .await
    };
    let (first, second) = (replica().await, replica().await);
    for number in 0..QUESTIONS {
        let app = [&first, &second][number % 2];
        let asked = approval(&app.post_chat(pay(&format!("s{number}"))).await);
        approve(app, &asked).await;
    }
    let bodies = told(&receiver, 2 * QUESTIONS).await;
    let mut events: Vec<_> = (bodies.iter())
        .map(|body| (body["approval_id"].to_string(), body["type"].to_string()))
        .collect();
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), 2 * QUESTIONS);
    assert_eq!(receiver.bodies().len(), 2 * QUESTIONS);
}

#[cfg(feature = "postgres")]
const QUESTIONS: usize = 12;

#[cfg(feature = "postgres")]
fn questions() -> [crate::support::script::Reply; QUESTIONS] {
    std::array::from_fn(|_| crate::support::script::calls([("charge", json!({}))]))
}
