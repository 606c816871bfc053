//! Every endpoint with what it refuses, one line a case: the status, the words of the error and the headers that differ
//! from those of any other answer.

mod at_the_edge;
mod labels;
mod of_bodies;
mod of_things;
mod of_upstreams;
mod outcome;
mod sender;

use std::collections::BTreeSet;

use serde_json::Value;

use self::outcome::Cases;
use self::sender::Sender;
use super::builder;
use super::record::Golden;
use crate::support::app::{Builder, TestApp, run_command};
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;

const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
];

const CHAT: &str = r#"{"model":"scripted-model","messages":[{"role":"user","content":"x"}]}"#;
const RESPONSE: &str = r#"{"model":"scripted-model","input":"x"}"#;

/// The endpoints with their methods, and a body for those that read one.
const ENDPOINTS: [(&str, &str, &str); 51] = [
    ("POST", "/v1/chat/completions", CHAT),
    ("GET", "/v1/chat/completions/{id}", ""),
    ("DELETE", "/v1/chat/completions/{id}", ""),
    ("GET", "/v1/chat/completions/{id}/events", ""),
    ("GET", "/v1/chat/completions/{id}/messages", ""),
    ("POST", "/v1/chat/completions/{id}/cancel", "{}"),
    ("POST", "/v1/responses", RESPONSE),
    ("POST", "/v1/responses/input_tokens", RESPONSE),
    ("POST", "/v1/responses/compact", RESPONSE),
    ("GET", "/v1/responses/{id}", ""),
    ("DELETE", "/v1/responses/{id}", ""),
    ("GET", "/v1/responses/{id}/input_items", ""),
    ("POST", "/v1/responses/{id}/cancel", "{}"),
    ("GET", "/v1/containers/{id}", ""),
    ("GET", "/v1/containers/{id}/files", ""),
    ("GET", "/v1/containers/{id}/files/{file_id}", ""),
    ("GET", "/v1/containers/{id}/files/{file_id}/content", ""),
    ("POST", "/v1/conversations", "{}"),
    ("GET", "/v1/conversations/{id}", ""),
    ("POST", "/v1/conversations/{id}", r#"{"metadata":{}}"#),
    ("DELETE", "/v1/conversations/{id}", ""),
    ("GET", "/v1/conversations/{id}/items", ""),
    (
        "POST",
        "/v1/conversations/{id}/items",
        r#"{"items":[{"role":"user","content":"x"}]}"#,
    ),
    ("GET", "/v1/conversations/{id}/items/{item_id}", ""),
    ("DELETE", "/v1/conversations/{id}/items/{item_id}", ""),
    ("GET", "/v1/sessions", ""),
    ("GET", "/v1/sessions/{id}", ""),
    ("PUT", "/v1/sessions/{id}", r#"{"messages":1}"#),
    ("DELETE", "/v1/sessions/{id}", ""),
    ("POST", "/v1/sessions/{id}/fork", "{}"),
    ("POST", "/v1/sessions/{id}/cancel", "{}"),
    ("GET", "/v1/models", ""),
    ("GET", "/v1/models/{id}", ""),
    ("DELETE", "/v1/models/{id}", ""),
    ("GET", "/v1/agent/tools", ""),
    ("POST", "/v1/agent/tools/{name}/call", r#"{"arguments":{}}"#),
    ("GET", "/v1/agent/approvals", ""),
    (
        "POST",
        "/v1/agent/approvals/{id}",
        r#"{"decision":"approve"}"#,
    ),
    ("POST", "/v1/permissions/explain", r#"{"tool":"t"}"#),
    (
        "POST",
        "/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
    ),
    ("GET", "/v1/files", ""),
    ("POST", "/v1/files", "{}"),
    ("GET", "/v1/files/{id}", ""),
    ("DELETE", "/v1/files/{id}", ""),
    ("GET", "/v1/files/{id}/content", ""),
    ("GET", "/healthz", ""),
    ("GET", "/readyz", ""),
    ("GET", "/metrics", ""),
    ("GET", "/", ""),
    ("GET", "/ui/{file}", ""),
    ("POST", "/v1/{path}", r#"{"model":"scripted-model"}"#),
];

/// Paths that are forwarded.
const FORWARDED: [&str; 13] = [
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/ai-sdk/chat",
    "/v1/ai-sdk/chat/x/stream",
    "/v1/embeddings",
    "/v1/unknown",
    "/v1/chat",
    "/v1/completions",
    "/v1/sessions2",
    "/v1/models/org/name",
    "/v1/models/%E2%82%AC",
    "/v1/a;b=c/d",
    "/v1/embeddings?a=b%20c",
];

/// Paths of no endpoint that are not forwarded.
const NOWHERE: [&str; 43] = [
    "/nothing",
    "/v1",
    "/v1/",
    "/v1x",
    "/v2/models",
    "/ui",
    "/ui/",
    "/mcp/x",
    "/healthz/",
    "/metrics/x",
    "/v1/chat/completions/",
    "/v1/chat/completions/a/b",
    "/v1/chat/completions/a/b/c",
    "/v1/responses/",
    "/v1/responses/x/y",
    "/v1/responses/x/y/z",
    "/v1/containers",
    "/v1/containers/a/b",
    "/v1/conversations/a/b",
    "/v1/conversations/a/items/b/c",
    "/v1/sessions/",
    "/v1/sessions/a/b",
    "/v1/files/",
    "/v1/files/a/b",
    "/v1/files/a/b/c",
    "/v1/agent",
    "/v1/agent/x",
    "/v1/agent/tools/a/b",
    "/v1/agent/approvals/a/b",
    "/v1/permissions",
    "/v1/permissions/x",
    "/v1/models/",
    "/v1/models/a%2fb",
    "/v1/models/../files",
    "/v1/%6dodels/x",
    "/v1/%66iles",
    "/v1/%63hat/completions",
    "/v1//files",
    "/v1/x/../files",
    "/v1/embeddings/",
    "/v1/a%00",
    "/v1/%ff",
    "/v1/a\\b",
];

const KEY: &str = "a-key-of-alice-in-this-test";
const OPERATOR: &str = "the-key-of-bob-in-this-test";

/// A model server that takes everything.
async fn any_upstream() -> ScriptedUpstream {
    let upstream = ScriptedUpstream::answering(|_| text("Taken.")).await;
    upstream.lenient()
}

/// A server with the keys of two owners. The second is the operator, with a `forward` list of its own.
fn with_keys(upstream: &ScriptedUpstream, lines: &str) -> Builder {
    let keys = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n\
        [[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\noperator = true\nforward = [\"batches/*\", \"models/**\"]";
    let builder = builder().upstream(upstream).toml(lines).toml(keys);
    builder.env("ALICE", KEY).env("BOB", OPERATOR)
}

/// The path with this in the place of its ids.
fn filled(template: &str, id: &str) -> String {
    let filled = template.split('/').map(|segment| match segment {
        "{path}" => "embeddings",
        parameter if parameter.starts_with('{') => id,
        literal => literal,
    });
    filled.collect::<Vec<_>>().join("/")
}

/// One path for each endpoint, and the paths of none.
fn paths() -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let of_endpoints = ENDPOINTS.iter().map(|(_, path, _)| filled(path, "unknown"));
    let others = FORWARDED.iter().chain(&NOWHERE);
    for path in of_endpoints.chain(others.map(|path| (*path).to_owned())) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Records what each path answers to each method without a body.
async fn methods(golden: &mut Golden, sender: &Sender) {
    for path in paths() {
        let mut cases = Cases::default();
        for method in METHODS {
            cases.add(method, sender.send(method, &path, "").await);
        }
        cases.write(golden, &path);
    }
}

#[tokio::test]
async fn every_endpoint_is_listed() {
    let printed = run_command("openapi", &[], &[]).await.stdout;
    let document: Value = serde_json::from_str(&printed).unwrap();
    let described = document["paths"].as_object().unwrap().keys();
    let listed: BTreeSet<&str> = ENDPOINTS.iter().map(|(_, path, _)| *path).collect();
    assert_eq!(
        described.map(String::as_str).collect::<BTreeSet<_>>(),
        listed
    );
}

#[tokio::test]
async fn every_endpoint_methods() {
    let upstream = any_upstream().await;
    let app = builder().upstream(&upstream).start().await;
    let mut golden = Golden::default();
    methods(&mut golden, &Sender::of(&app)).await;
    golden.check("every_endpoint_methods");
}

#[tokio::test]
async fn every_endpoint_methods_with_keys() {
    let upstream = any_upstream().await;
    let app = with_keys(&upstream, "").start().await;
    let mut golden = Golden::default();
    methods(&mut golden, &Sender::of(&app).key(KEY)).await;
    golden.check("every_endpoint_methods_with_keys");
}

/// Names of things that are not there.
fn ids(template: &str) -> Vec<(&'static str, String)> {
    let zeros = |prefix: &str, length| format!("{prefix}{}", "0".repeat(length));
    let well_formed = match template.split('/').nth(2).unwrap() {
        "chat" => zeros("chatcmpl-", 48),
        "responses" => zeros("resp_", 48),
        "containers" => zeros("cntr_", 48),
        "conversations" => zeros("conv_", 32),
        "files" => zeros("file-", 32),
        "agent" => zeros("apr_", 48),
        _ => zeros("", 48),
    };
    let odd = [
        "unknown",
        "a%20b",
        "a%2Fb",
        "%ff",
        "%00",
        "%zz",
        "%252e",
        ".",
        "..",
        "",
        "x;y",
        "%E2%82%AC",
        "%22%0A",
    ];
    let odd = odd.into_iter().map(|id| (id, id.to_owned()));
    let whole = [
        ("well-formed", well_formed),
        ("of 200 letters", "x".repeat(200)),
    ];
    whole.into_iter().chain(odd).collect()
}

#[tokio::test]
async fn every_endpoint_ids() {
    let upstream = any_upstream().await;
    let app = builder().upstream(&upstream).start().await;
    let sender = Sender::of(&app);
    let mut golden = Golden::default();
    let with_ids = |(_, path, _): &&(&str, &str, &str)| path.contains('{') && *path != "/v1/{path}";
    for (method, path, body) in ENDPOINTS.iter().filter(with_ids) {
        let mut cases = Cases::default();
        for (name, id) in ids(path) {
            let name = format!("\"{name}\"");
            cases.add(&name, sender.send(method, &filled(path, &id), *body).await);
        }
        cases.write(&mut golden, &format!("{method} {path}"));
    }
    golden.check("every_endpoint_ids");
}

#[tokio::test]
async fn every_endpoint_keys() {
    let upstream = any_upstream().await;
    let app = with_keys(&upstream, "").start().await;
    let nobody = Sender::of(&app);
    let senders = [
        ("no key", nobody.clone()),
        ("a wrong key", nobody.key("wrong")),
        (
            "another scheme",
            nobody.with("authorization", &format!("Basic {KEY}")),
        ),
        ("no scheme", nobody.with("authorization", KEY)),
        (
            "a scheme in capitals",
            nobody.with("authorization", &format!("BEARER {KEY}")),
        ),
        ("x-api-key", nobody.with("x-api-key", KEY)),
        ("api-key", nobody.with("api-key", KEY)),
        ("a foreign host", nobody.key(KEY).with("host", "evil.test")),
        ("the operator's key", nobody.key(OPERATOR)),
    ];
    let mut golden = Golden::default();
    let others = [
        "/nothing",
        "/v1/models/org/name",
        "/v1/files/a/b/c",
        "/v1/a%00",
        "/v1/messages",
    ];
    let others = others.iter().map(|path| ("POST", *path, "{}"));
    for (method, path, body) in ENDPOINTS.into_iter().chain(others) {
        let mut cases = Cases::default();
        for (name, sender) in &senders {
            let path = filled(path, "unknown");
            cases.add(name, sender.send(method, &path, body).await);
        }
        cases.write(&mut golden, &format!("{method} {path}"));
    }
    golden.check("every_endpoint_keys");
}

#[tokio::test]
async fn every_endpoint_forward_list() {
    let upstream = any_upstream().await;
    let app = with_keys(&upstream, "").start().await;
    let nobody = Sender::of(&app);
    let mut golden = Golden::default();
    for path in [
        "/v1/embeddings?x=1",
        "/v1/%65mbeddings",
        "/v1/completions",
        "/v1/audio/speech",
        "/v1/audio/x/y",
        "/v1/images/edits",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/batches",
        "/v1/batches/b_1",
        "/v1/batches/b_1/cancel?x=1",
        "/v1/organization/api_keys",
        "/v1/models/ft%3Aabc",
        "/v1/%22%0A[a]/b",
        "/v1/chat",
    ] {
        let mut cases = Cases::default();
        for (name, key) in [("alice", KEY), ("bob", OPERATOR)] {
            for method in ["GET", "POST", "DELETE"] {
                let outcome = nobody.key(key).send(method, path, "{}").await;
                cases.add(&format!("{name}:{method}"), outcome);
            }
        }
        cases.write(&mut golden, path);
    }
    golden.check("every_endpoint_forward_list");
}

/// A server with this configuration besides its model server.
async fn app_with(upstream: &ScriptedUpstream, lines: &str) -> TestApp {
    builder().upstream(upstream).toml(lines).start().await
}
