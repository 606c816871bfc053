//! Foreign pages and hosts, pages of other origins, the end of the server, and the address for metrics.

use super::super::record::Golden;
use super::outcome::Cases;
use super::sender::Sender;
use super::{CHAT, ENDPOINTS, METHODS, RESPONSE, any_upstream, app_with, filled, with_keys};
use crate::support::app::TestApp;
use crate::support::ask::ask_with;
use crate::support::eventually;
use crate::support::script::text;
use crate::support::server::Gate;
use crate::support::upstream::ScriptedUpstream;

/// Paths of no endpoint, as a page of another origin may ask for them.
const OTHERS: [(&str, &str, &str); 4] = [
    ("POST", "/nothing", "{}"),
    ("POST", "/v1/messages", "{}"),
    ("POST", "/v1/files/a/b/c", "{}"),
    ("POST", "/v1/a%00", "{}"),
];

#[tokio::test]
async fn every_endpoint_pages_and_hosts() {
    let upstream = any_upstream().await;
    let app = app_with(&upstream, "").await;
    let own = Sender::of(&app);
    let page = own.with("origin", "https://evil.test");
    let host = own.with("host", "evil.test");
    let mut golden = Golden::default();
    for (method, path, body) in ENDPOINTS.into_iter().chain(OTHERS) {
        let path = filled(path, "unknown");
        let mut cases = Cases::default();
        cases.add("a page", page.send(method, &path, body).await);
        if !body.is_empty() {
            let plain = page.with("content-type", "text/plain");
            cases.add("a page with text", plain.send(method, &path, body).await);
            cases.add("a page with nothing", page.send(method, &path, "").await);
        }
        cases.add("a host", host.send(method, &path, body).await);
        cases.write(&mut golden, &format!("{method} {path}"));
    }
    golden.check("every_endpoint_pages_and_hosts");
}

#[tokio::test]
async fn every_endpoint_cors() {
    let upstream = any_upstream().await;
    let origins = "cors_origins = [\"https://chat.test\"]";
    let app = with_keys(&upstream, origins).start().await;
    let nobody = Sender::of(&app);
    let mut golden = Golden::default();
    let answer = nobody.send("GET", "/healthz", "").await;
    golden.line(&answer.header("access-control-expose-headers"));
    for path in [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/conversations",
        "/v1/models",
        "/v1/sessions/s",
        "/v1/files",
        "/v1/embeddings",
        "/v1/files/a/b/c",
        "/mcp",
        "/healthz",
        "/metrics",
        "/",
        "/nothing",
    ] {
        for (who, origin) in [
            ("named", "https://chat.test"),
            ("foreign", "https://evil.test"),
        ] {
            let page = nobody.with("origin", origin);
            let preflight = page.with("access-control-request-method", "POST").with(
                "access-control-request-headers",
                "authorization, content-type",
            );
            let mut cases = Cases::default();
            cases.add("preflight", preflight.send("OPTIONS", path, "").await);
            for method in ["GET", "OPTIONS", "TRACE"] {
                cases.add(method, page.send(method, path, "").await);
            }
            let page = page.key(super::KEY);
            cases.add("GET with a key", page.send("GET", path, "").await);
            let page = page.with("content-type", "text/plain");
            cases.add(
                "POST with a key and text",
                page.send("POST", path, "x").await,
            );
            cases.write(&mut golden, &format!("{path}, a {who} page"));
        }
    }
    golden.check("every_endpoint_cors");
}

#[tokio::test]
async fn every_endpoint_in_the_shutdown() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_before(2, &gate)]).await;
    let tool = "[[tools]]\nname = \"ours\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\nparameters = { type = \"object\" }";
    let app = app_with(&upstream, tool).await;
    let mut running = app.stream_chat(ask_with("x", ["t"])).await;
    assert_eq!(running.next_text().await, "one ");
    app.terminate().await;
    let sender = Sender::of(&app);
    eventually("the shutdown has begun", || async {
        let outcome = sender.send("GET", "/readyz", "").await;
        outcome.text().contains("shutting_down").then_some(())
    })
    .await;
    let mut golden = Golden::default();
    let passed = [
        (
            "POST",
            "/v1/chat/completions",
            r#"{"max_tool_rounds":0,"model":"scripted-model","messages":[{"role":"user","content":"x"}]}"#,
        ),
        ("POST", "/v1/agent/tools/ours/call", r#"{"arguments":{}}"#),
        (
            "POST",
            "/mcp",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ours","arguments":{}}}"#,
        ),
    ];
    for (method, path, body) in ENDPOINTS.into_iter().chain(OTHERS).chain(passed) {
        let path = filled(path, "unknown");
        let line = sender.send(method, &path, body).await.line();
        golden.line(&format!("{method} {path} -> {line}"));
        if matches!(body, CHAT | RESPONSE) {
            let streamed = body.replacen('{', "{\"stream\":true,", 1);
            let line = sender.send(method, &path, streamed).await.line();
            golden.line(&format!("{method} {path}, streamed -> {line}"));
        }
    }
    golden.check("every_endpoint_in_the_shutdown");
    gate.open();
}

/// What an address answers that is not for the API.
async fn other_address(golden: &mut Golden, app: &TestApp, word: &str) {
    let sender = eventually("the address in the log", || async {
        let logs = app.logs();
        let line = logs.lines().find(|line| line.contains(word))?;
        let (_, rest) = line.split_once("127.0.0.1:")?;
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(Sender::to(&format!("http://127.0.0.1:{port}")))
    })
    .await;
    for path in [
        "/metrics",
        "/v1/models",
        "/v1/chat/completions/x",
        "/readyz",
        "/",
        "/x%00",
    ] {
        let mut cases = Cases::default();
        for method in METHODS {
            cases.add(method, sender.send(method, path, "").await);
        }
        cases.write(golden, &format!("{word}: {path}"));
    }
}

#[tokio::test]
async fn every_endpoint_of_other_addresses() {
    let upstream = any_upstream().await;
    let lines = "metrics_listen = \"127.0.0.1:0\"";
    let app = app_with(&upstream, lines).await;
    let mut golden = Golden::default();
    other_address(&mut golden, &app, "/metrics").await;
    golden.check("every_endpoint_of_other_addresses");
}

#[tokio::test]
async fn every_endpoint_of_the_console() {
    let upstream = any_upstream().await;
    let mut golden = Golden::default();
    for (name, lines) in [("served", ""), ("not served", "console = false")] {
        let app = with_keys(&upstream, lines).start().await;
        let browser = Sender::of(&app).with("accept", "text/html");
        for (who, sender) in [
            ("nobody", browser.clone()),
            ("alice", browser.key(super::KEY)),
        ] {
            for path in [
                "/",
                "/ui/index.html",
                "/ui/main.js",
                "/ui/icon.svg",
                "/ui/x/y",
                "/ui/%2e%2e/x",
            ] {
                let mut cases = Cases::default();
                for method in ["GET", "HEAD", "POST", "OPTIONS"] {
                    cases.add(method, sender.send(method, path, "").await);
                }
                cases.write(&mut golden, &format!("{name}, {who}: {path}"));
            }
        }
    }
    golden.check("every_endpoint_of_the_console");
}
