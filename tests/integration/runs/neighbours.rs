//! One key reads much from the store with many callers, and another key's turns are not slowed by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use tokio::task::JoinSet;

use super::*;

/// Bytes of the stored answer that is read.
const LARGE: usize = 8 * 1024 * 1024;
/// How many read at once.
const CALLERS: usize = 60;
/// Turns of the other key.
const TURNS: usize = 9;

fn model(request: &Recorded) -> Reply {
    let messages = request.messages();
    let last = messages.last().unwrap();
    match (content(last), last["role"].as_str()) {
        ("large", _) => text(&"x".repeat(LARGE)),
        (_, Some("tool")) => text("Done."),
        _ => calls([("t", json!({}))]),
    }
}

/// Reads a path over and over again, and counts the answers. Their bodies are not taken.
fn read(client: &Client, path: &str) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let (mut callers, answers) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..CALLERS {
        let request = client.request(Method::GET, path);
        let answers = Arc::clone(&answers);
        callers.spawn(async move {
            while let Some(request) = request.try_clone() {
                let _head = request.send().await;
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    (callers, answers)
}

#[tokio::test]
async fn reads_of_one_key_do_not_delay_the_turns_of_another() {
    let upstream = ScriptedUpstream::answering(model).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = keyed(&upstream, &hook).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let answer = alice.post_chat(in_session("large", "answer")).await;
    let id = answer.completion()["id"].as_str().unwrap().to_owned();
    let (_callers, answers) = read(&alice, &path(&id));
    let mut between = Vec::new();
    for _ in 0..TURNS {
        let before = answers.load(Ordering::Relaxed);
        let turn = bob.post_chat(in_session("Go", "mine")).await;
        assert_eq!(turn.content(), "Done.");
        between.push(answers.load(Ordering::Relaxed) - before);
    }
    // If one statement of a turn waited behind those that came before it, nearly every caller would be served meanwhile.
    between.sort_unstable();
    assert!(between[TURNS / 2] < CALLERS / 3, "{between:?}");
}
