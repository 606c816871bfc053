//! Model servers that fail.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::builder;
use super::record::Golden;
use crate::support::ask::{ask_with, with};
use crate::support::recorded::Recorded;
use crate::support::script::{self, Reply, calls, text, text_and_calls};
use crate::support::unreachable_url;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

/// Records a turn streamed and whole over the same replies, of which the last one is given again and again.
async fn both(golden: &mut Golden, heading: &str, replies: &[Reply]) {
    for (id, streamed) in [("streamed", true), ("whole", false)] {
        let last = replies.last().unwrap().clone();
        let mut queue: VecDeque<Reply> = replies.iter().cloned().collect();
        let next = move |_: &Recorded| queue.pop_front().unwrap_or_else(|| last.clone());
        let upstream = ScriptedUpstream::answering(next).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let app = builder().upstream(&upstream).dispatch(&hook).start().await;
        golden.heading(&format!("{heading}, {id}"));
        let mut body = with(ask_with("Go", ["t"]), "session_id", json!(id));
        body["stream"] = json!(streamed);
        golden.chat(app.client(), &body).await;
        golden.upstream(&upstream);
        golden.session(app.client(), id).await;
        golden.forget();
    }
}

#[tokio::test]
async fn errors_before_the_first_byte() {
    let mut golden = Golden::default();
    let own = r#"{"error":{"message":"scripted words","type":"x","param":"messages","code":"its_code"},"more":1}"#;
    let limits = [("x-ratelimit-remaining", "3"), ("retry-after", "0")];
    for status in [400, 401, 422] {
        let replies = [script::status(status, &limits, own)];
        both(&mut golden, &format!("status {status}"), &replies).await;
    }
    let busy = || script::status(503, &limits, own);
    both(&mut golden, "status 503 for ever", &[busy()]).await;
    both(&mut golden, "reset for ever", &[script::reset()]).await;
    let recovers = [script::error(500, "scripted"), busy(), text("Fine.")];
    both(&mut golden, "fine in the end", &recovers).await;
    golden.check("errors_before_the_first_byte");
}

#[tokio::test]
async fn errors_in_mid_stream() {
    let mut golden = Golden::default();
    let long = || text("one two three four");
    let oom = r#"{"error":{"message":"scripted words","type":"x","param":null,"code":"oom"}}"#;
    let chunk = |delta: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let error = script::raw_sse([
        chunk(json!({"role": "assistant", "content": ""})),
        chunk(json!({"content": "one "})),
        format!("data: {oom}\n\n"),
    ]);
    for (heading, reply) in [
        ("cut", long().cut_after(3)),
        ("reset", long().reset_after(3)),
        ("no end", long().truncate_after(3)),
        ("an error object", error),
    ] {
        both(&mut golden, heading, &[reply]).await;
    }
    let broken_call = text_and_calls("Look.", [("t", json!({"a": "a long argument"}))]);
    both(
        &mut golden,
        "cut inside a call",
        &[broken_call.cut_after(5)],
    )
    .await;
    golden.check("errors_in_mid_stream");
}

#[tokio::test]
async fn errors_after_a_tool_has_run() {
    let mut golden = Golden::default();
    let round = || text_and_calls("Look.", [("t", json!({}))]);
    let refused = script::error(400, "scripted refusal");
    both(&mut golden, "refused", &[round(), refused]).await;
    let cut = text("one two three four").cut_after(3);
    both(&mut golden, "cut", &[round(), cut]).await;
    golden.check("errors_after_a_tool_has_run");
}

#[tokio::test]
async fn fail_over() {
    let dead = unreachable_url().await;
    let script = || [calls([("t", json!({}))]), text("Fine.")];
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let toml = format!(
        "[[upstreams]]\nname = \"first\"\nbase_url = \"{dead}\"\n[[upstreams]]\nname = \"second\"\nbase_url = \"{}\"",
        upstream.base_url()
    );
    let app = builder().dispatch(&hook).toml(&toml).start().await;
    let mut golden = Golden::default();
    let body = ask_with("Go", ["t"]);
    golden.streamed_chat(app.client(), &body).await;
    golden.chat(app.client(), &body).await;
    golden.upstream(&upstream);
    golden.check("fail_over");
}
