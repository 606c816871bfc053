//! Probes, preflights, and what web pages may read.

use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::client::{Answer, Client};
use super::super::support::upstream::ScriptedUpstream;
use super::KEYS;

const KEY: &str = "alice-key-0123456789";
/// Described headers that need not be exposed: every page may read the first three, and the others are for the browser.
const NOT_LISTED: [&str; 5] = [
    "cache-control",
    "content-length",
    "content-type",
    "content-security-policy",
    "x-content-type-options",
];
/// Paths that have nothing to get.
const WITHOUT_GET: [&str; 11] = [
    "/",
    "/v1/chat/completions",
    "/v1/chat/completions/chatcmpl-1/cancel",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/responses/resp_1/cancel",
    "/v1/conversations",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/ai-sdk/chat",
    "/v1/ai-sdk/chat/c/stream",
];
/// Paths that have.
const WITH_GET: [&str; 6] = [
    "/v1/chat/completions/chatcmpl-1",
    "/v1/responses/resp_1",
    "/v1/responses/resp_1/input_items",
    "/v1/conversations/conv_1",
    "/v1/conversations/conv_1/items",
    "/v1/containers/cntr_1/files",
];

async fn probe(client: &Client, method: Method, path: &str) -> Answer {
    Answer::of(client.request(method, path)).await
}

async fn keyed(upstream: &ScriptedUpstream) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).env("ALICE", KEY);
    builder.toml(KEYS).start().await
}

#[tokio::test]
async fn a_probe_is_answered_with_nothing_whoever_asks() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = keyed(&upstream).await;
    let callers = [
        app.client().clone(),
        app.client().key("wrong"),
        app.client().key(KEY),
    ];
    for caller in &callers {
        let all = WITHOUT_GET.iter().chain(&WITH_GET);
        let probes = all.map(|path| (Method::OPTIONS, *path));
        let probes = probes.chain(WITHOUT_GET.map(|path| (Method::HEAD, path)));
        for (method, path) in probes {
            let answer = probe(caller, method.clone(), path).await;
            assert_eq!(answer.status, 200, "{method} {path}");
            assert!(answer.body.is_empty(), "{method} {path}: {}", answer.text());
            assert!(answer.header("x-request-id").is_some(), "{method} {path}");
        }
    }
    assert!(upstream.others().is_empty() && upstream.requests().is_empty());
}

#[tokio::test]
async fn what_can_be_read_is_as_closed_to_head_as_to_get() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = keyed(&upstream).await;
    let alice = app.client().key(KEY);
    for path in WITH_GET {
        assert_eq!(
            probe(app.client(), Method::HEAD, path).await.status,
            401,
            "{path}"
        );
        let (head, get) = (
            probe(&alice, Method::HEAD, path).await.status,
            alice.get(path).await.status,
        );
        assert_eq!((head.as_u16(), get.as_u16()), (404, 404), "{path}");
    }
    // What is no probe needs a key, whatever the method.
    for (method, path) in [
        (Method::HEAD, "/v1/models"),
        (Method::HEAD, "/v1/embeddings"),
        (Method::OPTIONS, "/v1/embeddings"),
        (Method::HEAD, "/v1/%6dessages"),
        (Method::POST, "/"),
        (Method::POST, "/ui/main.js"),
        (Method::POST, "/v1/messages"),
    ] {
        let answer = probe(app.client(), method.clone(), path).await;
        assert_eq!(answer.status, 401, "{method} {path}");
    }
    assert!(upstream.others().is_empty());
}

#[tokio::test]
async fn a_path_of_a_later_version_is_forwarded_and_only_its_probes_are_answered() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    for path in ["/v1/messages", "/v1/ai-sdk/chat"] {
        assert_eq!(probe(app.client(), Method::HEAD, path).await.status, 200);
    }
    assert!(upstream.others().is_empty());
    let answer = app.post("/v1/messages", &json!({"max_tokens": 1})).await;
    assert_eq!(answer.header("x-echo-path"), Some("/v1/messages"));
}

#[tokio::test]
async fn a_probe_of_a_foreign_host_gets_no_answer() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let foreign = app.client().header("host", "evil.example");
    for path in ["/", "/v1/responses", "/v1/messages"] {
        for method in [Method::HEAD, Method::OPTIONS] {
            let refused = probe(&foreign, method.clone(), path).await;
            assert_eq!(refused.status, 403, "{method} {path}");
            assert_eq!(probe(app.client(), method, path).await.status, 200);
        }
    }
}

#[tokio::test]
async fn a_preflight_is_a_matter_of_the_configured_origins() {
    let upstream = ScriptedUpstream::start([]).await;
    let preflight = async |app: &TestApp, origin: &str, path: &str| {
        let request = app
            .client()
            .request(Method::OPTIONS, path)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization");
        Answer::of(request).await
    };
    let allows = |answer: &Answer| {
        let allowed = answer.header("access-control-allow-origin");
        allowed.map(ToOwned::to_owned)
    };
    let closed = keyed(&upstream).await;
    let builder = TestApp::builder().upstream(&upstream).env("ALICE", KEY);
    let builder = builder.toml("cors_origins = [\"https://chat.corp\"]");
    let open = builder.toml(KEYS).start().await;
    for path in ["/v1/responses", "/v1/messages", "/v1/chat/completions"] {
        let answer = preflight(&closed, "https://chat.corp", path).await;
        let names = answer.headers.keys().map(http::HeaderName::as_str);
        assert_eq!(
            names
                .filter(|name| name.starts_with("access-control-"))
                .count(),
            0
        );
        let answer = preflight(&open, "https://chat.corp", path).await;
        assert_eq!(allows(&answer).as_deref(), Some("https://chat.corp"));
        assert_eq!(answer.header("access-control-allow-methods"), Some("POST"));
        assert_eq!(
            allows(&preflight(&open, "https://evil.example", path).await),
            None
        );
    }
}

/// The names of the headers that a document describes, in any answer.
fn described_headers(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if let (true, Some(headers)) = (key == "headers", member.as_object()) {
                    names.extend(headers.keys().cloned());
                }
                described_headers(member, names);
            }
        }
        Value::Array(entries) => entries
            .iter()
            .for_each(|entry| described_headers(entry, names)),
        _ => {}
    }
}

#[tokio::test]
async fn a_page_of_a_configured_origin_may_read_every_header() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let builder = builder.toml("cors_origins = [\"https://chat.corp\"]");
    let app = builder.start().await;
    let page = app.client().header("origin", "https://chat.corp");
    let answer = page.get("/v1/models").await;
    let exposed = answer.header("access-control-expose-headers").unwrap();
    let exposed: Vec<&str> = exposed.split(',').map(str::trim).collect();
    let mut names: Vec<String> = [
        "x-request-id",
        "x-session-id",
        "x-completion-id",
        "idempotency-replayed",
        "x-should-retry",
        "retry-after",
        "openai-processing-ms",
        "openai-organization",
        "openai-version",
        "x-loopwright-overhead-ms",
        "x-loopwright-estimated",
        "x-ratelimit-remaining-requests",
        "x-upstream-ratelimit-reset-tokens",
        "content-disposition",
        "content-range",
    ]
    .map(ToOwned::to_owned)
    .into();
    let mut binary = Command::new(env!("CARGO_BIN_EXE_loopwright"));
    let printed = binary.arg("openapi").output().unwrap();
    let document: Value = serde_json::from_slice(&printed.stdout).unwrap();
    described_headers(&document["paths"], &mut names);
    described_headers(&document["components"]["responses"], &mut names);
    assert!(names.len() > 100, "{names:?}");
    names.retain(|name| !NOT_LISTED.contains(&name.as_str()));
    for name in names {
        assert!(exposed.contains(&name.as_str()), "{name}");
    }
}
