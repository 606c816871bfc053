//! Fields of model servers that loopwright does not act on.

use serde_json::{Value, json};

use super::builder;
use super::record::Golden;
use crate::support::ask::{ask_with, with};
use crate::support::script::{self, Reply};
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

/// A stream of these chunks.
fn stream(chunks: impl IntoIterator<Item = Value>) -> Reply {
    // Numbers must keep the spelling that they have here.
    let frames = chunks
        .into_iter()
        .map(|chunk| format!("data: {chunk}\n\n").replace("0.5,", "0.50,"));
    script::raw_sse(frames.chain(["data: [DONE]\n\n".to_owned()]))
}

fn chunk(delta: Value) -> Value {
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "its-own-name",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}],
    })
}

fn choice(chunk: Value, field: &str, value: Value) -> Value {
    let mut chunk = chunk;
    chunk["choices"][0][field] = value;
    chunk
}

fn finish(reason: &str) -> Value {
    choice(chunk(json!({})), "finish_reason", json!(reason))
}

/// Streams the same fields as they come in rounds with and without calls, then asks once more with the history.
#[tokio::test]
async fn unknown_fields() {
    let logprobs = |token: &str| json!({"content": [{"token": token, "logprob": -0.50, "bytes": null, "top_logprobs": []}]});
    let script = || {
        let call = json!([{"index": 0, "id": "c0", "type": "function", "function": {"name": "t", "arguments": "{}"}, "x_call": 1}]);
        [
            stream([
                chunk(json!({"role": "assistant", "content": "", "x_note": "be"})),
                chunk(json!({"reasoning_content": "Let me ", "x_note": "gin"})),
                chunk(json!({"reasoning_content": "think."})),
                choice(
                    chunk(json!({"content": "Look"})),
                    "logprobs",
                    logprobs("Look"),
                ),
                chunk(json!({"tool_calls": call})),
                choice(finish("tool_calls"), "x_reason", json!("why")),
            ]),
            stream([
                with(
                    chunk(json!({"role": "assistant"})),
                    "service_tier",
                    json!("scale"),
                ),
                chunk(json!({"reasoning": "So."})),
                choice(
                    chunk(json!({"content": "It is"})),
                    "logprobs",
                    logprobs("It"),
                ),
                choice(
                    chunk(json!({"content": " so."})),
                    "logprobs",
                    logprobs("so"),
                ),
                chunk(json!({"x_list": [1], "x_number": 1, "x_null": null})),
                chunk(json!({"x_list": [2.50], "x_number": 2.0, "x_flag": true})),
                with(
                    chunk(json!({"content": "!"})),
                    "service_tier",
                    json!("default"),
                ),
                choice(finish("stop"), "stop_reason", json!(7)),
            ]),
        ]
    };
    let again = || stream([chunk(json!({"content": "Again."})), finish("length")]);
    let script = script().into_iter().chain([again()]).chain(script());
    let upstream = ScriptedUpstream::start(script).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    let in_session = |id: &str| with(ask_with("Go", ["t"]), "session_id", json!(id));
    golden.heading("streamed");
    golden.streamed_chat(app.client(), &in_session("s")).await;
    golden.chat(app.client(), &in_session("s")).await;
    golden.upstream(&upstream);
    golden.session(app.client(), "s").await;
    golden.heading("whole");
    golden.chat(app.client(), &in_session("w")).await;
    golden.check("unknown_fields");
}

#[tokio::test]
async fn an_unknown_object_in_pieces() {
    let script = || {
        [
            stream([
                chunk(
                    json!({"role": "assistant", "audio": {"id": "audio_1", "transcript": "Hel"}}),
                ),
                chunk(json!({"audio": {"transcript": "lo", "data": "AA"}})),
                chunk(json!({"audio": {"data": "BB", "expires_at": 1}})),
                finish("stop"),
            ]),
            stream([chunk(json!({"content": "Again."})), finish("stop")]),
        ]
    };
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let hook = Webhook::start().await;
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    for (id, streamed) in [("streamed", true), ("whole", false)] {
        golden.heading(id);
        let mut body = with(ask_with("Go", ["t"]), "session_id", json!(id));
        body["stream"] = json!(streamed);
        let answer = golden.chat(app.client(), &body).await;
        golden.chat(app.client(), &body).await;
        let sent_back = upstream.last().messages()[1]["audio"].clone();
        let whole =
            json!({"id": "audio_1", "transcript": "Hello", "data": "AABB", "expires_at": 1});
        assert_eq!(sent_back, whole);
        if !streamed {
            assert_eq!(answer.json()["choices"][0]["message"]["audio"], whole);
        }
        golden.upstream(&upstream);
        golden.session(app.client(), id).await;
    }
    golden.check("an_unknown_object_in_pieces");
}
