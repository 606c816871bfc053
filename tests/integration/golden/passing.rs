//! Requests that no tool can touch.

use http::Method;
use serde_json::json;

use super::builder;
use super::record::{Golden, chat};
use crate::support::ask::{ask, ask_with, tool, with};
use crate::support::script::{self, calls, text};
use crate::support::upstream::ScriptedUpstream;

/// A body that only pass-through keeps as it is.
const ODD: &str = "{ \"model\":\"scripted-model\",\r\n \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e4 \u{2028}\"}],\"temperature\":1.0e0, \"x\":[ ] , \"x\":1 }";

#[tokio::test]
async fn passed_through() {
    let odd = "{ \"odd\" :1.0,\n\"id\":\"x\" }";
    let headers = [
        ("x-request-id", "upstreams-own"),
        ("x-ratelimit-remaining", "5"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
    ];
    let upstream = ScriptedUpstream::start([
        script::status(200, &headers, odd),
        script::raw_sse([
            "data: {\"odd\":1}\r\n\r\n",
            ": comment\n\n",
            "event: x\ndata: y\n\n",
            "data: [DONE]\n\n",
        ]),
        text("one two"),
        text("one two"),
        calls([("mine", json!({"a": 1}))]),
        text("zero"),
        text("two of them"),
        text("one two three").cut_after(2),
        script::error(400, "scripted refusal"),
    ])
    .await
    .lenient();
    let app = builder().upstream(&upstream).start().await;
    let mut golden = Golden::default();

    golden.heading("odd bytes, with headers of the client's own");
    let request = app
        .client()
        .request(Method::POST, "/v1/chat/completions?a=b%20c")
        .header("content-type", "application/json; charset=utf-8")
        .header("authorization", "Bearer a-client-key")
        .header("x-request-id", "my-request")
        .header("x-forwarded-for", "192.0.2.1")
        .header("cookie", "a=b")
        .header("idempotency-key", "k");
    golden.ask(request.body(ODD)).await;
    golden.upstream(&upstream);
    golden.heading("odd frames");
    golden.streamed_chat(app.client(), &ask("x")).await;
    golden.heading("whole, then streamed");
    golden.chat(app.client(), &ask("x")).await;
    golden.streamed_chat(app.client(), &ask("x")).await;
    golden.heading("a tool that only the client can run");
    golden.chat(app.client(), &ask_with("x", ["mine"])).await;
    golden.upstream(&upstream);
    golden.heading("no rounds allowed");
    let body = r#"{"model":"scripted-model", "max_tool_rounds":0, "messages":[{"role":"user","content":"x"}] }"#;
    golden.ask(chat(app.client(), body)).await;
    golden.upstream(&upstream);
    golden.heading("two choices");
    golden
        .chat(app.client(), &with(ask("x"), "n", json!(2)))
        .await;
    golden.heading("a stream that breaks off");
    golden.streamed_chat(app.client(), &ask("x")).await;
    golden.heading("an error of the model server");
    golden.chat(app.client(), &ask("x")).await;
    golden.heading("nothing is stored");
    golden.get(app.client(), "/v1/sessions").await;
    golden.upstream(&upstream);
    golden.check("passed_through");
}

#[tokio::test]
async fn other_endpoints() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = builder().upstream(&upstream).start().await;
    let mut golden = Golden::default();
    let embed = app
        .client()
        .request(Method::POST, "/v1/embeddings?x=1")
        .header("content-type", "application/json")
        .body(r#"{ "model":"scripted-model", "input":["a"] }"#);
    golden.ask(embed).await;
    for (method, path) in [
        (Method::GET, "/v1/models"),
        (Method::GET, "/v1/models/scripted-model"),
        (Method::GET, "/v1/models/unknown"),
        (Method::GET, "/v1/agent/tools"),
        (Method::GET, "/v1/sessions/unknown"),
        (Method::DELETE, "/v1/sessions/unknown"),
        (Method::GET, "/v1/files"),
        (Method::GET, "/v1/files/unknown"),
        (Method::GET, "/healthz"),
        (Method::GET, "/elsewhere"),
        (Method::GET, "/v1/chat/completions"),
    ] {
        golden.heading(&format!("{method} {path}"));
        golden.ask(app.client().request(method, path)).await;
    }
    golden.check("other_endpoints");
}

#[tokio::test]
async fn hosted_tool_types() {
    let upstream = ScriptedUpstream::start([text("x"), text("x"), text("x")])
        .await
        .lenient();
    let hosted = json!([{"type": "web_search", "search_context_size": "low"}]);
    let body = with(ask("x"), "tools", hosted.clone());
    let mut both = hosted;
    both.as_array_mut().unwrap().push(tool("t"));
    let both = with(ask("x"), "tools", both);
    let mut golden = Golden::default();

    golden.heading("nobody has them");
    let app = builder().upstream(&upstream).start().await;
    golden.chat(app.client(), &body).await;
    golden
        .chat(
            app.client(),
            &with(ask("x"), "web_search_options", json!({})),
        )
        .await;
    let unknown = json!([{"type": "telepathy"}]);
    golden
        .chat(app.client(), &with(ask("x"), "tools", unknown))
        .await;
    golden.heading("the model server has them");
    let quirks = upstream.with_quirks("hosted_tools = [\"web_search\"]");
    let app = builder()
        .toml("tool_dispatch_url = \"http://127.0.0.1:1/\"")
        .toml(&quirks)
        .start()
        .await;
    golden.chat(app.client(), &both).await;
    golden.upstream(&upstream);
    golden.check("hosted_tool_types");
}
