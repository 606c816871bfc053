//! Secrets in results of tools: what reaches the client, the model, the history and the log.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::script::{calls, text};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, ToolReply, Webhook};

const UPSTREAM_KEY: &str = "the-key-of-the-model-server";
const SIGNING_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const CLIENT_KEY: &str = "a-key-of-alice-in-this-test";
const SETTINGS: &str = "upstream_api_key_env = \"MODEL_KEY\"\ndispatch_secret_env = \"HOOK_SECRET\"\n\
                        log_level = \"debug\"\n";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n";

/// A token with the shape of GitHub's, which is nobody's.
fn vendor_token() -> String {
    ["ghp", "_", "0123456789abcdefghijABCDEFGHIJ012345"].concat()
}

fn secrets() -> [String; 4] {
    let own = [UPSTREAM_KEY, SIGNING_SECRET, CLIENT_KEY].map(ToOwned::to_owned);
    let [upstream, signing, client] = own;
    [upstream, signing, client, vendor_token()]
}

/// Fails if one of the secrets is in a text.
fn assert_without_secrets(what: &str, text: &str) {
    for secret in secrets() {
        assert!(!text.contains(&secret), "{secret} is in {what}: {text}");
    }
}

/// A server whose model calls a tool in each of so many turns.
async fn started(
    reply: ToolReply,
    turns: usize,
    more: &str,
) -> (TestApp, ScriptedUpstream, Webhook) {
    let turn = || [calls([("t", json!({}))]), text("Done.")];
    let script = (0..turns).flat_map(|_| turn());
    let upstream = ScriptedUpstream::start(script).await;
    let hook = Webhook::signed(SIGNING_SECRET).await.on("t", reply);
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let builder = builder
        .toml(&format!("{more}{SETTINGS}{KEYS}"))
        .env("MODEL_KEY", UPSTREAM_KEY)
        .env("HOOK_SECRET", SIGNING_SECRET)
        .env("ALICE", CLIENT_KEY);
    (builder.start().await, upstream, hook)
}

fn asking() -> Value {
    with(ask_with("Go", ["t"]), "session_id", json!("s"))
}

#[tokio::test]
async fn secrets_in_results_reach_nobody() {
    let [upstream_key, signing, client, vendor] = secrets();
    let all = format!("{upstream_key}, {signing}, {client} and {vendor}.");
    let hidden = "[hidden], [hidden], [hidden] and [hidden].";
    for (reply, expected, status) in [
        (webhook::text(&all), hidden.to_owned(), "ok"),
        (
            webhook::json(&json!({"content": {"found": all}})),
            format!("{{\"found\":\"{hidden}\"}}"),
            "ok",
        ),
        (
            webhook::json(&json!({"content": all, "is_error": true})),
            hidden.to_owned(),
            "error",
        ),
    ] {
        let (app, upstream, _hook) = started(reply, 2, "").await;
        let alice = app.client().key(CLIENT_KEY);
        let answer = alice.post_chat(asking()).await;
        let body = answer.completion();
        let call = &body["agentic_tool_calls"][0];
        assert_eq!(call["result_content"], expected.as_str());
        assert_eq!(call["status"], status);
        assert_eq!(upstream.last().tool_results()[0].1, expected);
        let stream = alice.stream_chat(asking()).await.collect().await;
        assert_eq!(
            stream.phase("complete")[0]["data"]["content"],
            expected.as_str()
        );
        let stored = alice.get("/v1/sessions/s").await.text();
        let results = stored.matches("[hidden] and [hidden].").count();
        assert!(results >= 2, "{stored}");
        assert_without_secrets("the answer", &answer.text());
        assert_without_secrets("the stream", &stream.transcript());
        assert_without_secrets("the history", &stored);
        for request in upstream.requests() {
            assert_without_secrets("a request to the model", &request.body.to_string());
        }
        assert_without_secrets("the log", &app.logs());
    }
}

#[tokio::test]
async fn the_text_of_a_refusal_is_a_result() {
    let problem = format!("the token {} is old", vendor_token());
    let reply = webhook::refusal(403, "text/plain", &problem);
    let (app, upstream, _hook) = started(reply, 1, "").await;
    let alice = app.client().key(CLIENT_KEY);
    let body = alice.post_chat(asking()).await.completion();
    let content = body["agentic_tool_calls"][0]["result_content"].clone();
    let content = content.as_str().unwrap();
    assert!(content.contains("the token [hidden] is old"), "{content}");
    assert_eq!(upstream.last().tool_results()[0].1, content);
}

#[tokio::test]
async fn a_secret_is_hidden_before_a_result_is_cut() {
    // The cut would leave the end of the secret, which nobody could find then.
    let (head, tail) = ("x".repeat(3000), "y".repeat(10));
    let reply = webhook::text(&format!("{head}{UPSTREAM_KEY}{tail}"));
    let (app, upstream, _hook) = started(reply, 1, "max_result_chars = 300\n").await;
    let alice = app.client().key(CLIENT_KEY);
    alice.post_chat(asking()).await.completion();
    let given = upstream.last().tool_results()[0].1.clone();
    assert!(given.ends_with(&format!("x[hidden]{tail}")), "{given}");
    // The whole text, which the session keeps, is without it as well.
    let stored = alice.get("/v1/sessions/s").await.text();
    let whole = format!("{head}[hidden]{tail}");
    assert!(stored.contains(&whole), "{stored}");
    assert_without_secrets("the history", &stored);
}

#[tokio::test]
async fn live_output_is_without_secrets_over_its_pieces() {
    let (first, second) = UPSTREAM_KEY.split_at(10);
    let vendor = vendor_token();
    let (third, fourth) = vendor.split_at(20);
    let events = [
        json!({"progress": format!("1: {first}")}),
        json!({"progress": format!("{second} 2: {third}")}),
        json!({"progress": fourth}),
        json!({"progress": " 3: the-key"}),
        json!({"content": "done"}),
    ];
    let (app, _upstream, _hook) = started(webhook::sse(events), 1, "").await;
    let alice = app.client().key(CLIENT_KEY);
    let stream = alice.stream_chat(asking()).await.collect().await;
    let chunks: Vec<&Value> = stream.progress.iter().map(|event| &event.chunk).collect();
    let is_output = |chunk: &&&Value| chunk["type"] == "agentic_tool_output";
    let output = chunks.iter().filter(is_output);
    let output: String = output
        .map(|chunk| chunk["text"].as_str().unwrap())
        .collect();
    assert_eq!(output, "1: [hidden] 2: [hidden] 3: the-key");
    // What was held back comes before the end of its call.
    let last_output = chunks.iter().rposition(|chunk| is_output(&chunk)).unwrap();
    let end = chunks.iter().position(|chunk| chunk["phase"] == "complete");
    assert!(last_output < end.unwrap(), "{}", stream.transcript());
    assert_without_secrets("the stream", &stream.transcript());
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let all = secrets().join(" ");
    let events = [json!({"progress": all}), json!({"content": all})];
    let (app, upstream, _hook) = started(webhook::sse(events), 1, "redact_secrets = false\n").await;
    let alice = app.client().key(CLIENT_KEY);
    let stream = alice.stream_chat(asking()).await.collect().await;
    assert_eq!(stream.phase("complete")[0]["data"]["content"], all.as_str());
    let mut chunks = stream.progress.iter().map(|event| &event.chunk);
    let output = chunks.find(|chunk| chunk["type"] == "agentic_tool_output");
    assert_eq!(output.unwrap()["text"], all.as_str());
    assert_eq!(upstream.last().tool_results()[0].1, all);
}
