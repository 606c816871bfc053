//! Connections: clients that stop reading, and more clients than there may be.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::script::text;
use super::support::stalled::StalledClient;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::Webhook;
use super::support::{eventually, within};

fn address(app: &TestApp) -> std::net::SocketAddr {
    app.origin().trim_start_matches("http://").parse().unwrap()
}

#[tokio::test]
async fn a_client_that_stops_reading_is_disconnected_and_its_model_call_ends() {
    let upstream = ScriptedUpstream::start([text(&"word ".repeat(400_000)), text("Quick.")]).await;
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

#[tokio::test]
async fn connections_beyond_the_limit_wait_until_one_ends() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder.toml("max_connections = 2").start().await;
    let first = TcpStream::connect(address(&app)).await.unwrap();
    let _second = TcpStream::connect(address(&app)).await.unwrap();
    let mut third = TcpStream::connect(address(&app)).await.unwrap();
    third
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
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
    let mut open = Vec::new();
    let failures = || app.logs().matches("accepting connections fails").count();
    while failures() == 0 {
        open.push(
            within("a connection", TcpStream::connect(address(&app)))
                .await
                .unwrap(),
        );
        tokio::task::yield_now().await;
    }
    drop(open);
    eventually("an answer", || async {
        let answer = tokio::time::timeout(Duration::from_secs(1), app.get("/healthz")).await;
        answer.ok().filter(|answer| answer.status == 200)
    })
    .await;
    assert_eq!(failures(), 1, "{}", app.logs());
}
