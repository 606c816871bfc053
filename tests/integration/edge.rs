//! The edge: errors of section 7, keys, hosts, origins, limits of requests, request ids.

mod chat_options;
mod probes;
mod unknown;

use http::Method;
use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, user, with};
use super::support::client::Answer;
use super::support::script::text;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::Webhook;

const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nsha256 = \"d4ba19eaa0ab1c0e8a7e0eda14f4df5ab59f1f76d13e6d57ec9fd0e6cf0dd0f6\"";

async fn raw(app: &TestApp, content_type: Option<&str>, body: &str) -> Answer {
    let request = app
        .client()
        .request(Method::POST, "/v1/chat/completions")
        .body(body.to_owned());
    Answer::of(match content_type {
        Some(kind) => request.header("content-type", kind),
        None => request,
    })
    .await
}

#[tokio::test]
async fn a_wrong_body_is_refused_with_the_field_and_the_remedy() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    for (body, param) in [
        (json!({"messages": [user("x")]}), json!("model")),
        (json!({"model": 3, "messages": [user("x")]}), json!("model")),
        (
            with(ask_with("x", ["t"]), "messages", json!("x")),
            json!("messages"),
        ),
        (
            with(ask_with("x", ["t"]), "messages", json!([{"content": "x"}])),
            json!("messages[0]"),
        ),
        (
            with(ask_with("x", ["t"]), "messages", json!([3])),
            json!("messages[0]"),
        ),
        (
            with(ask_with("x", ["t"]), "stream", json!("yes")),
            json!("stream"),
        ),
        (
            with(ask_with("x", ["t"]), "tools", json!({"a": 1})),
            json!("tools"),
        ),
        (
            with(ask_with("x", ["t"]), "tools", json!([{"type": "function"}])),
            json!("tools[0]"),
        ),
        (with(ask_with("x", ["t"]), "n", json!(2)), json!("n")),
        (
            with(ask("x"), "session_id", json!("a b")),
            json!("session_id"),
        ),
        (with(ask("x"), "session_id", json!(7)), json!("session_id")),
        (
            with(ask("x"), "max_tool_rounds", json!(-1)),
            json!("max_tool_rounds"),
        ),
        (with(ask("x"), "agent", json!([])), json!("agent")),
        (
            with(ask("x"), "agent", json!({"on_limits": "stop"})),
            json!("agent.on_limits"),
        ),
        (
            with(ask("x"), "agent", json!({"on_limit": "explode"})),
            json!("agent.on_limit"),
        ),
        (
            with(ask("x"), "agent", json!({"limits": {"max_seconds": "1"}})),
            json!("agent.limits.max_seconds"),
        ),
        (
            with(ask("x"), "agent", json!({"limits": {"max_minutes": 1}})),
            json!("agent.limits.max_minutes"),
        ),
        (
            with(ask("x"), "agent", json!({"limits": {"max_cost_usd": 1}})),
            json!("agent.limits.max_cost_usd"),
        ),
        (
            with(ask("x"), "agent", json!({"client_tools": ["["]})),
            json!("agent.client_tools"),
        ),
        (
            with(ask("x"), "agent", json!({"tools": {"allowed": []}})),
            json!("agent.tools.allowed"),
        ),
        (
            with(ask("x"), "agent", json!({"tools": {"allow": ["["]}})),
            json!("agent.tools"),
        ),
        (
            with(ask("x"), "agent", json!({"on_disconnect": "later"})),
            json!("agent.on_disconnect"),
        ),
        (
            with(ask("x"), "agent_permission", json!("maybe")),
            json!("agent_permission"),
        ),
        (
            with(ask("x"), "code_execution_permission", json!("maybe")),
            json!("code_execution_permission"),
        ),
        (
            with(ask("x"), "files", json!([{"name": "a"}])),
            json!("files"),
        ),
        (
            with(ask("x"), "enable_code_execution", json!(true)),
            json!("enable_code_execution"),
        ),
    ] {
        let answer = app.post_chat(body.clone()).await;
        let message = answer.assert_error(400, None);
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{body}");
        assert_eq!(error["param"], param, "{body}: {error}");
        assert!(message.len() > 15, "{message}");
    }
    for body in [
        "",
        "{",
        "[1]",
        "\"x\"",
        "{\"model\":\"m\"} trailing",
        "\u{feff}{}",
    ] {
        raw(&app, Some("application/json"), body)
            .await
            .assert_error(400, None);
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn the_content_type_must_be_json() {
    let upstream = ScriptedUpstream::start([text("x"), text("x")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = ask("x").to_string();
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=x"),
    ] {
        raw(&app, kind, &body)
            .await
            .assert_error(415, Some("unsupported_media_type"));
    }
    for kind in ["application/json", "application/json; charset=utf-8"] {
        assert_eq!(raw(&app, Some(kind), &body).await.status, 200);
    }
}

#[tokio::test]
async fn what_is_not_there_says_so_in_the_envelope() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    for path in [
        "/nowhere",
        "/v2/models",
        "/v1/sessions/none",
        "/v1/sessions/a%20b",
        "/v1/chat/completions/chatcmpl-1",
        "/v1/files/file-1",
        "/v1/files/file-1/content",
        "/v1/files/file-0123456789abcdef0123456789abcdef/content",
        "/v1/files/file-1/content/more",
        "/v1/sessions/s/messages",
        "/v1/sessions/%ff",
        "/v1/models/%ff",
    ] {
        app.get(path).await.assert_error(404, Some("not_found"));
    }
    for (method, path) in [
        (Method::GET, "/v1/chat/completions"),
        (Method::DELETE, "/v1/models"),
        (Method::PATCH, "/v1/sessions/s"),
    ] {
        app.client()
            .send(method, path, &json!({}))
            .await
            .assert_error(405, Some("method_not_allowed"));
    }
    for path in [
        "/v1/chat/completions/x/cancel",
        "/v1/sessions/s/cancel",
        "/v1/agent/approvals/a",
    ] {
        app.post(path, &json!({}))
            .await
            .assert_error(404, Some("not_found"));
    }
    app.client()
        .send(Method::PUT, "/v1/sessions/%ff", &json!({}))
        .await
        .assert_error(404, Some("not_found"));
    app.get("/v1/sessions?limit=1&limit=2")
        .await
        .assert_error(400, None);
    assert!(upstream.others().is_empty(), "never forwarded");
}

#[tokio::test]
async fn a_key_is_required_where_keys_are_configured() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .env("ALICE", "alice-key-0123456789")
        .toml(KEYS)
        .start()
        .await;
    let wrong = [
        "alice-key-012345678",
        "alice-key-0123456789x",
        "",
        "d4ba19eaa0ab1c0e",
    ];
    for path in [
        "/v1/models",
        "/v1/sessions",
        "/v1/agent/tools",
        "/metrics",
        "/v1/embeddings",
        "/nowhere",
    ] {
        app.get(path)
            .await
            .assert_error(401, Some("invalid_api_key"));
        for key in wrong {
            app.client()
                .key(key)
                .get(path)
                .await
                .assert_error(401, Some("invalid_api_key"));
        }
    }
    app.post_chat(ask("x"))
        .await
        .assert_error(401, Some("invalid_api_key"));
    assert!(upstream.requests().is_empty() && upstream.others().is_empty());
    let alice = app.client().key("alice-key-0123456789");
    assert_eq!(alice.post_chat(ask("x")).await.status, 200);
    assert!(
        upstream.last().header("authorization").is_none(),
        "our keys stay here"
    );
    assert_eq!(app.get("/healthz").await.status, 200, "probes need no key");
}

#[tokio::test]
async fn the_callers_authorization_goes_on_only_without_keys_of_either_side() {
    let upstream = ScriptedUpstream::start([text("x"), text("x"), text("x")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    app.client().key("callers-own").post_chat(ask("x")).await;
    assert_eq!(
        upstream.last().header("authorization"),
        Some("Bearer callers-own")
    );
    app.client()
        .key("callers-own")
        .post_chat(ask_with("x", ["t"]))
        .await;
    assert_eq!(
        upstream.last().header("authorization"),
        Some("Bearer callers-own")
    );
    let app = TestApp::builder()
        .upstream(&upstream)
        .env("UPSTREAM_KEY", "servers-own")
        .args(["--upstream-api-key-env", "UPSTREAM_KEY"])
        .start()
        .await;
    app.client().key("callers-own").post_chat(ask("x")).await;
    assert_eq!(
        upstream.last().header("authorization"),
        Some("Bearer servers-own")
    );
}

#[tokio::test]
async fn without_keys_only_known_hosts_are_answered() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("allowed_hosts = [\"*.corp\"]")
        .start()
        .await;
    for host in ["evil.example", "evil.example:80", "corp", "10.1.2.3"] {
        let client = app.client().header("host", host);
        client
            .post_chat(ask("x"))
            .await
            .assert_error(403, Some("host_not_allowed"));
        client
            .get("/v1/models")
            .await
            .assert_error(403, Some("host_not_allowed"));
        client
            .get("/metrics")
            .await
            .assert_error(403, Some("host_not_allowed"));
    }
    assert!(upstream.requests().is_empty());
    for host in ["localhost:9", "127.0.0.1", "[::1]:1", "tools.corp:8080"] {
        assert_eq!(
            app.client()
                .header("host", host)
                .get("/v1/models")
                .await
                .status,
            200,
            "{host}"
        );
    }
}

#[tokio::test]
async fn cors_is_off_until_origins_are_named() {
    let upstream = ScriptedUpstream::start([
        text("x").header("access-control-allow-origin", "*"),
        text("x"),
    ])
    .await;
    let app = TestApp::with_upstream(&upstream).await;
    let page = app.client().header("origin", "https://chat.corp");
    let answer = page.post_chat(ask("x")).await;
    assert!(
        answer
            .headers
            .keys()
            .all(|name| !name.as_str().starts_with("access-control-")),
        "not the upstream's to say"
    );
    let preflight = Answer::of(page.request(Method::OPTIONS, "/v1/chat/completions")).await;
    assert!(preflight.header("access-control-allow-origin").is_none());
    // A page could send this without a preflight.
    let form = app
        .client()
        .header("origin", "https://evil.example")
        .request(Method::POST, "/v1/audio/speech");
    Answer::of(form.header("content-type", "text/plain").body("{}"))
        .await
        .assert_error(403, Some("origin_not_allowed"));
    let page = app.client().header("origin", "https://evil.example");
    for path in ["/v1/conversations", "/v1/sessions/s/cancel"] {
        Answer::of(page.request(Method::POST, path))
            .await
            .assert_error(403, Some("origin_not_allowed"));
    }
    assert!(upstream.others().is_empty());

    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("cors_origins = [\"https://chat.corp\"]")
        .start()
        .await;
    let page = app.client().header("origin", "https://chat.corp");
    let preflight = page
        .request(Method::OPTIONS, "/v1/chat/completions")
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "content-type,authorization",
        );
    let preflight = Answer::of(preflight).await;
    assert_eq!(
        preflight.header("access-control-allow-origin"),
        Some("https://chat.corp")
    );
    let answer = page.post_chat(ask("x")).await;
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("https://chat.corp")
    );
    let other = app
        .client()
        .header("origin", "https://evil.example")
        .get("/v1/models")
        .await;
    assert!(other.header("access-control-allow-origin").is_none());
}

#[tokio::test]
async fn requests_are_bounded_in_every_direction() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await;
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder
        .toml("max_body_bytes = 2048\nmax_messages = 3\nmax_header_bytes = 8192\nbody_timeout = 0.3\nheader_timeout = 0.3")
        .start()
        .await;
    app.post_chat(ask(&"x".repeat(3000)))
        .await
        .assert_error(413, Some("request_too_large"));
    // The same without a declared length.
    let pieces =
        futures_util::stream::iter((0..4).map(|_| Ok::<_, std::io::Error>("y".repeat(1000))));
    let chunked = app
        .client()
        .request(Method::POST, "/v1/chat/completions")
        .header("content-type", "application/json");
    let chunked = Answer::of(chunked.body(reqwest::Body::wrap_stream(pieces))).await;
    chunked.assert_error(413, Some("request_too_large"));
    assert_eq!(chunked.header("connection"), Some("close"), "half read");
    let many = with(
        ask_with("x", ["t"]),
        "messages",
        json!([user("1"), user("2"), user("3"), user("4")]),
    );
    let answer = app.post_chat(many).await;
    assert!(answer.assert_error(400, None).contains('3'));
    assert_eq!(answer.json()["error"]["param"], "messages");
    let large = app
        .client()
        .header("x-large", &"h".repeat(10_000))
        .get("/healthz")
        .await;
    large.assert_error(431, Some("request_header_fields_too_large"));
    assert!(large.header("x-request-id").is_some());
    let fits = app.client().header("x-large", &"h".repeat(7_900));
    assert_eq!(fits.get("/healthz").await.status, 200);
    // A body that stops arriving.
    let stalled = futures_util::stream::pending::<Result<String, std::io::Error>>();
    let request = app
        .client()
        .request(Method::POST, "/v1/chat/completions")
        .header("content-type", "application/json");
    Answer::of(request.body(reqwest::Body::wrap_stream(stalled)))
        .await
        .assert_error(408, Some("request_timeout"));
    // A head that stops arriving.
    let address = app.origin().trim_start_matches("http://").to_owned();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, b"GET /healthz HTTP/1.1\r\nhost: loc")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut rest);
    super::support::within("the connection to be closed", read)
        .await
        .unwrap();
}

#[tokio::test]
async fn every_answer_has_a_request_id() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    for path in ["/healthz", "/nowhere", "/v1/models"] {
        let fresh = app.get(path).await;
        assert!(
            fresh
                .header("x-request-id")
                .is_some_and(|id| id.starts_with("req_")),
            "{path}"
        );
        let own = app
            .client()
            .header("x-client-request-id", "abc-1")
            .get(path)
            .await;
        assert_eq!(own.header("x-request-id"), Some("abc-1"), "{path}");
        let bad = app
            .client()
            .header("x-request-id", "has space")
            .get(path)
            .await;
        assert_ne!(bad.header("x-request-id"), Some("has space"));
    }
}

#[tokio::test]
async fn logs_name_requests_and_never_what_they_hold() {
    let upstream = ScriptedUpstream::start([
        super::support::script::calls([("t", json!({"arg": "argument-secret"}))]),
        text("answer-secret"),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .on("t", super::support::webhook::text("result-secret"));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .args(["--log-level", "debug", "--log-format", "json"])
        .start()
        .await;
    let client = app
        .client()
        .key("caller-secret")
        .header("x-request-id", "my-request");
    client
        .post_chat(with(
            ask_with("prompt-secret", ["t"]),
            "session_id",
            json!("my-session"),
        ))
        .await
        .completion();
    let logs = app.logs();
    assert!(!logs.contains("-secret"), "{logs}");
    let record = |message: &str| -> Value {
        let mut records = logs
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = records.find(|record| record.to_string().contains(message));
        found.unwrap_or_else(|| panic!("no `{message}` in {logs}"))
    };
    for message in ["tool call finished", "turn finished"] {
        let record = record(message).to_string();
        assert!(
            record.contains("my-request") && record.contains("my-session"),
            "{record}"
        );
    }
    assert_eq!(record("\"ready\"")["url"], app.origin());
}

/// Sends a head as it is, which no client library would, and takes the whole answer as text.
async fn raw_head(app: &TestApp, head: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = app.origin().trim_start_matches("http://").to_owned();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!("{head}\r\nconnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    super::support::within("the answer", socket.read_to_end(&mut answer))
        .await
        .unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_path_with_two_readings_or_of_our_own_is_never_forwarded() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    for path in [
        "/v1/x/../files",
        "/v1/./chat/completions",
        "/v1//files",
        "/v1/%66iles",
        "/v1/%63hat/completions/abc",
        "/v1/%73essions",
        "/v1/%6dodels/x",
        "/v1/files/",
        "/v1/sessions/",
        "/v1/chat/completions/",
        "/v1/embeddings/",
        "/v1/..%2f..%2fadmin",
        "/v1/a%5c..%5cfiles",
        "/v1/a\\..\\files",
        "/v1/a%00",
        "/v1/%ff",
        "/v1/permissions/x/y",
    ] {
        for method in ["GET", "POST", "DELETE"] {
            let answer = raw_head(
                &app,
                &format!("{method} {path} HTTP/1.1\r\nhost: localhost"),
            )
            .await;
            assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
            assert!(answer.contains(r#""code":"not_found""#), "{path}: {answer}");
        }
    }
    assert!(upstream.requests().is_empty() && upstream.others().is_empty());
}

#[tokio::test]
async fn methods_that_no_endpoint_takes_are_not_forwarded() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    for target in [
        "TRACE /v1/embeddings",
        "TRACE /v1/models/x",
        "PROPFIND /v1/embeddings",
        "get /v1/embeddings",
        "CONNECT localhost:80",
        "TRACE /healthz",
    ] {
        let answer = raw_head(&app, &format!("{target} HTTP/1.1\r\nhost: localhost")).await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{target}: {answer}");
        assert!(answer.contains("\r\nallow: GET,"), "{answer}");
        assert!(
            answer.contains(r#""code":"method_not_allowed""#),
            "{answer}"
        );
    }
    assert!(upstream.others().is_empty());
}

#[tokio::test]
async fn an_upstreams_error_keeps_its_head_in_pass_through_only() {
    let failing = || {
        super::support::script::status(
            400,
            &[
                ("x-request-id", "theirs"),
                ("access-control-allow-origin", "*"),
                ("set-cookie", "a=b"),
                ("openai-organization", "org"),
                ("x-ratelimit-remaining", "3"),
                ("retry-after", "7"),
            ],
            r#"{"error":{"message":"no"}}"#,
        )
    };
    let upstream = ScriptedUpstream::start([failing(), failing(), failing()]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("x-request-id", "mine");

    let passed = client.post_chat(ask("x")).await;
    assert_eq!(passed.status, 400);
    assert!(passed.header("access-control-allow-origin").is_none());
    assert_eq!(passed.header("x-request-id"), Some("theirs"));
    assert_eq!(passed.header("set-cookie"), Some("a=b"));
    assert_eq!(passed.header("x-ratelimit-remaining"), Some("3"));

    let mut streamed = ask_with("x", ["t"]);
    streamed["stream"] = json!(true);
    for body in [ask_with("x", ["t"]), streamed] {
        let answer = client.post_chat(body).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.text(), r#"{"error":{"message":"no"}}"#);
        for name in [
            "access-control-allow-origin",
            "set-cookie",
            "openai-organization",
            "server",
            "x-ratelimit-remaining",
        ] {
            assert!(answer.header(name).is_none(), "{name}");
        }
        assert_eq!(answer.header("x-request-id"), Some("mine"));
        assert_eq!(answer.header("x-upstream-ratelimit-remaining"), Some("3"));
        assert_eq!(answer.header("retry-after"), Some("7"));
    }
}

#[tokio::test]
async fn a_turn_cut_by_shutdown_says_whether_it_may_be_sent_again() {
    use super::support::script::{calls, hang};
    for (idempotent, expected) in [(false, Some("false")), (true, None)] {
        let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), hang()]).await;
        let hook = Webhook::start()
            .await
            .on("t", super::support::webhook::text("r"));
        let app = TestApp::builder()
            .upstream(&upstream)
            .dispatch(&hook)
            .toml(&format!(
                "shutdown_grace = 0.1\ndispatch_idempotent = {idempotent}"
            ))
            .start()
            .await;
        let client = app.client().clone();
        let body = with(ask_with("x", ["t"]), "session_id", json!("s"));
        let asked = tokio::spawn(async move { client.post_chat(body).await });
        upstream.called(2).await;
        app.terminate().await;
        let answer = asked.await.unwrap();
        answer.assert_error(503, Some("shutting_down"));
        assert_eq!(answer.header("x-should-retry"), expected);
        assert_eq!(answer.header("x-session-id"), Some("s"));
        assert!(answer.header("openai-processing-ms").is_some());
    }
}

#[tokio::test]
async fn a_failed_turn_says_its_session_and_its_time_too() {
    use super::support::script::{calls, error, reset};
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]),
        calls([("t", json!({}))]),
        reset(),
        error(400, "no"),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .on("t", super::support::webhook::text("r"));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml("[retry]\nmax_attempts = 1")
        .start()
        .await;
    let asked = with(ask_with("x", ["t"]), "session_id", json!("s"));
    let limited = with(asked.clone(), "max_tool_rounds", json!(1));
    let limited = with(limited, "agent", json!({"on_limit": "error"}));
    let streamed = with(asked.clone(), "stream", json!(true));
    for (body, status) in [(limited, 422), (asked, 502), (streamed, 400)] {
        let answer = app.post_chat(body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.header("x-session-id"), Some("s"));
        let ms = |name: &str| -> f64 { answer.header(name).unwrap().parse().unwrap() };
        assert!(ms("x-loopwright-overhead-ms") < ms("openai-processing-ms") + 1.0);
    }
}
