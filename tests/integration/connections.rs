//! Connections: clients that stop reading, and more clients than there may be.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::script::{hang, text};
use super::support::stalled::StalledClient;
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::webhook::Webhook;
use super::support::{eventually, within};

/// When a client leaves that does not wait for its answer.
const SOON: Duration = Duration::from_millis(100);

fn address(app: &TestApp) -> std::net::SocketAddr {
    app.origin().trim_start_matches("http://").parse().unwrap()
}

#[tokio::test]
async fn a_client_that_stops_reading_is_disconnected_and_its_model_call_ends() {
    let upstream = ScriptedUpstream::start([text(&"word ".repeat(100_000)), text("Quick.")]).await;
    let hook = Webhook::start().await;
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml("write_timeout = 0.5").start().await;
    let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
    let stalled = StalledClient::streaming(&app, &body)
        .await
        .until("word")
        .await;
    upstream.dropped(0).await;
    // Its session is free, and its connection is closed in the midst of the answer.
    assert_eq!(app.post_chat(body).await.content(), "Quick.");
    let rest = stalled.rest().await;
    assert!(!rest.contains("[DONE]"), "{} bytes", rest.len());
}

/// A connection that has sent these bytes and reads nothing yet.
async fn sent(app: &TestApp, bytes: &str) -> TcpStream {
    let mut socket = within("a connection", TcpStream::connect(address(app)))
        .await
        .unwrap();
    socket.write_all(bytes.as_bytes()).await.unwrap();
    socket
}

/// The head of a chat request and the first byte of its body.
fn slow_body(key: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    )
}

/// A chat request in progress: its body is awaited, and a part of it is missing.
async fn in_progress(app: &TestApp, key: &str) -> TcpStream {
    const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
    let head = slow_body(key).replacen("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n", 1);
    let mut socket = sent(app, &head).await;
    let mut answer = [0; CONTINUE.len()];
    within("the wait for a body", socket.read_exact(&mut answer))
        .await
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), CONTINUE);
    socket
}

/// Sends one byte after the other, and gives what came back until the end of the connection.
async fn trickle(mut socket: TcpStream) -> String {
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let mut answer = Vec::new();
    within("the end of the connection", async {
        loop {
            tokio::select! {
                read = socket.read_buf(&mut answer) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                },
                _ = pace.tick() => drop(socket.write_all(b"a").await),
            }
        }
    })
    .await;
    String::from_utf8(answer).unwrap()
}

/// Reads to the end of the connection.
async fn rest(mut socket: TcpStream) -> String {
    let mut rest = Vec::new();
    let _reset = within("the end of a connection", socket.read_to_end(&mut rest)).await;
    String::from_utf8(rest).unwrap()
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_until_one_ends() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder.toml("max_connections = 2").start().await;
    let first = in_progress(&app, "").await;
    let _second = in_progress(&app, "").await;
    let third = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut third = sent(&app, third).await;
    let mut answer = [0; 12];
    tokio::select! {
        biased;
        read = third.read(&mut answer) => panic!("answered: {read:?}"),
        () = eventually("the limit in the log", || async {
            app.logs().contains("every connection is in use").then_some(())
        }) => {}
    }
    drop(first);
    within("the answer", third.read_exact(&mut answer))
        .await
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn idle_connections_and_slow_heads_make_room_for_requests() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder.toml("max_connections = 4").start().await;
    let answering = in_progress(&app, "").await;
    let idle = sent(&app, "").await;
    let slow_head = sent(&app, "GET /healthz HTTP/1.1\r\nhost: loc").await;
    let mut kept_alive = sent(&app, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut answer = [0; 12];
    within("an answer", kept_alive.read_exact(&mut answer))
        .await
        .unwrap();
    let mut later = Vec::new();
    for _ in 0..20 {
        later.push(sent(&app, "").await);
        // A client of its own, whose connection is a new one.
        let client = super::support::client::Client::new(app.origin());
        assert_eq!(client.get("/healthz").await.status, 200);
    }
    for closed in [idle, slow_head] {
        assert_eq!(rest(closed).await, "");
    }
    assert!(rest(kept_alive).await.ends_with(r#"{"status":"ok"}"#));
    // A request that is being answered is left alone.
    let mut answering = answering;
    answering.write_all(&[b'x'; 99]).await.unwrap();
    let mut answer = [0; 12];
    within("an answer", answering.read_exact(&mut answer))
        .await
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
}

#[tokio::test]
async fn a_key_leaves_connections_to_others() {
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let keys = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml(&format!("max_connections = 8\n{keys}"))
        .env("ALICE", "alice-alice-alice")
        .env("BOB", "bob-bob-bob-bob-bob")
        .start()
        .await;
    let mut flood = Vec::new();
    for _ in 0..4 {
        flood.push(in_progress(&app, "alice-alice-alice").await);
    }
    let alice = app.client().key("alice-alice-alice");
    let refused = alice.get("/v1/sessions").await;
    refused.assert_error(429, Some("rate_limit_exceeded"));
    assert!(refused.header("retry-after").is_some());
    let bob = app.client().key("bob-bob-bob-bob-bob");
    let body = with(ask_with("Hi", ["t"]), "session_id", json!("s"));
    assert_eq!(bob.post_chat(body).await.content(), "Hello.");
    drop(flood);
    eventually("the key to be served again", || async {
        (alice.get("/v1/sessions").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn peers_without_a_key_that_read_nothing_keep_nobody_out() {
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("max_connections = 8\n[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"")
        .env("ALICE", "alice-alice-alice")
        .start()
        .await;
    let requests = [
        "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: https://a.example\r\n\r\n",
        "HEAD /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n\r\n",
    ];
    let stalled = requests.iter().cycle().take(8);
    let stalled = stalled.map(|request| StalledClient::repeating(&app, request));
    let _stalled = futures_util::future::join_all(stalled).await;
    let alice = app.client().key("alice-alice-alice");
    let body = with(ask_with("Hi", ["t"]), "session_id", json!("s"));
    assert_eq!(alice.post_chat(body).await.content(), "Hello.");
    assert!(
        app.logs().contains("every connection is in use"),
        "{}",
        app.logs()
    );
}

#[tokio::test]
async fn turns_without_a_connection_leave_descriptors_and_turns_to_others() {
    let upstream =
        ScriptedUpstream::answering(
            |request| match request.messages()[0]["content"] == "Hello" {
                true => text("Hello."),
                false => hang(),
            },
        )
        .await;
    let program = env!("CARGO_BIN_EXE_loopwright");
    let script = format!("ulimit -n 400 && exec {program} \"$@\"");
    let keys = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
    let app = TestApp::builder()
        .upstream(&upstream)
        .program("/bin/sh", ["-c", script.as_str(), "sh"])
        .toml(keys)
        .env("ALICE", "alice-alice-alice")
        .env("BOB", "bob-bob-bob-bob-bob")
        .start()
        .await;
    let alice = app.client().key("alice-alice-alice");
    let bob = app.client().key("bob-bob-bob-bob-bob");
    let background = json!({"model": MODEL, "input": "Go", "background": true});
    let finishing = json!({"model": MODEL, "input": "Go", "stream": true, "agent": {"on_disconnect": "finish"}});
    let mut runs = Vec::new();
    let mut refused = 0;
    for number in 0..384 {
        if number % 32 == 0 {
            // Its client leaves, and it goes on.
            let left = alice.post("/v1/responses", &finishing);
            let _left = tokio::time::timeout(SOON, left).await;
            continue;
        }
        let answer = alice.post("/v1/responses", &background).await;
        match answer.status.as_u16() {
            200 | 202 => runs.push(answer.json()["id"].as_str().unwrap().to_owned()),
            _ => {
                let message = answer.assert_error(429, Some("rate_limit_exceeded"));
                assert!(message.contains("background"), "{message}");
                assert!(answer.header("retry-after").is_some());
                refused += 1;
            }
        }
    }
    assert!(refused > 200, "{refused}");
    assert!(app.descriptors() < 350, "{}", app.descriptors());
    assert_eq!(app.get("/healthz").await.status, 200);
    let hello = json!({"model": MODEL, "input": "Hello"});
    assert_eq!(bob.post("/v1/responses", &hello).await.status, 200);
    // What is forwarded has a connection to the model server too.
    let forwarded = json!({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]});
    let refused = alice.post("/v1/chat/completions", &forwarded).await;
    refused.assert_error(429, Some("rate_limit_exceeded"));
    let answered = bob.post("/v1/chat/completions", &forwarded).await;
    assert_eq!(answered.status, 200);
    // What has ended counts no more.
    for run in &runs {
        let cancelled = alice
            .post(&format!("/v1/responses/{run}/cancel"), &json!({}))
            .await;
        assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    }
    eventually("the key to be served again", || async {
        (alice.post("/v1/responses", &hello).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_is_read_slowly_keeps_its_connection() {
    let upstream = ScriptedUpstream::start([text(&"word ".repeat(100_000))]).await;
    let hook = Webhook::start().await;
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml("max_connections = 2").start().await;
    let slow = StalledClient::streaming(&app, &ask_with("Go", ["t"])).await;
    let slow = slow.until("word").await;
    // Each needs the other connection, which is closed for the next one.
    for _ in 0..5 {
        let client = super::support::client::Client::new(app.origin());
        assert_eq!(client.get("/healthz").await.status, 200);
    }
    let rest = slow.rest().await;
    assert!(rest.contains("[DONE]"), "{} bytes", rest.len());
}

#[tokio::test]
async fn slow_heads_and_slow_bodies_have_a_total_time() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder
        .toml("header_timeout = 0.3\nbody_timeout = 0.3")
        .start()
        .await;
    let head = sent(&app, "GET /healthz HTTP/1.1\r\nhost: ").await;
    assert_eq!(trickle(head).await, "");
    let body = slow_body("").replace("length: 100", "length: 10000");
    let answer = trickle(sent(&app, &body).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("request_timeout"), "{answer}");
}

#[tokio::test]
async fn a_head_that_cannot_be_parsed_is_refused_in_the_envelope() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let many = "x: y\r\n".repeat(101);
    let kept_alive = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for (request, status, code) in [
        (
            format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
            "431",
            "\"request_header_fields_too_large\"",
        ),
        (
            format!("GET /healthz HTTP/1.1\r\nhost: {}", "h".repeat(200_000)),
            "431",
            "\"request_header_fields_too_large\"",
        ),
        (
            "GET / HTTP/1.1\r\nbad header\r\n\r\n".to_owned(),
            "400",
            "null",
        ),
        ("\u{1}\u{2}\r\n\r\n".to_owned(), "400", "null"),
    ] {
        let answer = rest(sent(&app, &request).await).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.contains("x-request-id: req_"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"].to_string(), code, "{body}");
        // The same after a request on the same connection.
        let mut socket = sent(&app, kept_alive).await;
        let mut first = Vec::new();
        while !first.ends_with(b"}") {
            within("an answer", socket.read_buf(&mut first))
                .await
                .unwrap();
        }
        let _reset = socket.write_all(request.as_bytes()).await;
        let answer = rest(socket).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(answer.contains("\"error\""), "{answer}");
    }
}

#[tokio::test]
async fn the_soft_limit_of_descriptors_is_raised_and_a_burst_of_failures_is_one_line() {
    let upstream = ScriptedUpstream::start([]).await;
    let limited = |limits: &'static str| {
        let program = env!("CARGO_BIN_EXE_loopwright");
        let script = format!("ulimit {limits} && exec {program} \"$@\"");
        let builder = TestApp::builder().upstream(&upstream);
        builder.program("/bin/sh", ["-c", script.as_str(), "sh"])
    };
    let app = limited("-S -n 128").start().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", app.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    let (soft, hard): (u64, u64) = (words[3].parse().unwrap(), words[4].parse().unwrap());
    assert_eq!(soft, hard.min(1024 * 1024), "{limits}");

    // The configured limit is too high for what the operating system allows.
    let app = limited("-n 64")
        .toml("max_connections = 1000")
        .start()
        .await;
    eventually("the warning in the log", || async {
        let logs = app.logs();
        logs.contains("max_connections is not below").then_some(())
    })
    .await;
    let began = Instant::now();
    let mut open = Vec::new();
    let failures = || app.logs().matches("accepting connections fails").count();
    // More than it may have descriptors.
    for _ in 0..64 {
        open.push(
            within("a connection", TcpStream::connect(address(&app)))
                .await
                .unwrap(),
        );
    }
    eventually("the failure in the log", || async {
        (failures() > 0).then_some(())
    })
    .await;
    drop(open);
    assert_eq!(app.get("/healthz").await.status, 200);
    // One in ten seconds.
    let most = 1 + began.elapsed().as_secs() / 10;
    assert!(failures() as u64 <= most, "{}", app.logs());
}
