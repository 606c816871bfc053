//! Whose an error is, whose key was refused, and a choice of tools that the model server does not heed.

use serde_json::{Value, json};

use super::{ALICE, KEY, keyed, logged, refused};
use crate::support::app::TestApp;
use crate::support::ask::{ask, ask_with, with};
use crate::support::client::Answer;
use crate::support::script::{calls, error, status, text};
use crate::support::server::HttpReply;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

const SOURCE: &str = "x-loopwright-error-source";

fn response(stream: bool) -> Value {
    json!({"model": "m", "input": "Go", "stream": stream, "store": false})
}

#[tokio::test]
async fn an_error_of_the_model_server_says_that_it_is_one() {
    let body = r#"{"error": {"message": "Incorrect API key provided.",  "type":"x"}}"#;
    let upstream = ScriptedUpstream::answering(move |_| {
        status(401, &[("content-type", "application/json")], body)
    })
    .await
    .lenient()
    .listing([refused(401)]);
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let loops = ask_with("Go", ["t"]);
    for (path, asked) in [
        // Passed through.
        ("/v1/chat/completions", ask("Go")),
        (
            "/v1/chat/completions",
            with(ask("Go"), "stream", json!(true)),
        ),
        // In the loop.
        ("/v1/chat/completions", loops.clone()),
        ("/v1/chat/completions", with(loops, "stream", json!(true))),
        ("/v1/responses", response(false)),
        ("/v1/responses", response(true)),
    ] {
        let answer = app.post(path, &asked).await;
        assert_eq!(answer.status, 401, "{path} {asked}");
        assert_eq!(answer.text(), body, "{path} {asked}");
        assert_eq!(answer.header(SOURCE), Some("upstream"), "{path} {asked}");
    }
    let models = app.get("/v1/models").await;
    assert_eq!(
        (models.status.as_u16(), models.header(SOURCE)),
        (401, Some("upstream"))
    );
    // Loopwright's own errors, and answers without one.
    let wrong = app.post("/v1/chat/completions", &json!({"model": 1})).await;
    assert_eq!((wrong.status.as_u16(), wrong.header(SOURCE)), (400, None));
    let echoed = app.post("/v1/embeddings", &json!({"input": "x"})).await;
    assert_eq!((echoed.status.as_u16(), echoed.header(SOURCE)), (200, None));
}

#[tokio::test]
async fn a_forwarded_error_says_whose_it_is_and_keeps_its_bytes() {
    for (code, own) in [
        (403, "secret"),
        (404, "nothing here"),
        (500, "oops"),
        (429, ""),
    ] {
        let upstream = ScriptedUpstream::start([]).await;
        let upstream = upstream.listing([HttpReply::whole(code, "text/plain", own)]);
        let app = TestApp::builder()
            .upstream(&upstream)
            .toml("[retry]\nmax_attempts = 1");
        let app = app.start().await;
        // A path with a query is forwarded as it is; the model server answers it as it does without.
        let answer = app.get("/v1/models?x=1").await;
        assert_eq!(answer.status, code);
        assert_eq!(
            (answer.text().as_str(), answer.header(SOURCE)),
            (own, Some("upstream"))
        );
    }
    let url = crate::support::unreachable_url().await;
    let app = TestApp::builder()
        .upstream_url(&url)
        .toml("[retry]\nmax_attempts = 1");
    let app = app.start().await;
    let answer = app.post("/v1/embeddings", &json!({"input": "x"})).await;
    assert_eq!((answer.status.as_u16(), answer.header(SOURCE)), (502, None));
}

#[tokio::test]
async fn the_log_says_whose_key_was_refused() {
    let remedy_of_none = "loopwright has no key for it; set --upstream-api-key-env";
    let remedy_of_clients = "passes on what clients send; set --upstream-api-key-env";
    let remedy_of_own = "the key in MODEL_KEY is not accepted";
    for (has_key, has_api_keys, remedy) in [
        (false, false, remedy_of_clients),
        (false, true, remedy_of_none),
        (true, false, remedy_of_own),
        (true, true, remedy_of_own),
    ] {
        for asked in [ask("Go"), with(ask("Go"), "session_id", json!("s"))] {
            let upstream = ScriptedUpstream::answering(|request| {
                let number = request.body["messages"].as_array().map_or(0, Vec::len);
                error(if number == 1 { 401 } else { 403 }, "no")
            })
            .await;
            let app = keyed(&upstream, has_key, has_api_keys).start().await;
            let client = app.client().key(ALICE);
            assert_eq!(client.post_chat(asked.clone()).await.status, 401, "{asked}");
            let parts = [
                "WARN",
                "the model server refused the key of upstream default; ",
                remedy,
            ];
            logged(&app, &parts).await;
            // Not for each request.
            client.post_chat(asked).await;
            let logs = app.logs();
            assert_eq!(
                logs.matches("refused the key of upstream").count(),
                1,
                "{logs}"
            );
            assert!(!logs.contains(KEY) && !logs.contains(ALICE), "{logs}");
        }
    }
}

fn kinds(notices: &Value) -> Vec<&str> {
    let notices = notices.as_array().into_iter().flatten();
    notices
        .filter_map(|notice| notice["type"].as_str().or_else(|| notice["kind"].as_str()))
        .collect()
}

#[tokio::test]
async fn a_choice_of_tools_that_is_not_heeded_is_said() {
    let upstream = ScriptedUpstream::answering(|_| text("I would rather talk.")).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml("dispatch_tools = [\"*\"]").start().await;
    let named = json!({"type": "function", "function": {"name": "t"}});
    let allowed =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}});
    for (choice, expected) in [
        (json!("required"), true),
        (json!("any"), true),
        (named, true),
        (allowed, true),
        (json!("auto"), false),
        (json!("none"), false),
        (Value::Null, false),
    ] {
        let asked = match &choice {
            Value::Null => ask_with("Go", ["t"]),
            choice => with(ask_with("Go", ["t"]), "tool_choice", choice.clone()),
        };
        let whole = app.post_chat(asked.clone()).await.completion();
        let has = kinds(&whole["agent"]["notices"]).contains(&"tool_choice_ignored");
        assert_eq!(has, expected, "{choice}: {whole}");
        let streamed = app.stream_chat(asked).await.collect().await;
        let told = streamed.transcript().contains("tool_choice_ignored");
        assert_eq!(told, expected, "{choice}");
    }
    let tool = json!({"type": "function", "name": "t", "parameters": {"type": "object"}});
    let asked = with(
        with(response(false), "tools", json!([tool])),
        "tool_choice",
        json!("required"),
    );
    let answer: Answer = app.post("/v1/responses", &asked).await;
    assert!(
        answer.text().contains("tool_choice_ignored"),
        "{}",
        answer.text()
    );
    let line = logged(
        &app,
        &[
            "WARN",
            "called no tool although tool_choice asks for one",
            "--jinja",
        ],
    )
    .await;
    assert!(line.contains("--enable-auto-tool-choice"), "{line}");
    // Once for each model.
    let count = app.logs().matches("called no tool although").count();
    assert_eq!(count, 2, "{}", app.logs());
}

#[tokio::test]
async fn a_choice_that_is_heeded_or_cut_short_is_not_reported() {
    for reply in [
        calls([("t", json!({}))]),
        text("I was going to").finish("length"),
        text("I was going to").finish("content_filter"),
    ] {
        let upstream = ScriptedUpstream::start([reply, text("Done.")]).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let app = TestApp::with_tools(&upstream, &hook).await;
        let asked = with(ask_with("Go", ["t"]), "tool_choice", json!("required"));
        let whole = app.post_chat(asked).await.completion();
        assert!(
            !kinds(&whole["agent"]["notices"]).contains(&"tool_choice_ignored"),
            "{whole}"
        );
        assert!(!app.logs().contains("although tool_choice"));
    }
}

#[tokio::test]
async fn the_likely_cause_depends_on_the_server() {
    for (kind, part) in [
        ("llama.cpp", "start llama-server with --jinja"),
        ("vllm", "--tool-call-parser"),
        ("ollama", "ignores tool_choice"),
    ] {
        let upstream = ScriptedUpstream::answering(|_| text("No.")).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
        let app = builder.args(["--upstream-kind", kind]).start().await;
        let asked = with(ask_with("Go", ["t"]), "tool_choice", json!("required"));
        app.post_chat(asked).await.completion();
        logged(&app, &["WARN", "called no tool although", part]).await;
    }
}
