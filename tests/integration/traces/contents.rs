//! What spans say of messages, arguments and results: nothing, unless the operator wants it.

use serde_json::{Value, json};

use super::collector::{Collector, named};
use super::{MODEL, chats};
use crate::support::ask::{ask, ask_with, with};
use crate::support::script::{calls, text};
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

/// What nobody but those who talk may read.
const SECRETS: [&str; 5] = [
    "prompt-secret",
    "argument-secret",
    "result-secret",
    "answer-secret",
    "system-secret",
];
const KEY: &str = "sk-client-0123456789abcdef";
/// A token of a vendor.
const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

async fn turn(collector: &Collector, lines: &str, result: &str) {
    let made = calls([("add", json!({"x": "argument-secret"}))]);
    let upstream =
        ScriptedUpstream::start([made.usage(1, 1), text("answer-secret").usage(2, 2)]).await;
    let hook = Webhook::start().await.on("add", webhook::text(result));
    let app = collector
        .app()
        .toml(lines)
        .upstream(&upstream)
        .dispatch(&hook);
    let app = app
        .env("CLIENT", KEY)
        .toml("[[api_keys]]\nname = \"a\"\nenv = \"CLIENT\"");
    let app = app.start().await;
    let client = app.client().key(KEY).header("x-private", "header-secret");
    let mut body = ask_with("prompt-secret", ["add"]);
    body["messages"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"role": "system", "content": "system-secret"}));
    assert_eq!(client.post_chat(body).await.content(), "answer-secret");
    collector.spans(5).await;
}

#[tokio::test]
async fn by_default_no_content_leaves_the_process() {
    let collector = Collector::start().await;
    turn(&collector, "", "result-secret").await;
    let text = collector.text();
    for secret in SECRETS.iter().chain(&[KEY, "header-secret"]) {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn contents_are_in_the_spans_if_the_operator_wants_them() {
    let collector = Collector::start().await;
    let result = format!("result-secret {TOKEN}");
    turn(&collector, "otlp_contents = true", &result).await;
    let spans = collector.spans(5).await;
    let read = |value: Value| serde_json::from_str::<Value>(value.as_str().unwrap()).unwrap();
    let [first, second] = chats(&spans);
    let input = read(first.get("gen_ai.input.messages"));
    assert_eq!(
        input,
        json!([
            {"role": "system", "parts": [{"type": "text", "content": "system-secret"}]},
            {"role": "user", "parts": [{"type": "text", "content": "prompt-secret"}]},
        ])
    );
    let output = read(first.get("gen_ai.output.messages"));
    assert_eq!(output[0]["finish_reason"], "tool_calls");
    assert_eq!(output[0]["parts"][0]["name"], "add");
    let arguments = output[0]["parts"][0]["arguments"].as_str().unwrap();
    assert!(arguments.contains("argument-secret"));
    let input = read(second.get("gen_ai.input.messages"));
    let response = &input[3]["parts"][0];
    assert_eq!(input[3]["role"], "tool");
    assert_eq!(response["type"], "tool_call_response");
    assert_eq!(response["response"], "result-secret [hidden]");
    let output = read(second.get("gen_ai.output.messages"));
    assert_eq!(
        output[0]["parts"],
        json!([{"type": "text", "content": "answer-secret"}])
    );
    let call = named(&spans, "execute_tool add");
    call.assert_has([
        (
            "gen_ai.tool.call.arguments",
            json!(r#"{"x":"argument-secret"}"#),
        ),
        ("gen_ai.tool.call.result", json!("result-secret [hidden]")),
    ]);
    let text = collector.text();
    for secret in [KEY, TOKEN, "header-secret"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn long_contents_are_cut() {
    let collector = Collector::start().await;
    turn(&collector, "otlp_contents = true", &"ä".repeat(20_000)).await;
    let spans = collector.spans(5).await;
    let call = named(&spans, "execute_tool add");
    let result = call.get("gen_ai.tool.call.result");
    let result = result.as_str().unwrap();
    assert!(
        result.len() < 17_000 && result.ends_with("ä…"),
        "{}",
        result.len()
    );
    let [_, second] = chats(&spans);
    let input = second.get("gen_ai.input.messages");
    let input: Vec<Value> = serde_json::from_str(input.as_str().unwrap()).unwrap();
    // The newest message takes all the room.
    assert_eq!(input.len(), 1);
    assert_eq!(input[0]["role"], "tool");
}

#[tokio::test]
async fn the_ids_of_calls_count_as_texts_do() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start([text("Done.")]).await;
    let hook = Webhook::start().await;
    let app = collector.app().toml("otlp_contents = true");
    let app = app.upstream(&upstream).dispatch(&hook).start().await;
    let id = format!("{TOKEN} {}", "i".repeat(1_000_000));
    let call =
        json!({"id": id, "type": "function", "function": {"name": "add", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": "r"},
        {"role": "user", "content": "And?"},
    ]);
    let body = with(ask_with("Go", ["add"]), "messages", messages);
    assert_eq!(app.post_chat(body).await.content(), "Done.");
    let spans = collector.spans(3).await;
    let chat = spans.iter().find(|span| span.name.starts_with("chat"));
    let input = chat.unwrap().get("gen_ai.input.messages");
    let input = input.as_str().unwrap();
    assert!(input.len() < 40_000, "{}", input.len());
    assert!(input.contains("[hidden] iii"), "{}", &input[..300]);
}

#[tokio::test]
async fn of_what_passes_through_nothing_is_read() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start([text("answer-secret")]).await;
    let app = collector
        .app()
        .toml("otlp_contents = true")
        .upstream(&upstream);
    let app = app.start().await;
    let body = with(ask("prompt-secret"), "model", json!(MODEL));
    assert_eq!(app.post_chat(body).await.content(), "answer-secret");
    collector.spans(2).await;
    let text = collector.text();
    assert!(!text.contains("-secret"), "{text}");
}
