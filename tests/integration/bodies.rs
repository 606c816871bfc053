//! Request bodies that take many times their size in memory, many at once.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::client::Answer;
use super::support::eventually;
use super::support::script::{hang, text};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::Webhook;

/// The most memory that the process has had, in KiB.
fn peak_kib(app: &TestApp) -> u64 {
    memory_kib(app, "VmHWM:")
}

/// A figure of the process's memory, in KiB.
pub(crate) fn memory_kib(app: &TestApp, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", app.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// A request that takes many times its size when it is parsed.
fn many_parts(parts: usize) -> Value {
    let part = json!({"type": "text", "text": "x"});
    let message = json!({"role": "user", "content": vec![part; parts]});
    with(ask_with("x", ["t"]), "messages", json!([message]))
}

#[tokio::test]
async fn many_large_bodies_at_once_are_parsed_a_few_at_a_time() {
    let upstream = ScriptedUpstream::answering(|_| text("x")).await;
    let hook = Webhook::start().await;
    let body = many_parts(40_000);
    let bytes = body.to_string().len();
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    // Two at a time.
    let app = builder
        .toml(&format!("max_parsed_bytes = {}", 17 * bytes))
        .start()
        .await;
    let one = app.post_chat(body.clone()).await;
    assert_eq!(one.status, 200, "{}", one.text());
    let alone = peak_kib(&app);
    let answers: Vec<Answer> =
        futures_util::future::join_all((0..24).map(|_| app.post_chat(body.clone()))).await;
    for answer in &answers {
        if answer.status != 200 {
            answer.assert_error(503, Some("overloaded"));
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
    }
    assert!(answers.iter().any(|answer| answer.status == 200));
    let peak = peak_kib(&app);
    // With all of them parsed at once it is about twice as much.
    let bound = alone + 24 * 4 * u64::try_from(bytes).unwrap() / 1024;
    assert!(
        peak < bound,
        "{bytes} bytes: {alone} KiB alone, {peak} KiB with 24"
    );
}

#[tokio::test]
async fn the_body_of_a_running_turn_stays_counted() {
    let hanging = ScriptedUpstream::start(std::array::from_fn::<_, 5, _>(|_| hang())).await;
    let hook = Webhook::start().await;
    let body = with(many_parts(2_000), "stream", json!(true));
    let bytes = body.to_string().len();
    let builder = TestApp::builder().upstream(&hanging).dispatch(&hook);
    // Four turns count with twelve bodies, and a fifth one is parsed with eight.
    let toml = format!(
        "max_parsed_bytes = {}\nfirst_byte_wait = 0",
        20 * bytes + 64
    );
    let app = builder.toml(&toml).start().await;
    let mut running = Vec::new();
    for count in 1..=5 {
        let opened = app.client().try_stream_chat(body.clone()).await;
        running.push(opened.ok());
        hanging.called(count).await;
    }
    let refused = app.post_chat(body.clone()).await;
    refused.assert_error(503, Some("overloaded"));
    // A turn that ends makes room.
    drop(running);
    eventually("room for a body", async || {
        hanging.push(text("x"));
        let answer = app.post_chat(body.clone()).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_running_turn_keeps_less_than_is_reserved_for_its_body() {
    const RUNS: u64 = 8;
    let hanging = ScriptedUpstream::answering(|_| hang()).await;
    let hook = Webhook::start().await;
    let body = with(many_parts(80_000), "stream", json!(true));
    let kib = u64::try_from(body.to_string().len()).unwrap() / 1024;
    let builder = TestApp::builder().upstream(&hanging).dispatch(&hook);
    let app = builder.toml("first_byte_wait = 0").start().await;
    let before = memory_kib(&app, "RssAnon:");
    let mut running = Vec::new();
    for number in 0..RUNS {
        let body = with(body.clone(), "session_id", json!(format!("s{number}")));
        running.push(app.client().try_stream_chat(body).await.ok());
        hanging.called(running.len()).await;
    }
    // Kept are about two bodies; the store and the allocator take their part, and give some of it back after a while. It
    // was up to seven.
    let what = format!("less than 4 x {kib} KiB for each turn");
    eventually(&what, async || {
        let kept = memory_kib(&app, "RssAnon:").saturating_sub(before) / RUNS;
        (kept < 4 * kib).then_some(())
    })
    .await;
}
