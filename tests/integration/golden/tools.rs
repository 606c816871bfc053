//! Tools over HTTP: rounds, batches, images and files, repairs.

use serde_json::{Value, json};

use super::builder;
use super::record::{Golden, Reading, chat};
use crate::support::app::TestApp;
use crate::support::ask::{ask, ask_with, tool_with, with};
use crate::support::script::{Reply, calls, reasoning, text, text_and_calls};
use crate::support::server::Gate;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

/// A picture of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async fn with_hook(upstream: &ScriptedUpstream, hook: &Webhook) -> TestApp {
    builder().upstream(upstream).dispatch(hook).start().await
}

#[tokio::test]
async fn one_round() {
    let script = || {
        [
            text_and_calls("Let me look.", [("get_ticket", json!({"id": 7}))]).usage(20, 10),
            reasoning("Seen.", "It is open.").usage(40, 5),
        ]
    };
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let reply = webhook::json(&json!({"content": {"status": "open"}}));
    let hook = Webhook::start().await.on("get_ticket", reply);
    let app = with_hook(&upstream, &hook).await;
    let mut golden = Golden::default();

    let mut body = ask_with("Ticket 7?", ["get_ticket"]);
    body["temperature"] = json!(0.5);
    body["user"] = json!("u-1");
    body["stream_options"] = json!({"include_usage": true});
    golden.heading("streamed");
    let client = app
        .client()
        .header("authorization", "Bearer a-client-key")
        .header("x-request-id", "my-request")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        );
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let answer = golden.ask(chat(&client, &streamed.to_string())).await;
    golden.upstream(&upstream);
    golden.webhook(&hook);
    golden.session(app.client(), &answer.session_id()).await;
    golden.heading("whole");
    body.as_object_mut().unwrap().remove("stream_options");
    let answer = golden.chat(app.client(), &body).await;
    golden.upstream(&upstream);
    golden.webhook(&hook);
    golden.session(app.client(), &answer.session_id()).await;
    golden.get(app.client(), "/v1/sessions?limit=1").await;
    golden.check("one_round");
}

/// Runs two calls at once in each form of progress; the second one answers when the first is done.
#[tokio::test]
async fn a_batch_of_two() {
    let batch = || {
        [
            calls([
                ("a", json!({"of": "first"})),
                ("b", json!({"of": "second"})),
            ]),
            text("Both are there."),
        ]
    };
    let upstream = ScriptedUpstream::start((0..5).flat_map(|_| batch())).await;
    let gates: Vec<Gate> = (0..5).map(|_| Gate::new()).collect();
    let mut hook = Webhook::start().await.on("a", webhook::text("result of a"));
    for gate in &gates {
        let reply = webhook::json(&json!("result of b")).gated(gate);
        hook = hook.once("b", reply);
    }
    let app = with_hook(&upstream, &hook).await;
    let mut golden = Golden::default();
    let sdk = app.client().header("x-stainless-lang", "python");
    for (client, progress, gate) in [
        (app.client(), "named", &gates[0]),
        (app.client(), "chunk", &gates[1]),
        (&sdk, "auto", &gates[2]),
    ] {
        golden.heading(&format!("progress {progress}"));
        let mut body = ask_with("Go", ["a", "b"]);
        body["stream"] = json!(true);
        body["agent"] = json!({"progress": progress});
        let mut reading = Reading::start(chat(client, &body.to_string())).await;
        reading.until("\"phase\":\"complete\"").await;
        gate.open();
        golden.answer(reading).await;
        golden.upstream(&upstream);
        golden.webhook(&hook);
    }
    gates.iter().for_each(Gate::open);
    golden.heading("no progress");
    let mut body = ask_with("Go", ["a", "b"]);
    body["agent"] = json!({"progress": "none", "tool_execution": "sequential"});
    golden.streamed_chat(app.client(), &body).await;
    golden.heading("whole");
    golden.chat(app.client(), &body).await;
    golden.check("a_batch_of_two");
}

#[tokio::test]
async fn images_and_files() {
    let file =
        json!({"name": "../../etc/report.txt", "mime_type": "text/plain", "data": "aGVsbG8="});
    let table = json!({"name": "t.csv", "data": "YSxiCg=="});
    let reply = json!({"content": "a chart", "images": [PIXEL], "files": [file, table]});
    let mut golden = Golden::default();
    for sees in [true, false] {
        golden.heading(&format!("a model that sees: {sees}"));
        let script = || [calls([("t", json!({}))]), text("x")];
        let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
        let hook = Webhook::start().await.on("t", webhook::json(&reply));
        let toml = upstream.with_quirks(&format!("images = {sees}"));
        let app = builder().dispatch(&hook).toml(&toml).start().await;
        let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
        golden.streamed_chat(app.client(), &body).await;
        golden.upstream(&upstream);
        golden.session(app.client(), "s").await;
        golden.get(app.client(), "/v1/files").await;
        golden.heading("whole, and not stored");
        let mut body = ask_with("Go", ["t"]);
        body["store"] = json!(false);
        golden.chat(app.client(), &body).await;
        golden.upstream(&upstream);
        golden.forget();
    }
    golden.check("images_and_files");
}

#[tokio::test]
async fn forms_of_results() {
    let parts = json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]);
    let progress = [
        json!({"progress": "half"}),
        json!({"progress": "most"}),
        json!({"content": "done"}),
    ];
    let replies = [
        webhook::json(&json!({"content": parts})),
        webhook::json(&json!({"content": "broken", "is_error": true})),
        webhook::json(&Value::Null),
        webhook::text(&"long ".repeat(1000)),
        webhook::sse(progress),
        webhook::status(500, &[], "stack trace"),
        webhook::status(302, &[("location", "http://127.0.0.1:1/")], ""),
        webhook::reset(),
        webhook::json(&json!({"content": "x", "is_error": "yes"})),
        webhook::json(&json!({"content": "The end.", "terminate": true})),
    ];
    let rounds = replies.iter().enumerate();
    let script = rounds.map(|(number, _)| calls([("t", json!({"n": number}))]));
    let upstream = ScriptedUpstream::start(script).await;
    let mut hook = Webhook::start().await;
    for reply in replies {
        hook = hook.once("t", reply);
    }
    let app = builder()
        .toml("max_result_chars = 2000")
        .upstream(&upstream)
        .dispatch(&hook)
        .start()
        .await;
    let mut golden = Golden::default();
    let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
    golden.streamed_chat(app.client(), &body).await;
    golden.upstream(&upstream);
    golden.session(app.client(), "s").await;
    golden.check("forms_of_results");
}

#[tokio::test]
async fn repairs() {
    let schema = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["n"],
        "additionalProperties": false,
    });
    let written = [
        r#"{"n": 1, "tags": ["a"]}"#,
        r#"{"n": 1, "tags": "a"}"#,
        r#"{"n": "2"}"#,
        r#"{"n": 3, "tags": ["a""#,
        "```json\n{\"n\": 4}\n```",
        r#"{"n": "many"}"#,
        r#"{"n": 5, "other": 1}"#,
        r#"{"tags": []}"#,
        "no JSON at all",
        "[1]",
        "",
    ];
    let script = || -> Vec<Reply> {
        let batch = written.map(|arguments| ("Get-Ticket", json!(arguments)));
        vec![calls(batch), calls([("ghost", json!({}))]), text("x")]
    };
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let hook = Webhook::start().await.on("get_ticket", webhook::text("r"));
    let app = with_hook(&upstream, &hook).await;
    let mut golden = Golden::default();
    let mut body = with(ask("Go"), "tools", json!([tool_with("get_ticket", schema)]));
    body["agent"] = json!({"tool_execution": "sequential"});
    let answer = golden.chat(app.client(), &body).await;
    golden.upstream(&upstream);
    golden.session(app.client(), &answer.session_id()).await;
    golden.streamed_chat(app.client(), &body).await;
    golden.check("repairs");
}
