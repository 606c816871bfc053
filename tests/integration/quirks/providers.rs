//! What the servers of providers insist on, and how such a server is recognised.

use serde_json::{Value, json};

use super::{app, builder, entry, hook};
use crate::support::app::TestApp;
use crate::support::ask::{ask_with, with};
use crate::support::script::{self, calls, text};
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
}

/// A request with these messages after a question.
fn asking(messages: &Value) -> Value {
    let mut all = vec![json!({"role": "user", "content": "Go"})];
    all.extend(messages.as_array().unwrap().iter().cloned());
    with(ask_with("Go", ["t"]), "messages", all.into())
}

#[tokio::test]
async fn a_result_has_the_name_of_its_tool_where_the_server_insists() {
    for (lines, expected) in [
        ("", [None, None, Some("own")]),
        ("kind = \"gemini\"", [Some("t"), Some("first"), Some("own")]),
        (
            "quirks = { tool_result_name = true }",
            [Some("t"), Some("first"), Some("own")],
        ),
    ] {
        let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
        let hook = hook().await;
        let app = app(&upstream, &hook, lines).await;
        let body = asking(&json!([
            {"role": "assistant", "content": "", "tool_calls": [call("a", "first"), call("b", "second")]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "name": "own", "content": "2"},
        ]));
        app.post_chat(body).await.completion();
        let sent = upstream.last().messages();
        let name = |at: usize| sent[at].get("name").and_then(Value::as_str);
        assert_eq!([name(5), name(2), name(3)], expected, "{lines}");
    }
}

#[tokio::test]
async fn a_tool_that_says_nothing_is_reported_to_the_model() {
    for reply in [
        webhook::status(204, &[], ""),
        webhook::status(200, &[], ""),
        webhook::text("\r\n"),
        webhook::json(&json!({"content": ""})),
        webhook::json(&json!({"content": null})),
        webhook::json(&json!({"content": [{"type": "text", "text": " "}]})),
    ] {
        let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
        let hook = Webhook::start().await.on("t", reply);
        let app = app(&upstream, &hook, "").await;
        let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
        let answer = app.post_chat(body).await.completion();
        let sent = upstream.last().tool_results();
        assert_eq!(sent[0].1, "(no output)");
        upstream.assert_same_results(&answer["agentic_tool_calls"]);
        let stored = app.get("/v1/sessions/s").await.json();
        assert_eq!(stored["messages"][2]["content"], "(no output)");
    }
}

#[tokio::test]
async fn a_result_that_ends_the_turn_without_a_text_is_no_answer() {
    let ends = webhook::json(&json!({"content": " ", "terminate": true}));
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))])]).await;
    let hook = Webhook::start().await.on("t", ends);
    let app = app(&upstream, &hook, "").await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await;
    assert_eq!(answer.content(), "");
    let reported = &answer.completion()["agentic_tool_calls"][0];
    assert_eq!(reported["result_content"], "(no output)");
}

#[tokio::test]
async fn blank_results_and_parts_of_the_client_are_not_sent() {
    let blank = json!({"type": "text", "text": ""});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let word = json!({"type": "text", "text": "a"});
    for (content, expected) in [
        (json!(""), json!("(no output)")),
        (json!(" \n"), json!("(no output)")),
        (json!([blank]), json!("(no output)")),
        (json!([blank, word]), json!([word])),
        (json!("7"), json!("7")),
    ] {
        let upstream = ScriptedUpstream::start([text("Done.")]).await.lenient();
        let hook = hook().await;
        let app = app(&upstream, &hook, "").await;
        let body = asking(&json!([
            {"role": "assistant", "content": [blank], "tool_calls": [call("a", "t")]},
            {"role": "tool", "tool_call_id": "a", "content": content},
            {"role": "user", "content": [blank, image]},
        ]));
        app.post_chat(body).await.completion();
        let sent = upstream.last().messages();
        assert_eq!(sent[1]["content"], "");
        assert_eq!(sent[2]["content"], expected, "{content}");
        assert_eq!(sent[3]["content"], json!([image]));
    }
}

#[tokio::test]
async fn blank_messages_are_left_out_where_the_server_refuses_them() {
    let messages = json!([
        {"role": "assistant", "content": "\n"},
        {"role": "user", "content": "More"},
        {"role": "assistant", "content": "\n\n", "tool_calls": [call("a", "t")]},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
        {"role": "system", "content": " "},
    ]);
    for (lines, roles, content) in [
        (
            "quirks = { mid_system = true }",
            "user assistant user assistant tool system",
            json!("\n\n"),
        ),
        ("kind = \"xai\"", "user user assistant tool", json!("")),
        (
            "kind = \"anthropic\"",
            "user user assistant tool",
            Value::Null,
        ),
    ] {
        let upstream = ScriptedUpstream::start([text("Done.")]).await.lenient();
        let hook = hook().await;
        let app = app(&upstream, &hook, lines).await;
        app.post_chat(asking(&messages)).await.completion();
        let sent = upstream.last();
        assert_eq!(sent.roles().join(" "), roles, "{lines}");
        let with_calls = sent
            .messages()
            .into_iter()
            .find(|it| it.get("tool_calls").is_some());
        assert_eq!(with_calls.unwrap()["content"], content, "{lines}");
    }
}

#[tokio::test]
async fn reasoning_is_in_the_field_that_the_server_takes_and_never_missing_where_it_insists() {
    let messages = json!([
        {"role": "assistant", "content": "x", "reasoning": "a"},
        {"role": "user", "content": "More"},
        {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": [call("a", "t")]},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
    ]);
    // Of the client's two messages and of one that the model wrote without reasoning.
    for (lines, field, other, expected) in [
        (
            "kind = \"deepseek\"",
            "reasoning_content",
            "reasoning",
            [Some("a"), Some(""), Some("")],
        ),
        (
            "kind = \"moonshot\"",
            "reasoning_content",
            "reasoning",
            [Some("a"), Some(" "), Some(" ")],
        ),
        (
            "kind = \"cerebras\"",
            "reasoning",
            "reasoning_content",
            [Some("a"), None, None],
        ),
        (
            "kind = \"groq\"",
            "reasoning",
            "reasoning_content",
            [None, None, None],
        ),
        (
            "quirks = { missing_reasoning = \"empty\" }",
            "reasoning_content",
            "reasoning",
            [Some("a"), Some(""), Some("")],
        ),
    ] {
        let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
        let hook = hook().await;
        let app = app(&upstream, &hook, lines).await;
        app.post_chat(asking(&messages)).await.completion();
        let sent = upstream.last().messages();
        let of_model = sent.iter().filter(|message| message["role"] == "assistant");
        let found: Vec<Option<&str>> = of_model
            .inspect(|message| assert!(message.get(other).is_none(), "{lines}: {message}"))
            .map(|message| message.get(field).and_then(Value::as_str))
            .collect();
        assert_eq!(found, expected, "{lines}");
    }
}

#[tokio::test]
async fn readyz_names_the_kinds_that_are_known() {
    let (first, second) = (
        ScriptedUpstream::start([]).await,
        ScriptedUpstream::start([]).await,
    );
    let toml = entry(&first, "a", "kind = \"moonshot\"") + &entry(&second, "b", "");
    let app = TestApp::builder().toml(&toml).start().await;
    let ready = app.get("/readyz").await.json();
    let expected = json!({
        "a": {"kind": "moonshot", "state": "ok", "url": first.base_url()},
        "b": {"state": "ok", "url": second.base_url()},
    });
    assert_eq!(ready["upstreams"], expected);
}

#[tokio::test]
async fn check_config_shows_the_kind_that_the_host_of_a_provider_implies() {
    let gemini = "https://generativelanguage.googleapis.com/v1beta/openai";
    for (url, lines, shown) in [
        (gemini, "", "kind = \"gemini\""),
        (gemini, "", "tool_result_name = true"),
        (gemini, "kind = \"vllm\"", "kind = \"vllm\""),
        (
            gemini,
            "quirks = { tool_result_name = false }",
            "tool_result_name = false",
        ),
        (
            "https://api.groq.com/openai/v1",
            "",
            "send_reasoning = false",
        ),
        (
            "https://api.cerebras.ai/v1",
            "",
            "reasoning_field = \"reasoning\"",
        ),
        (
            "http://localhost:11434/v1",
            "",
            "final_call = \"tool_choice_none\"",
        ),
    ] {
        let toml = format!("[[upstreams]]\nname = \"u\"\nbase_url = \"{url}\"\n{lines}\n");
        let builder = TestApp::builder().toml(&toml).args(["--all"]);
        let ended = builder.run("check-config").await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.contains(shown), "{shown}: {}", ended.stdout);
    }
    let local = TestApp::builder().args(["--all", "--upstream", "https://openrouter.ai/api/v1"]);
    let ended = local.run("check-config").await;
    assert!(
        ended.stdout.contains("kind = \"openrouter\""),
        "{}",
        ended.stdout
    );
}

#[tokio::test]
async fn the_message_of_an_error_reaches_the_client_in_every_shape() {
    let hook = hook().await;
    for (error, message) in [
        (json!("out of memory"), "out of memory"),
        (json!({"code": 400, "message": "too long"}), "too long"),
        (json!(["the first", "the second"]), "the first"),
        (
            json!({"message": {"detail": [{"loc": ["body", "x"], "msg": "missing"}]}}),
            "body.x: missing",
        ),
    ] {
        let line = format!("data: {}\n\n", json!({"error": error}));
        let upstream = ScriptedUpstream::start([script::raw_sse([line])]).await;
        let once = builder(&upstream, &hook, "[retry]\nmax_attempts = 1");
        let app = once.start().await;
        let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
        assert_eq!(stream.error.unwrap()["message"], message);
    }
}
