//! Traces: which spans a collector gets, what they say and do not say, and that a collector which is down costs nothing.

pub(crate) mod collector;
mod contents;
mod outages;
mod passed_on;
mod variables;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use self::collector::{Collector, Span, named, names};
use super::support::ask::{ask, ask_with, tool, with};
use super::support::client::Client;
use super::support::script::{self, Reply, calls, text};
use super::support::server::Gate;
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::webhook::{self, Webhook};

/// The trace and the span of a client.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// A client with a sampled span of its own.
fn tracing(client: &Client) -> Client {
    client.header("traceparent", &format!("00-{TRACE}-{SPAN}-01"))
}

async fn tools() -> Webhook {
    let hook = Webhook::start().await.on("add", webhook::text("3"));
    hook.on("sub", webhook::status(500, &[], "{}"))
}

/// One failure is final.
const ONCE: &str = "dispatch_max_retries = 0\n[retry]\nmax_attempts = 1";

/// A model that makes two calls, and says something.
fn rounds() -> [Reply; 2] {
    let first = calls([("add", json!({"a": 1})), ("sub", json!({}))]);
    [first.usage(10, 5), text("Done.").usage(20, 3)]
}

/// The spans of the two model calls, in their order.
fn chats(spans: &[Span]) -> [&Span; 2] {
    let name = format!("chat {MODEL}");
    let mut found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    found.sort_by_key(|span| span.get("gen_ai.usage.input_tokens").as_u64());
    found.try_into().unwrap()
}

/// What a trace of a turn with two calls has in common, whatever the dialect.
fn assert_turn(spans: &[Span], route: &str, upstream: &ScriptedUpstream, hook: &Webhook) {
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
    let server = named(spans, &format!("POST {route}"));
    assert_eq!((server.kind, &*server.parent), (SpanKind::Server, SPAN));
    server.assert_has([
        ("http.request.method", json!("POST")),
        ("http.route", json!(route)),
        ("url.path", json!(route)),
        ("http.response.status_code", json!(200)),
        ("error.type", Value::Null),
    ]);
    let agent = named(spans, "invoke_agent");
    assert_eq!(
        (agent.kind, &agent.parent),
        (SpanKind::Internal, &server.id)
    );
    assert!(!agent.failed && !server.failed);
    let session = agent.get("gen_ai.conversation.id");
    assert!(session.is_string(), "{agent:#?}");
    agent.assert_has([
        ("gen_ai.operation.name", json!("invoke_agent")),
        ("gen_ai.provider.name", json!("openai")),
        ("gen_ai.request.model", json!(MODEL)),
        ("gen_ai.usage.input_tokens", json!(30)),
        ("gen_ai.usage.output_tokens", json!(8)),
        ("gen_ai.response.finish_reasons", json!(["stop"])),
        ("loopwright.stop_reason", json!("completed")),
        ("loopwright.rounds", json!(1)),
    ]);
    let address = upstream.base_url();
    let port: u16 = address
        .trim_end_matches("/v1")
        .rsplit_once(':')
        .unwrap()
        .1
        .parse()
        .unwrap();
    for (number, (chat, finish)) in chats(spans)
        .into_iter()
        .zip(["tool_calls", "stop"])
        .enumerate()
    {
        assert_eq!((chat.kind, &chat.parent), (SpanKind::Client, &agent.id));
        assert!(!chat.failed);
        assert!(
            chat.get("gen_ai.response.id")
                .as_str()
                .unwrap()
                .starts_with("chatcmpl"),
            "{chat:#?}"
        );
        chat.assert_has([
            ("gen_ai.operation.name", json!("chat")),
            ("gen_ai.provider.name", json!("openai")),
            ("gen_ai.request.model", json!(MODEL)),
            ("gen_ai.response.model", json!(MODEL)),
            ("gen_ai.response.finish_reasons", json!([finish])),
            ("gen_ai.conversation.id", session.clone()),
            ("server.address", json!("127.0.0.1")),
            ("server.port", json!(port)),
            ("error.type", Value::Null),
            ("loopwright.retries", Value::Null),
        ]);
        let sent = upstream.request(number);
        assert_eq!(sent.header("traceparent"), Some(&*chat.traceparent()));
    }
    for (name, failed) in [("add", false), ("sub", true)] {
        let call = named(spans, &format!("execute_tool {name}"));
        assert_eq!((call.kind, &call.parent), (SpanKind::Internal, &agent.id));
        assert_eq!(call.failed, failed);
        let error = if failed { json!("error") } else { Value::Null };
        call.assert_has([
            ("gen_ai.operation.name", json!("execute_tool")),
            ("gen_ai.tool.name", json!(name)),
            ("gen_ai.tool.type", json!("extension")),
            ("gen_ai.conversation.id", session.clone()),
            (
                "loopwright.tool.status",
                json!(if failed { "error" } else { "ok" }),
            ),
            ("error.type", error),
        ]);
        assert!(call.get("gen_ai.tool.call.id").is_string());
        let calls = hook.calls();
        let made = calls.iter().find(|made| made.name == name).unwrap();
        assert_eq!(made.header("traceparent"), Some(&*call.traceparent()));
    }
}

#[tokio::test]
async fn a_turn_with_two_tools_is_one_trace() {
    for streamed in [false, true] {
        let collector = Collector::start().await;
        let upstream = ScriptedUpstream::start(rounds()).await;
        let hook = tools().await;
        let app = collector.app().upstream(&upstream).dispatch(&hook);
        let app = app.toml(ONCE).start().await;
        let client = tracing(app.client());
        let body = ask_with("What is 1 + 2?", ["add", "sub"]);
        match streamed {
            false => assert_eq!(client.post_chat(body).await.content(), "Done."),
            true => assert_eq!(client.stream_chat(body).await.collect().await.text, "Done."),
        }
        let spans = collector.spans(6).await;
        assert_turn(&spans, "/v1/chat/completions", &upstream, &hook);
        let export = &collector.exports()[0];
        assert_eq!(export.path, "/v1/traces");
        assert_eq!(export.resource["service.name"], "loopwright");
        assert_eq!(
            export.resource["service.version"],
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(export.resource["telemetry.sdk.language"], "rust");
    }
}

#[tokio::test]
async fn a_response_is_a_trace_of_the_same_form() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start(rounds()).await;
    let hook = tools().await;
    let app = collector.app().upstream(&upstream).dispatch(&hook);
    let app = app.toml(ONCE).start().await;
    let function = |name: &str| {
        let function = tool(name)["function"].clone();
        with(function, "type", json!("function"))
    };
    let body = json!({"model": MODEL, "input": "What is 1 + 2?", "tools": [function("add"), function("sub")]});
    let answer = tracing(app.client()).post("/v1/responses", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let spans = collector.spans(6).await;
    assert_turn(&spans, "/v1/responses", &upstream, &hook);
}

#[tokio::test]
async fn a_request_that_passes_through_is_a_span_and_a_model_call() {
    for streamed in [false, true] {
        let collector = Collector::start().await;
        let upstream = ScriptedUpstream::start([text("Hello."), script::error(429, "later")]).await;
        let app = collector
            .app()
            .upstream(&upstream)
            .toml("[retry]\nmax_attempts = 1");
        let app = app.start().await;
        let client = tracing(app.client());
        match streamed {
            false => assert_eq!(client.post_chat(ask("Hi")).await.content(), "Hello."),
            true => {
                let (bytes, broken) = client.stream_chat(ask("Hi")).await.raw().await;
                assert!(broken.is_none() && bytes.ends_with(b"data: [DONE]\n\n"));
            }
        }
        let spans = collector.spans(2).await;
        let server = named(&spans, "POST /v1/chat/completions");
        let chat = named(&spans, &format!("chat {MODEL}"));
        assert_eq!((&*server.trace, &*server.parent), (TRACE, SPAN));
        assert_eq!((chat.kind, &chat.parent), (SpanKind::Client, &server.id));
        assert!(!chat.failed);
        chat.assert_has([
            ("gen_ai.request.model", json!(MODEL)),
            ("gen_ai.provider.name", json!("openai")),
            ("server.address", json!("127.0.0.1")),
            ("error.type", Value::Null),
        ]);
        assert_eq!(
            upstream.request(0).header("traceparent"),
            Some(&*chat.traceparent())
        );

        client.post_chat(ask("Hi")).await.assert_error(429, None);
        let spans = collector.spans(4).await;
        let failed: Vec<&Span> = spans.iter().filter(|span| span.failed).collect();
        assert_eq!(failed.len(), 1, "{spans:#?}");
        failed[0].assert_has([("error.type", json!("429"))]);
    }
}

#[tokio::test]
async fn other_endpoints_and_health_checks() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start([]).await;
    let app = collector.app().upstream(&upstream).start().await;
    app.get("/healthz").await;
    app.get("/metrics").await;
    app.post("/v1/embeddings", &json!({"model": MODEL, "input": "x"}))
        .await;
    app.get("/v1/sessions/nothing")
        .await
        .assert_error(404, Some("not_found"));
    let spans = collector.spans(3).await;
    let expected = [
        "GET /v1/sessions/{id}".to_owned(),
        "POST /v1/{*path}".to_owned(),
        format!("embeddings {MODEL}"),
    ];
    assert_eq!(names(&spans), expected);
    let missing = named(&spans, "GET /v1/sessions/{id}");
    assert!(!missing.failed);
    missing.assert_has([
        ("http.response.status_code", json!(404)),
        ("error.type", Value::Null),
    ]);
}

#[tokio::test]
async fn an_error_of_the_model_server_is_the_error_of_its_spans() {
    let collector = Collector::start().await;
    let upstream =
        ScriptedUpstream::start([script::error(503, "full"), script::error(500, "no")]).await;
    let hook = tools().await;
    let app = collector.app().upstream(&upstream).dispatch(&hook);
    let app = app
        .toml("[retry]\nmax_attempts = 2\nbase_delay = \"1ms\"")
        .start()
        .await;
    app.post_chat(ask_with("Go", ["add"]))
        .await
        .assert_error(500, None);
    let spans = collector.spans(3).await;
    assert!(spans.iter().all(|span| span.failed), "{spans:#?}");
    let chat = named(&spans, &format!("chat {MODEL}"));
    chat.assert_has([
        ("error.type", json!("500")),
        ("loopwright.retries", json!(1)),
        ("loopwright.upstream", json!("default")),
    ]);
    named(&spans, "invoke_agent").assert_has([
        ("error.type", json!("500")),
        ("loopwright.stop_reason", json!("failed")),
    ]);
    let server = named(&spans, "POST /v1/chat/completions");
    server.assert_has([("error.type", json!("500"))]);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_spans() {
    let collector = Collector::start().await;
    let gate = Gate::new();
    let reply = || text("one two three").gate_before(2, &gate);
    let upstream = ScriptedUpstream::start([reply(), reply()]).await;
    let hook = tools().await;
    let app = collector
        .app()
        .upstream(&upstream)
        .dispatch(&hook)
        .start()
        .await;
    let mut stream = app.stream_chat(ask_with("Go", ["add"])).await;
    stream.next_text().await;
    drop(stream);
    upstream.dropped(0).await;
    let spans = collector.spans(3).await;
    for span in &spans {
        let expected = match span.kind {
            SpanKind::Server => "aborted",
            _ => "cancelled",
        };
        span.assert_has([("error.type", json!(expected))]);
    }
    let mut stream = app.stream_chat(ask("Go")).await;
    stream.next_text().await;
    drop(stream);
    upstream.dropped(1).await;
    let spans = collector.spans(5).await;
    assert!(spans.iter().all(|span| span.failed), "{spans:#?}");
}

#[tokio::test]
async fn a_denied_call_has_a_span_that_says_so() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start([calls([("add", json!({}))]), text("Sorry.")]).await;
    let hook = tools().await;
    let rules = "[[permissions]]\ntool = \"add\"\neffect = \"deny\"";
    let app = collector
        .app()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(rules)
        .start()
        .await;
    let answer = app.post_chat(ask_with("Go", ["add"])).await;
    let entry = &answer.completion()["agentic_tool_calls"][0];
    let spans = collector.spans(5).await;
    let call = named(&spans, "execute_tool add");
    call.assert_has([
        ("loopwright.tool.status", entry["status"].clone()),
        ("error.type", json!("denied")),
    ]);
}
