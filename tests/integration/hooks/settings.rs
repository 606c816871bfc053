//! The settings of hooks: signatures, and what is refused.

use serde_json::{Value, json};

use super::receiver::Receiver;
use super::{calling, tools};
use crate::support::app::TestApp;
use crate::support::ask::ask_with;

/// The secret with which hooks are signed.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[tokio::test]
async fn requests_are_signed() {
    let receiver = Receiver::always(json!({})).await;
    let hooks = ["before_tool", "after_tool", "before_model", "before_finish"]
        .map(|on| receiver.entry(on, "/", "secret_env = \"POLICY_SECRET\""))
        .concat();
    let upstream = calling([("charge", json!({}))]).await;
    let tools = tools().await;
    let builder = TestApp::builder().upstream(&upstream).dispatch(&tools);
    let app = builder.toml(&hooks).env("POLICY_SECRET", SECRET);
    let app = app.start().await;
    let answer = app.post_chat(ask_with("Pay", ["charge"])).await;
    assert_eq!(answer.content(), "Done.");
    let verifier = standardwebhooks::Webhook::new(SECRET).unwrap();
    let seen = receiver.seen();
    for request in &seen {
        verifier.verify(&request.bytes, &request.headers).unwrap();
        assert_eq!(request.headers["content-type"], "application/json");
    }
    let events: Vec<Value> = (seen.iter())
        .map(|request| request.body["hook_event_name"].clone())
        .collect();
    let expected = [
        "PreModelCall",
        "PreToolUse",
        "PostToolUse",
        "PreModelCall",
        "Stop",
    ];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn settings_that_cannot_be_used_end_the_start() {
    for (lines, expected) in [
        ("on = 'PreToolUse'\nurl = 'http://h/'", "before_tool"),
        (
            "on = 'before_tool'\nurl = 'http://u:pw-secret@h/'",
            "credentials",
        ),
        (
            "on = 'before_model'\nurl = 'http://h/'\ntools = ['*']",
            "hooks[0].tools",
        ),
    ] {
        let app = TestApp::builder()
            .upstream_url("http://127.0.0.1:9/v1")
            .toml(&format!("[[hooks]]\n{lines}\n"));
        let ended = app.run("check-config").await;
        assert_eq!(ended.code, Some(2), "{lines}");
        assert!(
            ended.stderr.contains(expected),
            "{} {expected}",
            ended.stderr
        );
    }
}
