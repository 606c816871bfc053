//! Connections per key: nothing is shared, nothing is kept for ever.

use serde_json::json;

use super::{fake, gone, in_state, is_alive, record, result, server, start_with};
use crate::support::app::TestApp;
use crate::support::ask::ask;
use crate::support::eventually;
use crate::support::upstream::ScriptedUpstream;

const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\n";

async fn start(toml: &str) -> (TestApp, ScriptedUpstream) {
    let toml = format!("{toml}{KEYS}");
    start_with(&toml, |builder| builder.env("ALICE", ALICE).env("BOB", BOB)).await
}

/// The process that answered and what it remembers.
fn parts(text: &str) -> (String, String) {
    let (id, facts) = text.split_once(": ").unwrap_or_else(|| panic!("{text}"));
    (id.to_owned(), facts.to_owned())
}

#[tokio::test]
async fn each_key_has_a_process_of_its_own() {
    let (app, _upstream) = start(&fake::server("fake", "", "")).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let first = parts(&result(&alice, "fake__remember", json!({"fact": "a"})).await);
    let second = parts(&result(&bob, "fake__remember", json!({"fact": "b"})).await);
    let third = parts(&result(&alice, "fake__remember", json!({"fact": "c"})).await);
    assert_eq!(
        (first.1.as_str(), second.1.as_str(), third.1.as_str()),
        ("a", "b", "a,c")
    );
    assert_eq!(first.0, third.0);
    assert_ne!(first.0, second.0);
    // A crash of one is none of the other's business.
    record(&alice, "fake__crash", json!({})).await;
    assert_eq!(
        parts(&result(&bob, "fake__remember", json!({})).await),
        second
    );
    let fresh = parts(&result(&alice, "fake__remember", json!({})).await);
    assert_eq!(fresh.1, "");
}

#[tokio::test]
async fn a_shared_server_is_one_process() {
    let (app, _upstream) = start(&fake::server("fake", "", "scope = \"shared\"")).await;
    result(
        &app.client().key(ALICE),
        "fake__remember",
        json!({"fact": "a"}),
    )
    .await;
    let found = result(
        &app.client().key(BOB),
        "fake__remember",
        json!({"fact": "b"}),
    )
    .await;
    assert_eq!(parts(&found).1, "a,b");
}

#[tokio::test]
async fn idle_processes_end_and_the_longest_idle_one_makes_way() {
    let lines = "idle_ttl = 0.2";
    let (app, _upstream) = start(&fake::server("fake", "", lines)).await;
    let (id, _) = parts(&result(&app.client().key(ALICE), "fake__remember", json!({})).await);
    gone(&id).await;

    let (app, _upstream) = start(&fake::server("fake", "", "max_instances = 1")).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let (first, _) = parts(&result(&alice, "fake__remember", json!({})).await);
    let (second, _) = parts(&result(&bob, "fake__remember", json!({})).await);
    gone(&first).await;
    assert!(is_alive(&second));
    // While one is in use, there is none to make way.
    let hanging = bob.stream_chat(ask("fake__hang {}")).await;
    eventually("the call to hang", || async {
        let notes = result(&bob, "fake__notes", json!({})).await;
        notes.contains("hanging").then_some(())
    })
    .await;
    let refused = record(&alice, "fake__remember", json!({})).await;
    assert_eq!(refused["status"], "error", "{refused}");
    let content = refused["result_content"].as_str().unwrap();
    assert!(content.contains("as many callers"), "{content}");
    drop(hanging);
}

#[tokio::test]
async fn a_server_for_some_keys_does_not_exist_for_others() {
    let toml = fake::server("fake", "", "keys = [\"al*\"]");
    let (app, upstream) = start(&toml).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    in_state(&alice, "fake", "ready").await;
    assert!(server(&bob, "fake").await.is_null());
    assert_eq!(bob.get("/v1/agent/tools").await.json()["data"], json!([]));
    assert!(bob.get("/readyz").await.json()["mcp_servers"].is_null());
    assert!(alice.get("/readyz").await.json()["mcp_servers"]["fake"].is_object());
    assert_eq!(
        result(&alice, "fake__echo", json!({"text": "x"})).await,
        "x"
    );
    bob.post_chat(ask("Hello")).await;
    assert_eq!(upstream.last().tool_names(), [""; 0]);
}
