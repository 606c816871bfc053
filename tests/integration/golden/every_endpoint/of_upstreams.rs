//! Model servers that fail, as every kind of request reports it.

use serde_json::{Value, json};

use super::super::record::Golden;
use super::of_bodies::GZIP;
use super::outcome::Cases;
use super::sender::Sender;
use crate::support::app::TestApp;
use crate::support::script::{self, Reply, calls, text};
use crate::support::server::HttpReply;
use crate::support::unreachable_url;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

const OWN: &str = r#"{"error":{"message":"scripted words","type":"its_type","param":"its.param","code":"its_code"},"more":1}"#;

/// Each failure is the first one: nothing is tried again.
const CALM: &str = "keep_alive = 300\nfirst_byte_wait = 300\nretry = { max_attempts = 1 }";

/// The kinds of requests that lead to a model call.
fn requests() -> Vec<(String, &'static str, Value)> {
    let messages = json!([{"role": "user", "content": "x"}]);
    let chat = json!({"model": "scripted-model", "messages": messages});
    let function = json!({"name": "t", "parameters": {"type": "object"}});
    let mut turn = chat.clone();
    turn["tools"] = json!([{"type": "function", "function": function}]);
    let response = json!({"model": "scripted-model", "input": "x"});
    let unstored = json!({"model": "scripted-model", "input": "x", "store": false});
    let mut requests = Vec::new();
    for (name, path, body) in [
        ("chat", "/v1/chat/completions", chat),
        ("turn", "/v1/chat/completions", turn),
        ("response", "/v1/responses", response),
        ("unstored response", "/v1/responses", unstored),
    ] {
        let mut streamed = body.clone();
        streamed["stream"] = true.into();
        requests.push((name.to_owned(), path, body));
        requests.push((format!("streamed {name}"), path, streamed));
    }
    requests
}

/// Records how all requests end at a server with these model servers.
async fn failing(golden: &mut Golden, heading: &str, upstreams: &str) {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let builder = TestApp::builder().dispatch(&hook);
    let app = builder.toml(CALM).toml(upstreams).start().await;
    let sender = Sender::of(&app);
    let mut cases = Cases::default();
    for (name, path, body) in requests() {
        let outcome = sender.send("POST", path, body.to_string()).await;
        cases.add(&name, outcome);
    }
    cases.write(golden, heading);
}

/// The same with one model server, of which every model call gets this reply.
async fn replying(golden: &mut Golden, heading: &str, reply: Reply, lines: &str) {
    let upstream = ScriptedUpstream::answering(move |_| reply.clone()).await;
    let url = upstream.base_url();
    let lines = format!("[[upstreams]]\nname = \"u\"\nbase_url = \"{url}\"\n{lines}");
    failing(golden, heading, &lines).await;
}

fn whole(status: u16, kind: &str, body: &'static str) -> Reply {
    script::status(status, &[("content-type", kind)], body)
}

#[tokio::test]
async fn upstream_failures_by_status() {
    let headers = [
        ("retry-after", "0"),
        ("retry-after-ms", "5"),
        ("x-ratelimit-remaining-requests", "3"),
        ("x-should-retry", "true"),
        ("x-request-id", "theirs"),
        ("set-cookie", "a=b"),
        ("www-authenticate", "Bearer"),
        ("access-control-allow-origin", "*"),
        ("x-loopwright-error-source", "theirs"),
    ];
    let json = "application/json";
    let html = "<html>scripted</html>";
    let mut golden = Golden::default();
    for (heading, reply) in [
        ("429 with its own words", script::status(429, &headers, OWN)),
        (
            "429 in gzip",
            script::status(429, &[("content-encoding", "gzip")], GZIP),
        ),
        ("401", script::status(401, &headers, OWN)),
        (
            "403 with a string",
            whole(403, json, r#"{"error":"scripted words"}"#),
        ),
        (
            "404 with a detail",
            whole(404, json, r#"{"detail":"scripted words"}"#),
        ),
        (
            "422 with a message",
            whole(
                422,
                json,
                r#"{"object":"error","message":"scripted words","code":422}"#,
            ),
        ),
        (
            "400 with a status for a code",
            script::error(400, "scripted words"),
        ),
        ("413 with nothing", whole(413, json, "")),
        ("500 in HTML", whole(500, "text/html", html)),
        ("502 in HTML", whole(502, "text/html", html)),
        ("503 with its own words", script::status(503, &headers, OWN)),
        ("529", whole(529, json, OWN)),
        (
            "302",
            script::status(302, &[("location", "http://evil.test/")], ""),
        ),
        ("204", whole(204, json, "")),
        ("200 in HTML", whole(200, "text/html", html)),
        ("200 with nothing", whole(200, json, "")),
        ("200 with an error", whole(200, json, OWN)),
    ] {
        replying(&mut golden, heading, reply, "").await;
    }
    golden.check("upstream_failures_by_status");
}

#[tokio::test]
async fn upstream_failures_of_connections() {
    let long = || text("one two three four");
    let mut golden = Golden::default();
    let dead = unreachable_url().await;
    let upstream =
        |name: &str| format!("[[upstreams]]\nname = \"{name}\"\nbase_url = \"{dead}\"\n");
    failing(&mut golden, "nobody listens", &upstream("u")).await;
    let two = upstream("u") + &upstream("v");
    failing(&mut golden, "nobody listens at two addresses", &two).await;
    let first = "first_byte_timeout = \"100ms\"";
    let idle = "idle_timeout = \"100ms\"";
    for (heading, reply, lines) in [
        ("reset", script::reset(), ""),
        ("no first byte", script::hang(), first),
        ("silence after the head", long().hang_after(0), idle),
        ("silence after some text", long().hang_after(3), idle),
        ("closed after the head", long().cut_after(0), ""),
        ("closed after some text", long().cut_after(3), ""),
        ("reset after some text", long().reset_after(3), ""),
        ("no end", long().truncate_after(3), ""),
        ("nothing", long().truncate_after(0), ""),
        ("nonsense", script::garbage(), ""),
    ] {
        replying(&mut golden, heading, reply, lines).await;
    }
    golden.check("upstream_failures_of_connections");
}

#[tokio::test]
async fn upstream_failures_in_streams() {
    let event = |value: Value| format!("data: {value}\n\n");
    let chunk = || {
        let choice = json!({"index": 0, "delta": {"role": "assistant", "content": "one "}, "finish_reason": null});
        event(
            json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}),
        )
    };
    let mut golden = Golden::default();
    for (heading, error) in [
        ("its own words", OWN.to_owned()),
        ("a string", r#"{"error":"scripted words"}"#.to_owned()),
        (
            "a status",
            r#"{"error":{"message":"scripted words","code":429}}"#.to_owned(),
        ),
        ("no words", r#"{"error":{}}"#.to_owned()),
    ] {
        let error = format!("data: {error}\n\n");
        let first = script::raw_sse([error.clone()]);
        replying(&mut golden, &format!("{heading}, first"), first, "").await;
        let later = script::raw_sse([chunk(), error]);
        replying(&mut golden, &format!("{heading}, later"), later, "").await;
    }
    golden.check("upstream_failures_in_streams");
}

#[tokio::test]
async fn upstream_failures_after_a_tool() {
    let mut golden = Golden::default();
    for (heading, failure) in [
        ("429", script::status(429, &[("retry-after", "0")], OWN)),
        (
            "500 in HTML",
            whole(500, "text/html", "<html>scripted</html>"),
        ),
        ("reset", script::reset()),
        (
            "closed after some text",
            text("one two three four").cut_after(3),
        ),
    ] {
        let upstream = ScriptedUpstream::answering(move |request| {
            let messages = request.body["messages"].as_array();
            let has_run = messages
                .is_some_and(|messages| messages.iter().any(|message| message["role"] == "tool"));
            match request.body["tools"].is_array() && !has_run {
                true => calls([("t", json!({}))]),
                false => failure.clone(),
            }
        })
        .await;
        let url = upstream.base_url();
        let lines = format!("[[upstreams]]\nname = \"u\"\nbase_url = \"{url}\"\n");
        failing(&mut golden, heading, &lines).await;
    }
    golden.check("upstream_failures_after_a_tool");
}

/// How the other requests to a model server fail.
#[tokio::test]
async fn upstream_failures_of_other_requests() {
    let answer = |status: u16, kind: &str, body: &'static str| HttpReply::whole(status, kind, body);
    let mut golden = Golden::default();
    let dead = unreachable_url().await;
    let mut urls = vec![("nobody listens", dead, None)];
    for (heading, listing) in [
        ("429", answer(429, "application/json", OWN)),
        (
            "500 in HTML",
            answer(500, "text/html", "<html>scripted</html>"),
        ),
        (
            "200 in HTML",
            answer(200, "text/html", "<html>scripted</html>"),
        ),
        (
            "200 with another object",
            answer(200, "application/json", "{\"object\":\"x\"}"),
        ),
    ] {
        let upstream = ScriptedUpstream::start([]).await.listing([listing]);
        urls.push((heading, upstream.base_url(), Some(upstream)));
    }
    for (heading, url, _upstream) in &urls {
        let builder = TestApp::builder().upstream_url(url).toml(CALM);
        let app = builder.start().await;
        let sender = Sender::of(&app);
        let mut cases = Cases::default();
        for (method, path, body) in [
            ("GET", "/v1/models", ""),
            ("GET", "/v1/models/scripted-model", ""),
            ("GET", "/v1/models/unknown", ""),
            ("DELETE", "/v1/models/unknown", ""),
            ("POST", "/v1/embeddings", "{\"model\":\"m\"}"),
            ("POST", "/v1/messages", "{\"model\":\"m\"}"),
            ("GET", "/v1/unknown", ""),
            ("POST", "/v1/responses/input_tokens", super::RESPONSE),
            ("POST", "/v1/responses/compact", super::RESPONSE),
            ("GET", "/readyz", ""),
        ] {
            let outcome = sender.send(method, path, body).await;
            cases.add(&format!("{method} {path}"), outcome);
        }
        cases.write(&mut golden, heading);
    }
    golden.check("upstream_failures_of_other_requests");
}

/// The headers of good answers: of a session, of an idempotency key, of the background.
#[tokio::test]
async fn headers_of_answers() {
    let upstream = ScriptedUpstream::answering(|_| text("Taken.")).await;
    let hook = Webhook::start().await;
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml(CALM).start().await;
    let sender = Sender::of(&app);
    let mut golden = Golden::default();
    for (number, (kind, path, body)) in requests().into_iter().enumerate() {
        let mut other = body.clone();
        other["seed"] = 1.into();
        let mut background = body.clone();
        background["background"] = true.into();
        let (body, other) = (body.to_string(), other.to_string());
        let keyed = sender.with("idempotency-key", &format!("k{number}"));
        let mut cases = Cases::default();
        cases.add("first", keyed.send("POST", path, body.clone()).await);
        cases.add("again", keyed.send("POST", path, body.clone()).await);
        cases.add("another body", keyed.send("POST", path, other).await);
        for (name, header, value) in [
            ("a long key", "idempotency-key", "k".repeat(256)),
            ("a key with a space", "idempotency-key", "a b".to_owned()),
            ("a session", "x-session-id", format!("s{number}")),
            ("no session id", "x-session-id", "a/b".to_owned()),
            ("a request id", "x-request-id", "mine".to_owned()),
            (
                "a client request id",
                "x-client-request-id",
                "mine".to_owned(),
            ),
        ] {
            let outcome = sender
                .with(header, &value)
                .send("POST", path, body.clone())
                .await;
            cases.add(name, outcome);
        }
        if path == "/v1/responses" {
            let outcome = sender.send("POST", path, background.to_string()).await;
            cases.add("in the background", outcome);
        }
        cases.write(&mut golden, &kind);
    }
    golden.check("headers_of_answers");
}
