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
/// Bytes of the answer that is read.
const ANSWER: usize = 20 * 1024 * 1024;
/// How many read it and take nothing.
const READERS: usize = 60;
/// Most memory of the process, in KiB.
const MOST_KIB: u64 = 440_000;
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

/// The reads that were refused for lack of memory.
fn refused(app: &TestApp) -> usize {
    let logs = app.logs();
    let reads = logs
        .lines()
        .filter(|line| line.contains("method=\"GET\"") || line.contains("method=GET"));
    reads.filter(|line| line.contains("status=503")).count()
}

async fn bob_is_served(app: &TestApp) {
    let bob = app.client().key(BOB);
    let body: Value = with(ask_with("Hi", ["t"]), "session_id", json!("s"));
    let began = Instant::now();
    assert_eq!(bob.post_chat(body).await.content(), "Hello.");
    assert_eq!(bob.get("/v1/sessions/s").await.status, 200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// Many of alice's readers take nothing of an answer at this path, and then one reads it.
async fn stalled_readers(app: &TestApp, path: &str, length: usize) {
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(StalledClient::getting(app, path, ALICE).await);
    }
    bob_is_served(app).await;
    let before = refused(app);
    eventually("the refusals", || async {
        (refused(app) - before > READERS / 2).then_some(())
    })
    .await;
    bob_is_served(app).await;
    let peak = memory_kib(app, "VmHWM:");
    assert!(peak < MOST_KIB, "{peak} KiB");
    // Whoever reads is served, and gives the memory back.
    drop(readers);
    let alice = app.client().key(ALICE);
    eventually("a whole answer", || async {
        let answer = alice.get(path).await;
        (answer.status == 200 && answer.text().len() > length).then_some(())
    })
    .await;
}

#[tokio::test]
async fn readers_that_take_nothing_hold_a_share_of_the_memory() {
    let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
    let hook = Webhook::start().await;
    let app = server(&upstream, &hook).await;
    stalled_readers(&app, "/v1/sessions/large", LARGE).await;
}

#[tokio::test]
async fn readers_of_stored_answers_hold_a_share_of_the_memory() {
    let upstream = ScriptedUpstream::answering(|call| {
        match json!(call.messages()).to_string().contains("at length") {
            true => text(&"x".repeat(ANSWER)),
            false => text("Hello."),
        }
    })
    .await;
    let hook = Webhook::start().await;
    let app = server(&upstream, &hook).await;
    let alice = app.client().key(ALICE);
    let body = json!({"model": "test-model", "input": "at length"});
    let response = alice.post("/v1/responses", &body).await.json();
    let id = response["id"].as_str().unwrap();
    std::fs::write(format!("/proc/{}/clear_refs", app.pid()), "5").unwrap();
    stalled_readers(&app, &format!("/v1/responses/{id}"), ANSWER).await;
    let completion = format!("/v1/chat/completions/{}", id.replace("resp_", "chatcmpl-"));
    stalled_readers(&app, &completion, ANSWER).await;
    stalled_readers(&app, &format!("{completion}/messages"), ANSWER).await;
}

/// Items that a request refers to are looked for one source after the other, and count as a part of its body.
#[tokio::test]
async fn items_that_a_request_refers_to_take_no_more_memory_than_a_body() {
    const SOURCES: usize = 8;
    let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
    let hook = Webhook::start().await;
    let app = server(&upstream, &hook).await;
    let alice = app.client().key(ALICE);
    let large = "word ".repeat(LARGE / 20);
    let message = |text: &str| json!({"role": "user", "content": text});
    let (mut large_items, mut small_items) = (Vec::new(), Vec::new());
    for _ in 0..SOURCES {
        let input = json!([message(&large), message("short")]);
        let body = json!({"model": "test-model", "input": input});
        let id = alice.post("/v1/responses", &body).await.json()["id"].clone();
        let path = format!(
            "/v1/responses/{}/input_items?order=asc&limit=",
            id.as_str().unwrap()
        );
        let page = alice.get(&format!("{path}1")).await.json();
        assert_eq!(page["has_more"], true);
        let after = page["last_id"].as_str().unwrap();
        let rest = alice.get(&format!("{path}5&after={after}")).await.json();
        let [short] = &rest["data"].as_array().unwrap()[..] else {
            panic!("{rest}");
        };
        assert_eq!(short["content"][0]["text"], "short");
        large_items.push(page["last_id"].clone());
        small_items.push(short["id"].clone());
    }
    std::fs::write(format!("/proc/{}/clear_refs", app.pid()), "5").unwrap();
    let referring = |ids: &[Value]| {
        let items = ids
            .iter()
            .map(|id| json!({"type": "item_reference", "id": id}));
        let input: Vec<Value> = items.chain([message("Go")]).collect();
        json!({"model": "test-model", "input": input})
    };
    let request = referring(&small_items);
    let (answer, ()) = tokio::join!(alice.post("/v1/responses", &request), bob_is_served(&app));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = upstream.last();
    let of_alice = told.messages().len();
    assert!(of_alice == SOURCES + 1 || of_alice == 1, "{of_alice}");
    // Each mention becomes a message.
    let often = vec![large_items[0].clone(); 5_000];
    for large in [&large_items[..], &often] {
        let refused = alice.post("/v1/responses", &referring(large)).await;
        refused.assert_error(413, Some("request_too_large"));
        assert_eq!(refused.json()["error"]["param"], "input");
    }
    let peak = memory_kib(&app, "VmHWM:");
    assert!(peak < MOST_KIB, "{peak} KiB");
}

/// A message of many short parts takes forty times its size as a tree of values.
#[tokio::test]
async fn pages_of_a_large_conversation_are_made_one_after_the_other() {
    let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
    let hook = Webhook::start().await;
    let app = server(&upstream, &hook).await;
    let alice = app.client().key(ALICE);
    let parts = vec![json!({"type": "text", "text": "word"}); 600_000];
    let import = json!({"messages": [{"role": "user", "content": parts}]});
    let stored = alice.send(Method::PUT, "/v1/sessions/parts", &import).await;
    assert_eq!(stored.status, 201);
    std::fs::write(format!("/proc/{}/clear_refs", app.pid()), "5").unwrap();
    // A single reader is never refused, however large what it reads.
    let body = json!({"model": "test-model", "conversation": "large", "input": "Hi"});
    assert_eq!(alice.post("/v1/responses", &body).await.status, 200);
    let path = "/v1/conversations/large/items?limit=";
    let page = alice.get(&format!("{path}2")).await.json();
    assert_eq!(page["data"][0]["content"][0]["text"], "Hello.");
    assert_eq!(
        (&page["has_more"], &page["data"][1]["role"]),
        (&json!(true), &json!("user"))
    );
    std::fs::write(format!("/proc/{}/clear_refs", app.pid()), "5").unwrap();
    let paths = [
        format!("{path}3&order=asc"),
        path.replace("large", "parts") + "1",
    ];
    let pages = paths.iter().cycle().take(12).map(|path| alice.get(path));
    let (pages, ()) = tokio::join!(futures_util::future::join_all(pages), bob_is_served(&app));
    let mut whole = 0;
    for page in pages {
        match page.status.as_u16() {
            200 => {
                let page = page.json();
                let parts = page["data"][0]["content"].as_array().map(Vec::len);
                assert!(parts == Some(1) || parts == Some(600_000), "{parts:?}");
                whole += 1;
            }
            _ => drop(page.assert_error(503, Some("overloaded"))),
        }
    }
    assert!(whole > 0);
    let peak = memory_kib(&app, "VmHWM:");
    assert!(peak < MOST_KIB, "{peak} KiB");
}
