//! Rules, approvals, hooks and redaction: a call outside of a turn takes the path of every call.

use super::*;
use crate::hooks::receiver::{Receiver, output};
use crate::support::ask::{ask_with, with};
use crate::support::script::calls;

#[tokio::test]
async fn a_call_that_the_rules_deny_is_denied() {
    let hook = Webhook::start()
        .await
        .on("t", webhook::text("r"))
        .on("u", webhook::text("r"));
    let rules = "[[permissions]]\ntool = \"t\"\nargument = \"/path\"\nmatch = \"path\"\npatterns = [\"/etc/**\"]\n\
                 effect = \"deny\"\nreason = \"system files\"\n\
                 [[permissions]]\ntool = \"u\"\neffect = \"deny\"\n";
    let app = builder(&hook).await.toml(rules).start().await;
    let denied = entry(app.client(), "t", json!({"path": "/srv/../etc/passwd"})).await;
    assert_eq!(denied["status"], "denied");
    assert_eq!(
        denied["result_content"],
        "This call of 't' is not permitted: system files"
    );
    assert_eq!(
        entry(app.client(), "t", json!({"path": "/srv"})).await["status"],
        "ok"
    );
    let never = entry(app.client(), "u", json!({})).await;
    assert_eq!(never["status"], "denied");
    assert_eq!(hook.calls().len(), 1);
    assert!(app.logs().contains("a call was decided about"));
}

#[tokio::test]
async fn a_call_that_needs_an_approval_is_refused_with_the_rule() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let upstream = ScriptedUpstream::start([calls([("t", json!({"a": 1}))])]).await;
    let rules = "[[permissions]]\ntool = \"nothing\"\neffect = \"deny\"\n[[permissions]]\ntool = \"t\"\neffect = \"ask\"\n\
                 reason = \"costs money\"\n";
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(rules)
        .start()
        .await;
    let refused = call(app.client(), "t", &json!({"arguments": {"a": 1}})).await;
    let message = refused.assert_error(403, Some("approval_required"));
    for part in [
        "'t'",
        "index 1",
        "'server'",
        "costs money",
        "nothing was done",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(hook.calls().is_empty());
    let list = app.get("/v1/agent/approvals").await.json();
    assert_eq!(list["data"], json!([]));
    // A person may have allowed all calls of the tool in a session.
    let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
    app.post_chat(body).await.completion();
    let list = app.get("/v1/agent/approvals").await.json();
    let id = list["data"][0]["approval_id"].as_str().unwrap().to_owned();
    let decision = json!({"decision": "approve", "remember_for_session": "tool"});
    let decided = app
        .post(&format!("/v1/agent/approvals/{id}"), &decision)
        .await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    let granted = call(
        app.client(),
        "t",
        &json!({"arguments": {"a": 2}, "session_id": "s"}),
    )
    .await;
    assert_eq!(granted.json()["status"], "ok", "{}", granted.text());
    let elsewhere = call(app.client(), "t", &json!({"arguments": {"a": 2}})).await;
    elsewhere.assert_error(403, Some("approval_required"));
}

#[tokio::test]
async fn a_refusal_for_want_of_an_approval_leaves_the_key_free() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = builder(&hook)
        .await
        .toml("agent_permission = \"ask\"\n")
        .start()
        .await;
    let client = app.client().header("idempotency-key", "k");
    for _ in 0..2 {
        let refused = call(&client, "t", &json!({})).await;
        refused.assert_error(403, Some("approval_required"));
        assert!(refused.header("idempotency-replayed").is_none());
    }
}

#[tokio::test]
async fn hooks_change_arguments_and_results() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let before = Receiver::start(|path, _| match path {
        "/before" => output(&json!({"updatedInput": {"a": 2}, "additionalContext": "noted"})),
        _ => output(&json!({"updatedToolOutput": "changed"})),
    })
    .await;
    let hooks = [
        before.entry("before_tool", "/before", ""),
        before.entry("after_tool", "/after", ""),
    ];
    let app = builder(&hook).await.toml(&hooks.concat()).start().await;
    let changed = entry(app.client(), "t", json!({"a": 1})).await;
    assert_eq!(changed["arguments"], r#"{"a":2}"#);
    assert_eq!(hook.call(0).arguments(), &json!({"a": 2}));
    let content = changed["result_content"].as_str().unwrap();
    assert!(content.starts_with("changed"), "{content}");
    let seen = before.bodies();
    assert_eq!(seen[0]["hook_event_name"], "PreToolUse");
    assert_eq!(seen[0]["tool_name"], "t");
    let denying = Receiver::always(json!({"decision": "block", "reason": "not today"})).await;
    let app = builder(&hook)
        .await
        .toml(&denying.entry("before_tool", "/", ""))
        .start()
        .await;
    let denied = entry(app.client(), "t", json!({})).await;
    assert_eq!(denied["status"], "denied");
    assert_eq!(hook.calls().len(), 1);
}

#[tokio::test]
async fn results_are_redacted_and_capped() {
    let secret = ["ghp", "_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
    let long = format!("{secret} {}", "x".repeat(5000));
    let hook = Webhook::start().await.on("t", webhook::text(&long));
    let app = builder(&hook)
        .await
        .toml("max_result_chars = 1000\n")
        .start()
        .await;
    let entry = entry(app.client(), "t", json!({})).await;
    let content = entry["result_content"].as_str().unwrap();
    assert!(content.starts_with("[hidden] xxx"), "{content}");
    assert!(content.chars().count() < 1200, "{}", content.len());
    assert!(!entry.to_string().contains(&secret));
}

#[tokio::test]
async fn a_tool_that_takes_too_long_is_a_timeout() {
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = builder(&hook)
        .await
        .toml("dispatch_timeout = 0.2\n")
        .start()
        .await;
    assert_eq!(
        entry(app.client(), "t", json!({})).await["status"],
        "timeout"
    );
    let app = builder(&hook).await.toml("max_seconds = 1\n").start().await;
    let cancelled = entry(app.client(), "t", json!({})).await;
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
}
