//! Life and death: clients that leave, slow clients, kill -9, SIGTERM, panics' stand-ins, probes, settings at start.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, user, with};
use super::support::script::{self, calls, text, text_and_calls};
use super::support::server::Gate;
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::webhook::{self, Webhook};
use super::support::{AT_ONCE, eventually, unreachable_url, within};

fn in_session(text: &str) -> Value {
    let mut body = ask_with(text, ["t"]);
    body["session_id"] = json!("s");
    body
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_model_stream_and_frees_the_session() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]),
        text("one two three").hang_after(2),
        text("Again."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(in_session("Go")).await;
    assert_eq!(stream.next_text().await, "one ");
    drop(stream);
    let left = std::time::Instant::now();
    upstream.dropped(1).await;
    let next = app.post_chat(in_session("More")).await;
    assert!(
        left.elapsed() < AT_ONCE,
        "free at once, not after a time-out: {:?}",
        left.elapsed()
    );
    assert_eq!(next.content(), "Again.");
    // The completed round is kept.
    assert_eq!(
        upstream.last().roles(),
        ["user", "assistant", "tool", "user"]
    );
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_running_tool() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Again.")]).await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(in_session("Go")).await;
    stream
        .next_progress(super::support::collect::TOOL_PROGRESS, "calling")
        .await;
    // The call is on its way, not only announced.
    hook.called(1).await;
    drop(stream);
    hook.dropped(0).await;
    assert_eq!(app.post_chat(in_session("More")).await.content(), "Again.");
}

#[tokio::test]
async fn a_plain_client_that_leaves_ends_everything_too() {
    let upstream = ScriptedUpstream::start([script::hang(), text("Again.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().clone();
    let request = tokio::spawn(async move { client.post_chat(in_session("Go")).await });
    upstream.called(1).await;
    request.abort();
    upstream.dropped(0).await;
    assert_eq!(app.post_chat(in_session("More")).await.content(), "Again.");
}

#[tokio::test]
async fn a_client_that_leaves_ends_retries() {
    // Longer than this test waits for anything.
    let busy = || script::status(503, &[("retry-after", "50")], "{}");
    let upstream = ScriptedUpstream::start([busy(), text("Again.")]).await;
    let hook = Webhook::start().await;
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder
        .toml("session_wait_ms = 3000\n[retry]\nmax_attempts = 3\nmax_delay = \"60s\"")
        .start()
        .await;
    let client = app.client().clone();
    let request = tokio::spawn(async move { client.post_chat(in_session("Go")).await });
    upstream.called(1).await;
    request.abort();
    // Were the first turn still waiting for its retry, the session would be busy.
    assert_eq!(app.post_chat(in_session("More")).await.content(), "Again.");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn kill_9_in_round_three_of_five_loses_that_round_only() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([
        text_and_calls("R1.", [("t", json!({"n": 1}))]),
        text_and_calls("R2.", [("t", json!({"n": 2}))]),
        text_and_calls("R3.", [("t", json!({"n": 3}))]),
        text("Going on."),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .once("t", webhook::text("one"))
        .once("t", webhook::text("two"))
        .on("t", webhook::text("three").gated(&gate));
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(in_session("Go")).await;
    hook.called(3).await;
    app.kill9().await;
    drop(stream);
    app.restart().await;

    let stored = app.get("/v1/sessions/s").await.json();
    let stored = stored["messages"].as_array().unwrap();
    let roles: Vec<&str> = stored
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant"
        ],
        "rounds 1 and 2, and the call that ran"
    );
    assert_eq!(
        (&stored[2]["content"], &stored[4]["content"]),
        (&json!("one"), &json!("two"))
    );
    // The scripted server is strict: it fails the test if the next turn is not valid.
    let body = json!({"model": MODEL, "session_id": "s", "messages": [user("Go on")]});
    assert_eq!(app.post_chat(body).await.content(), "Going on.");
    assert_eq!(
        upstream.last().roles(),
        [
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "user"
        ]
    );
}

#[tokio::test]
async fn sigterm_lets_running_requests_finish_and_takes_no_new_ones() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_before(2, &gate)]).await;
    let hook = Webhook::start().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(in_session("Go")).await;
    assert_eq!(stream.next_text().await, "one ");
    app.terminate().await;
    eventually("the shutdown has begun", || async {
        let probe = app.client().request(http::Method::GET, "/readyz");
        // A pooled connection may be closed at this moment.
        let sent = probe.send().await;
        sent.is_ok_and(|answer| answer.status() == 503)
            .then_some(())
    })
    .await;
    app.post_chat(ask("x"))
        .await
        .assert_error(503, Some("shutting_down"));
    gate.open();
    assert_eq!(stream.collect().await.text, "one two");
    assert_eq!(app.wait_exit().await.code(), Some(0));
    app.restart().await;
    assert_eq!(
        app.get("/v1/sessions/s").await.json()["messages"]
            .as_array()
            .unwrap()
            .len(),
        2,
        "and it is stored"
    );
}

#[tokio::test]
async fn after_the_grace_running_requests_end_with_an_error_and_done() {
    for signal in ["TERM", "INT"] {
        let upstream = ScriptedUpstream::start([
            text("one two").hang_after(2),
            script::hang(),
            text("x y z").hang_after(2),
        ])
        .await;
        let hook = Webhook::start().await;
        let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
        let mut app = builder.toml("shutdown_grace = 0.2").start().await;
        let mut stream = app.stream_chat(ask_with("Go", ["t"])).await;
        stream.next_text().await;
        let client = app.client().clone();
        let plain = tokio::spawn(async move { client.post_chat(ask_with("Go", ["t"])).await });
        upstream.called(2).await;
        let mut passed = app.stream_chat(ask("Go")).await;
        passed.next_text().await;
        app.signal(signal).await;
        let (stream, problems) = stream.collect_with_problems().await;
        assert_eq!(stream.error.unwrap()["code"], "shutting_down");
        assert!(problems.is_empty(), "{problems:?}");
        let plain = plain.await.unwrap();
        plain.assert_error(503, Some("shutting_down"));
        assert!(plain.header("retry-after").is_some());
        let (_, broken) = passed.raw().await;
        assert!(broken.is_some(), "a passed-through stream is broken off");
        assert_eq!(app.wait_exit().await.code(), Some(0));
    }
}

#[tokio::test]
async fn it_serves_and_stops_however_little_it_logs() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let mut app = builder.args(["--log-level", "off"]).start().await;
    app.post_chat(ask("Go")).await.completion();
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0));
    assert_eq!(
        app.logs().lines().count(),
        2,
        "the addresses of the API and of the console, and nothing else"
    );
}

/// A streamed answer of which only the beginning is read.
async fn unread_stream(app: &TestApp) -> tokio::net::TcpStream {
    let address = app.origin().trim_start_matches("http://").to_owned();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = with(ask_with("Go", ["t"]), "stream", json!(true)).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 64];
    within("the first bytes", socket.read_exact(&mut first))
        .await
        .unwrap();
    socket
}

#[tokio::test]
async fn a_client_that_reads_nothing_cannot_hold_the_process() {
    let upstream = ScriptedUpstream::start([text(&"word ".repeat(100_000))]).await;
    let hook = Webhook::start().await;
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let mut app = builder.toml("shutdown_grace = 0.2").start().await;
    let _stuck = unread_stream(&app).await;
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_slow_client_slows_only_itself() {
    // Far more than any socket buffer holds.
    let long = "word ".repeat(100_000);
    let upstream = ScriptedUpstream::start([text(&long), text("Quick.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let _slow = unread_stream(&app).await;
    assert_eq!(
        app.post_chat(ask_with("Go", ["t"])).await.content(),
        "Quick."
    );
    let memory = resident_kib(app.pid());
    assert!(memory < 120_000, "nothing piles up for it: {memory} KiB");
    assert_eq!(
        upstream.request(0).outcome(),
        super::support::server::Outcome::Running,
        "its upstream waits"
    );
}

/// The process's resident memory.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_store_that_fails_is_a_notice_and_not_the_end() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Fine.")]).await;
    let gate = Gate::new();
    let hook = Webhook::start()
        .await
        .on("t", webhook::text("r").gated(&gate));
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(in_session("Go")).await;
    hook.called(1).await;
    // Another program ruins the store's tables while the tool runs.
    let file = app.dir().join("sessions.db");
    let database = rusqlite::Connection::open(file).unwrap();
    database
        .execute_batch("ALTER TABLE messages RENAME TO lost")
        .unwrap();
    gate.open();
    let stream = stream.collect().await;
    assert_eq!(stream.text, "Fine.");
    assert!(
        stream
            .notices()
            .iter()
            .any(|notice| notice["kind"] == "session_store"),
        "{}",
        stream.transcript()
    );
    app.post_chat(in_session("Again"))
        .await
        .assert_error(503, Some("session_store_unavailable"));
    let metrics = app.get("/metrics").await.text();
    assert!(metrics.lines().any(
        |line| line.starts_with("loopwright_session_store_errors_total") && !line.ends_with(" 0")
    ));
}

#[tokio::test]
async fn probes_tell_alive_from_ready() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    assert_eq!(app.get("/healthz").await.status, 200);
    for _ in 0..3 {
        assert_eq!(app.get("/readyz").await.json()["status"], "ok");
    }
    assert_eq!(
        upstream.others().len(),
        1,
        "one look serves all who ask within a second"
    );
    let app = TestApp::builder()
        .upstream_url(&unreachable_url().await)
        .start()
        .await;
    assert_eq!(app.get("/healthz").await.status, 200);
    let answer = app.get("/readyz").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["upstream"], "unreachable");
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]).usage(10, 5),
        text("x").usage(20, 5),
        text("p"),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    app.post_chat(ask("Go")).await;
    let page = app.get("/metrics").await;
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    let page = page.text();
    for line in [
        "loopwright_requests_total{route=\"chat_loop\",status=\"2xx\"} 1",
        "loopwright_requests_total{route=\"chat_forwarded\",status=\"2xx\"} 1",
        "loopwright_turns_total{stop_reason=\"completed\"} 1",
        "loopwright_tool_calls_total{tool=\"dispatch\",status=\"ok\"} 1",
        "loopwright_tokens_total{kind=\"prompt\",model=\"scripted-model\",key=\"\"} 30",
        "loopwright_tokens_total{kind=\"completion\",model=\"scripted-model\",key=\"\"} 10",
        "loopwright_overhead_seconds_count 1",
        "loopwright_time_to_first_token_seconds_count 1",
        "loopwright_turn_rounds_sum 1.0",
        "loopwright_open_streams 0",
    ] {
        assert!(
            page.lines().any(|have| have == line),
            "no `{line}` in\n{page}"
        );
    }
    assert!(page.contains("outcome=\"completed\"} 2"), "{page}");
}

#[tokio::test]
async fn a_wrong_configuration_ends_with_status_2_and_one_clear_line() {
    for (toml, part) in [
        ("upstreem = \"http://h/v1\"", "upstreem"),
        ("listen = \"0.0.0.0:0\"", "insecure"),
        ("max_tool_rounds = \"many\"", "max_tool_rounds"),
        (
            "[[api_keys]]\nname = \"a\"\nenv = \"NOT_SET_ANYWHERE\"",
            "NOT_SET_ANYWHERE",
        ),
        ("[[tools]]\nname = \"a\"", "description"),
        (
            "[[tools]]\nname = \"a\"\ndescription = \"d\"",
            "--tool-dispatch-url",
        ),
        (
            "[[tools]]\nname = \"a b\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"",
            "tools[0].name",
        ),
    ] {
        for subcommand in ["serve", "check-config"] {
            let builder = TestApp::builder()
                .upstream_url("http://127.0.0.1:1/v1")
                .toml(toml);
            let ended = builder.run(subcommand).await;
            assert_eq!(ended.code, Some(2), "{subcommand} {toml}: {ended:?}");
            assert!(ended.stderr.contains(part), "{toml}: {}", ended.stderr);
            assert_eq!(ended.stderr.trim().lines().count(), 1, "{}", ended.stderr);
        }
    }
    let ended = TestApp::builder().run("serve").await;
    assert_eq!(ended.code, Some(2), "no upstream: {}", ended.stderr);
}

#[tokio::test]
async fn a_taken_port_ends_with_status_1() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let toml = format!("listen = \"{}\"", taken.local_addr().unwrap());
    let ended = TestApp::builder()
        .upstream_url("http://127.0.0.1:1/v1")
        .toml(&toml)
        .run("serve")
        .await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("cannot listen"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_session_file_that_cannot_be_opened_ends_with_status_1_and_a_reason() {
    let toml = "session_store = \"sqlite:no/such/folder/x.db\"";
    let ended = TestApp::builder()
        .upstream_url("http://127.0.0.1:1/v1")
        .toml(toml)
        .run("serve")
        .await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("session store"), "{}", ended.stderr);
}

#[tokio::test]
async fn check_config_prints_the_effective_values_and_no_secret() {
    let ended = TestApp::builder()
        .upstream_url("http://127.0.0.1:1/v1")
        .env("UPSTREAM_KEY", "upstream-secret-value")
        .args(["--upstream-api-key-env", "UPSTREAM_KEY"])
        .run("check-config")
        .await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("http://127.0.0.1:1/v1"));
    assert!(
        !ended.stdout.contains("upstream-secret-value")
            && !ended.stderr.contains("upstream-secret-value")
    );
}

#[tokio::test]
async fn memory_sessions_work_and_end_with_the_process() {
    let upstream = ScriptedUpstream::start([text("A1"), text("A2")]).await;
    let builder = TestApp::builder()
        .upstream(&upstream)
        .toml("session_store = \"memory:\"");
    let mut app = builder.start().await;
    for question in ["Q1", "Q2"] {
        let body = json!({"model": MODEL, "session_id": "s", "messages": [user(question)]});
        app.post_chat(body).await.completion();
    }
    assert_eq!(upstream.last().roles(), ["user", "assistant", "user"]);
    app.restart().await;
    app.get("/v1/sessions/s")
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn a_public_address_without_keys_shows_in_the_summary() {
    let toml = "listen = \"0.0.0.0:0\"\ninsecure_no_auth = true";
    let builder = TestApp::builder()
        .upstream_url("http://127.0.0.1:1/v1")
        .toml(toml);
    let ended = builder.run("check-config").await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("insecure_no_auth = true"),
        "{}",
        ended.stdout
    );
}
