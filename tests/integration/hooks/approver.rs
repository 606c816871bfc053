//! The service that is asked for an approval before a person is.

use serde_json::{Value, json};

use super::receiver::{Receiver, hang, output, said};
use super::{Answer, ScriptedUpstream, TestApp, ask_with, calling, outcomes, owned, tools, with};
use crate::support::server::HttpReply;

/// A server whose rules ask about every charge, and whose approver answers like this.
async fn app(receiver: &Receiver, upstream: &ScriptedUpstream, more: &str) -> (TestApp, Tools) {
    let tools = tools().await;
    let rules = "[[permissions]]\ntool = 'charge'\neffect = 'ask'\n\
                 [[permissions]]\ntool = 'charge'\nargument = '/n'\nmatch = 'regex'\npatterns = ['^666$']\neffect = 'deny'\n";
    let builder = TestApp::builder().upstream(upstream).dispatch(&tools);
    let section = receiver.approver(more);
    let app = builder.toml(&format!("{section}{rules}")).start().await;
    (app, tools)
}

type Tools = super::Webhook;

/// The answer to one call with `n`, and what the tools were called with.
async fn asked_about(n: Value, reply: fn(&Value) -> HttpReply, more: &str) -> (Answer, Vec<Value>) {
    let receiver = Receiver::start(move |_, event| reply(event)).await;
    let upstream = calling([("charge", json!({"n": n}))]).await;
    let (app, tools) = app(&receiver, &upstream, more).await;
    let answer = app.post_chat(ask_with("Pay", ["charge"])).await;
    let seen = receiver.bodies();
    assert_eq!(seen.len(), 1, "asked once");
    assert_eq!(seen[0]["hook_event_name"], "PermissionRequest");
    assert_eq!(seen[0]["tool_input"], json!({"n": n}));
    assert_eq!(seen[0]["arguments_sha256"].as_str().unwrap().len(), 64);
    let made = tools.calls();
    let made = made.iter().map(|call| call.arguments().clone());
    (answer, made.collect())
}

fn stopped(answer: &Answer) -> Value {
    answer.completion()["agent"]["stop_reason"].clone()
}

#[tokio::test]
async fn what_it_allows_runs_and_nobody_is_asked() {
    let flat: fn(&Value) -> HttpReply = |_| output(&json!({"permissionDecision": "allow"}));
    let nested: fn(&Value) -> HttpReply = |_| {
        output(&json!({"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}))
    };
    for reply in [flat, nested] {
        let (answer, made) = asked_about(json!("5"), reply, "").await;
        assert_eq!(answer.content(), "Done.");
        assert_eq!(made, [json!({"n": "5"})]);
    }
}

#[tokio::test]
async fn what_it_denies_does_not_run_and_the_model_is_told_why() {
    let flat: fn(&Value) -> HttpReply = |_| {
        output(&json!({"permissionDecision": "deny", "permissionDecisionReason": "over budget"}))
    };
    let nested: fn(&Value) -> HttpReply =
        |_| output(&json!({"decision": {"behavior": "deny", "message": "over budget"}}));
    for reply in [flat, nested] {
        let (answer, made) = asked_about(json!("5"), reply, "").await;
        assert_eq!(answer.content(), "Done.");
        let denied = "This call of 'charge' is not permitted: over budget";
        assert_eq!(outcomes(&answer), owned([("denied", denied)]));
        assert!(made.is_empty());
    }
}

#[tokio::test]
async fn changed_arguments_pass_the_rules_again() {
    let changed: fn(&Value) -> HttpReply =
        |_| output(&json!({"decision": {"behavior": "allow", "updatedInput": {"n": "1"}}}));
    let (answer, made) = asked_about(json!("5"), changed, "").await;
    assert_eq!(answer.content(), "Done.");
    assert_eq!(made, [json!({"n": "1"})]);
    let entry = answer.completion()["agentic_tool_calls"][0].clone();
    assert!(
        entry["arguments"].as_str().unwrap().contains("\"1\""),
        "{entry}"
    );
    let forbidden: fn(&Value) -> HttpReply =
        |_| output(&json!({"decision": {"behavior": "allow", "updatedInput": {"n": "666"}}}));
    let (answer, made) = asked_about(json!("5"), forbidden, "").await;
    assert_eq!(outcomes(&answer)[0].0, "denied");
    assert!(made.is_empty());
}

#[tokio::test]
async fn what_it_does_not_decide_is_left_to_a_person() {
    let silent: fn(&Value) -> HttpReply = |_| HttpReply {
        status: 204,
        ..HttpReply::default()
    };
    let asks: fn(&Value) -> HttpReply = |_| output(&json!({"permissionDecision": "ask"}));
    let fails: fn(&Value) -> HttpReply = |_| HttpReply::whole(500, "text/plain", "no");
    let garbage: fn(&Value) -> HttpReply = |_| said(&json!([]));
    let late: fn(&Value) -> HttpReply = |_| hang();
    for reply in [silent, asks, fails, garbage, late] {
        let (answer, made) = asked_about(json!("5"), reply, "timeout = 0.3").await;
        assert_eq!(stopped(&answer), "approval_required");
        assert!(made.is_empty());
    }
    let (answer, made) = asked_about(json!("5"), fails, "on_failure = 'block'").await;
    assert_eq!(answer.content(), "Done.");
    assert_eq!(outcomes(&answer)[0].0, "denied");
    assert!(made.is_empty());
}

#[tokio::test]
async fn a_call_that_waits_is_not_asked_about_again() {
    let receiver = Receiver::always(json!({})).await;
    let upstream = calling([("charge", json!({"n": "1"}))]).await;
    let (app, tools) = app(&receiver, &upstream, "").await;
    let pay = with(ask_with("Pay", ["charge"]), "session_id", json!("s"));
    let first = app.post_chat(pay.clone()).await;
    let go_on = with(pay, "messages", json!([]));
    assert_eq!(
        stopped(&app.post_chat(go_on.clone()).await),
        "approval_required"
    );
    let id = first.completion()["agent"]["approvals"][0]["approval_id"].clone();
    let path = format!("/v1/agent/approvals/{}", id.as_str().unwrap());
    let decided = app
        .client()
        .post(&path, &json!({"decision": "approve"}))
        .await;
    assert_eq!(decided.status, 200);
    assert_eq!(app.post_chat(go_on).await.content(), "Done.");
    assert_eq!(tools.names(), ["charge"]);
    assert_eq!(receiver.bodies().len(), 1);
}

#[tokio::test]
async fn what_a_hook_adds_joins_the_result_of_a_call_that_has_waited() {
    let asks = json!({"permissionDecision": "ask", "additionalContext": "look twice"});
    let receiver = Receiver::start(move |_, _| output(&asks)).await;
    let upstream = calling([("charge", json!({"n": "1"}))]).await;
    let tools = tools().await;
    let hooks = receiver.entry("before_tool", "/", "");
    let app = super::app(&upstream, &tools, &hooks).await;
    let pay = with(ask_with("Pay", ["charge"]), "session_id", json!("s"));
    let first = app.post_chat(pay.clone()).await;
    assert_eq!(stopped(&first), "approval_required");
    let id = first.completion()["agent"]["approvals"][0]["approval_id"].clone();
    let path = format!("/v1/agent/approvals/{}", id.as_str().unwrap());
    let approve = json!({"decision": "approve"});
    assert_eq!(app.client().post(&path, &approve).await.status, 200);
    let go_on = with(pay, "messages", json!([]));
    assert_eq!(app.post_chat(go_on).await.content(), "Done.");
    assert_eq!(upstream.last().tool_results()[0].1, "r\nlook twice");
    assert_eq!(receiver.bodies().len(), 1);
}
