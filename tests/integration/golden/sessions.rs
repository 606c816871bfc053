//! Sessions: joined, edited, branched, exported and imported.

use http::Method;
use serde_json::{Value, json};

use super::builder;
use super::record::Golden;
use crate::support::app::TestApp;
use crate::support::ask::{assistant, tool, user};
use crate::support::script::{Reply, text, text_and_calls};
use crate::support::upstream::{MODEL, ScriptedUpstream};
use crate::support::webhook::{self, Webhook};

/// Replies of seven turns, the first with a round.
fn script() -> Vec<Reply> {
    let mut replies = vec![text_and_calls("Let me look.", [("t", json!({"n": 1}))])];
    replies.extend((1..=8).map(|number| text(&format!("Answer {number}."))));
    replies
}

#[tokio::test]
async fn append_replay_and_edit() {
    let upstream = ScriptedUpstream::start(script()).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    let shown = "Let me look.\n\nAnswer 1.";
    let system = |words: &str| json!({"role": "system", "content": words});
    for (heading, mode, messages) in [
        ("new", "auto", json!([system("Be brief."), user("Q1")])),
        ("append", "auto", json!([user("Q2")])),
        (
            "replay",
            "auto",
            json!([
                system("Be long."),
                user("Q1"),
                assistant(shown),
                user("Q2"),
                assistant(" Answer 2. "),
                user("Q3")
            ]),
        ),
        (
            "edit the second question",
            "replay",
            json!([user("Q1"), assistant(shown), user("Q2, edited")]),
        ),
        (
            "regenerate the last answer",
            "replay",
            json!([user("Q1"), assistant(shown), user("Q2, edited")]),
        ),
        (
            "edit the first answer",
            "auto",
            json!([user("Q1"), assistant("Something else."), user("Q4")]),
        ),
        (
            "append by force",
            "append",
            json!([user("Q5"), assistant("A5"), user("Q6")]),
        ),
    ] {
        golden.heading(heading);
        let body = json!({
            "model": MODEL, "session_id": "s", "messages": messages, "tools": [tool("t")],
            "agent": {"session_mode": mode},
        });
        golden.chat(app.client(), &body).await;
        golden.upstream(&upstream);
        golden.session(app.client(), "s").await;
    }
    golden.check("append_replay_and_edit");
}

/// Sends a body and records the answer.
async fn send(golden: &mut Golden, app: &TestApp, method: Method, path: &str, body: &Value) {
    golden.heading(&format!("{method} {path} {body}"));
    let request = app
        .client()
        .request(method, path)
        .header("content-type", "application/json");
    golden.ask(request.body(body.to_string())).await;
}

#[tokio::test]
async fn list_fork_import_and_delete() {
    let upstream = ScriptedUpstream::start(script()).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    let body =
        json!({"model": MODEL, "session_id": "s", "messages": [user("Q1")], "tools": [tool("t")]});
    golden.streamed_chat(app.client(), &body).await;
    golden.session(app.client(), "s").await;
    let export = app.get("/v1/sessions/s").await.json();
    let imported = json!({"messages": export["messages"], "agent": export["agent"]});
    send(
        &mut golden,
        &app,
        Method::PUT,
        "/v1/sessions/copy",
        &imported,
    )
    .await;
    send(
        &mut golden,
        &app,
        Method::PUT,
        "/v1/sessions/copy",
        &imported,
    )
    .await;
    golden.session(app.client(), "copy").await;
    for body in [
        json!({"before_message": 1, "id": "branch"}),
        json!({"id": "branch"}),
        json!({"before_message": 99}),
        json!({}),
    ] {
        send(
            &mut golden,
            &app,
            Method::POST,
            "/v1/sessions/s/fork",
            &body,
        )
        .await;
    }
    for body in [
        json!({"messages": "x"}),
        json!({}),
        json!([]),
        json!({"messages": [user("Q"), {"content": "no role"}]}),
        json!({"messages": [user("Q")], "agent": {"message_meta": [{"index": 4}]}}),
    ] {
        send(&mut golden, &app, Method::PUT, "/v1/sessions/bad", &body).await;
    }
    let plain = json!({"messages": [
        {"role": "user", "content": {"Left": "Weather?"}},
        {"role": "assistant", "content": {"Left": ""}, "tool_calls": [
            {"type": "function", "function": {"name": "web_search", "arguments": "{\"query\":\"weather\"}"}}
        ]},
        {"role": "tool", "content": {"Left": "sunny"}},
        {"role": "assistant", "content": {"Left": "It is sunny."}},
    ]});
    send(&mut golden, &app, Method::PUT, "/v1/sessions/m", &plain).await;
    golden.session(app.client(), "m").await;
    for bad in ["limit=0", "limit=x", "after=a/b"] {
        golden
            .get(app.client(), &format!("/v1/sessions?{bad}"))
            .await;
    }
    for _ in 0..2 {
        let delete = app.client().request(Method::DELETE, "/v1/sessions/s");
        golden.ask(delete).await;
    }
    golden.check("list_fork_import_and_delete");
}
