//! What is read from the store for answers: one key's readers do not take the memory of all.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::bodies::memory_kib;
use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::eventually;
use super::support::script::text;
use super::support::stalled::StalledClient;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::Webhook;

const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";
const KEYS: &str =
    "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
/// Bytes of the session that is read.
const LARGE: usize = 30 * 1024 * 1024;
/// How many read it and take nothing.
const READERS: usize = 60;
/// Most memory of the process, in KiB.
const MOST_KIB: u64 = 400_000;
/// How long a turn of another key may take without optimisation.
const SOON: Duration = Duration::from_secs(2);

async fn server(upstream: &ScriptedUpstream, hook: &Webhook) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    let app = builder
        .toml(&format!("max_parsed_bytes = \"256MiB\"\n{KEYS}"))
        .env("ALICE", ALICE)
        .env("BOB", BOB)
        .start()
        .await;
    let alice = app.client().key(ALICE);
    let text = "word ".repeat(LARGE / 5);
    let import = json!({"messages": [{"role": "user", "content": text}]});
    let stored = alice.send(Method::PUT, "/v1/sessions/large", &import).await;
    assert_eq!(
        stored.status,
        201,
        "{}",
        stored.text().get(..300).unwrap_or_default()
    );
    // The peak counts from now on.
    std::fs::write(format!("/proc/{}/clear_refs", app.pid()), "5").unwrap();
    app
}

/// The exports that were refused for lack of memory.
fn refused(app: &TestApp) -> usize {
    let logs = app.logs();
    let exports = logs
        .lines()
        .filter(|line| line.contains("path=\"/v1/sessions/{id}\""));
    exports.filter(|line| line.contains("status=503")).count()
}

async fn bob_is_served(app: &TestApp) {
    let bob = app.client().key(BOB);
    let body: Value = with(ask_with("Hi", ["t"]), "session_id", json!("s"));
    let began = Instant::now();
    assert_eq!(bob.post_chat(body).await.content(), "Hello.");
    assert_eq!(bob.get("/v1/sessions/s").await.status, 200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn readers_that_take_nothing_hold_a_share_of_the_memory() {
    let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
    let hook = Webhook::start().await;
    let app = server(&upstream, &hook).await;
    let path = "/v1/sessions/large";
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(StalledClient::getting(&app, path, ALICE).await);
    }
    bob_is_served(&app).await;
    eventually("the refusals", || async {
        (refused(&app) > READERS / 2).then_some(())
    })
    .await;
    bob_is_served(&app).await;
    let peak = memory_kib(&app, "VmHWM:");
    assert!(peak < MOST_KIB, "{peak} KiB");
    // Whoever reads is served, and gives the memory back.
    drop(readers);
    let alice = app.client().key(ALICE);
    eventually("a whole answer", || async {
        let answer = alice.get(path).await;
        (answer.status == 200 && answer.text().len() > LARGE).then_some(())
    })
    .await;
}

#[tokio::test]
async fn pages_of_a_large_conversation_are_made_one_after_the_other() {
    let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
    let hook = Webhook::start().await;
    let app = server(&upstream, &hook).await;
    let alice = app.client().key(ALICE);
    let pages = (0..8).map(|_| alice.get("/v1/conversations/large/items?limit=1"));
    let (pages, ()) = tokio::join!(futures_util::future::join_all(pages), bob_is_served(&app));
    for page in pages {
        match page.status.as_u16() {
            200 => assert_eq!(page.json()["data"].as_array().map(Vec::len), Some(1)),
            _ => drop(page.assert_error(503, Some("overloaded"))),
        }
    }
    let peak = memory_kib(&app, "VmHWM:");
    assert!(peak < MOST_KIB, "{peak} KiB");
}
