//! API keys that change while the server runs.

use std::fmt::Write;

use http::Method;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::app::TestApp;
use crate::support::ask::{ask, ask_with, with};
use crate::support::eventually;
use crate::support::script::{calls, text};
use crate::support::server::Gate;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";
const CAROL: &str = "carol-carol-carol";

/// The table of a key, with further lines.
fn key(name: &str, key: &str, more: &str) -> String {
    let mut digest = String::new();
    for byte in Sha256::digest(key) {
        write!(digest, "{byte:02x}").unwrap();
    }
    format!("[[api_keys]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n{more}\n")
}

/// Writes the settings again with other keys, as an operator does.
fn rewrite(app: &mut TestApp, keys: &str) {
    let path = app.dir().join("loopwright.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let general = text.split("[[api_keys").next().unwrap();
    std::fs::write(path, format!("{general}{keys}")).unwrap();
}

/// Sends SIGHUP, and waits until the log has one more line of this kind.
async fn reload(app: &TestApp, line: &str) {
    let before = app.logs().matches(line).count();
    app.signal("HUP").await;
    eventually(line, || async {
        (app.logs().matches(line).count() > before).then_some(())
    })
    .await;
}

const READ: &str = "the API keys were read again";
const STAY: &str = "the API keys stay as they were";

async fn start(upstream: &ScriptedUpstream, keys: &str) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).toml(keys);
    builder.start().await
}

async fn status(app: &TestApp, key: &str, path: &str) -> u16 {
    app.client().key(key).get(path).await.status.as_u16()
}

#[tokio::test]
async fn keys_are_added_removed_and_changed_without_a_restart() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("Hello. You.").gate_before(2, &gate)]).await;
    let both = key("alice", ALICE, "operator = true") + &key("bob", BOB, "");
    let mut app = start(&upstream, &both).await;
    assert_eq!(status(&app, ALICE, "/metrics").await, 200);
    assert_eq!(status(&app, BOB, "/metrics").await, 403);
    assert_eq!(status(&app, CAROL, "/v1/sessions").await, 401);

    // A turn of bob's runs while his key is removed, alice is no operator any more, and carol comes.
    let body = with(ask("x"), "session_id", json!("s"));
    let mut running = app.client().key(BOB).stream_chat(body).await;
    running.next_chunk().await;
    gate.reached(1).await;
    let carol =
        key("alice", ALICE, "") + &key("carol", CAROL, "operator = true\nforward = [\"batches\"]");
    rewrite(&mut app, &carol);
    reload(&app, READ).await;
    assert_eq!(status(&app, BOB, "/v1/sessions").await, 401);
    assert_eq!(status(&app, CAROL, "/v1/sessions").await, 200);
    assert_eq!(status(&app, ALICE, "/metrics").await, 403);
    assert_eq!(status(&app, CAROL, "/metrics").await, 200);
    let refused = app.client().key(ALICE).get("/v1/batches").await;
    assert!(
        refused.text().contains("is not forwarded"),
        "{}",
        refused.text()
    );
    let passed = app.client().key(CAROL).get("/v1/batches").await;
    assert!(
        !passed.text().contains("is not forwarded"),
        "{}",
        passed.text()
    );
    gate.open();
    assert!(running.collect().await.transcript().contains("stop"));

    // Another key under the old name: the sessions are those of the name.
    let again = key("alice", ALICE, "") + &key("bob", "another-key-of-bob", "");
    rewrite(&mut app, &again);
    reload(&app, READ).await;
    assert_eq!(status(&app, BOB, "/v1/sessions/s").await, 401);
    assert_eq!(
        status(&app, "another-key-of-bob", "/v1/sessions/s").await,
        200
    );
    assert_eq!(status(&app, CAROL, "/v1/sessions").await, 401);
    assert!(!app.logs().contains("need a restart"), "{}", app.logs());
}

#[tokio::test]
async fn a_faulty_file_leaves_the_keys_as_they_are_and_the_log_says_why() {
    let upstream = ScriptedUpstream::start([]).await;
    let alice = key("alice", ALICE, "");
    let mut app = start(&upstream, &alice).await;
    for (keys, why) in [
        (
            "[[api_keys]]\nname = \"bob\"\n".to_owned(),
            "write either `sha256`",
        ),
        ("[[api_keys]\n".to_owned(), "loopwright.toml"),
        (alice.clone() + &alice, "another key has this name"),
        (String::new(), "to serve without keys, restart"),
        (
            "[[api_keys]]\nname = \"bob\"\nenv = \"NOT_SET\"\n".to_owned(),
            "NOT_SET is not set",
        ),
    ] {
        rewrite(&mut app, &keys);
        reload(&app, STAY).await;
        let logs = app.logs();
        let line = logs.lines().rfind(|line| line.contains(STAY)).unwrap();
        assert!(line.contains(why) && line.contains("ERROR"), "{line}");
        assert_eq!(status(&app, ALICE, "/v1/sessions").await, 200, "{why}");
    }
    std::fs::remove_file(app.dir().join("loopwright.toml")).unwrap();
    reload(&app, STAY).await;
    assert_eq!(status(&app, ALICE, "/v1/sessions").await, 200);
}

#[tokio::test]
async fn what_needs_a_restart_is_named_and_not_taken_over() {
    let upstream = ScriptedUpstream::start([]).await;
    let mut app = start(
        &upstream,
        &format!("max_messages = 100\n{}", key("alice", ALICE, "")),
    )
    .await;
    let path = app.dir().join("loopwright.toml");
    let settings = std::fs::read_to_string(&path).unwrap();
    let settings = settings.replace("max_messages = 100", "max_messages = 1");
    let settings = settings + &key("bob", BOB, "") + "[retry]\nmax_attempts = 7\n";
    std::fs::write(&path, settings).unwrap();
    reload(&app, "need a restart").await;
    let logs = app.logs();
    let line = logs.lines().find(|line| line.contains("need a restart"));
    assert!(line.unwrap().contains("max_messages, retry"), "{logs}");
    assert_eq!(status(&app, BOB, "/v1/sessions").await, 200);
    let import = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]});
    let client = app.client().key(BOB);
    let put = client.send(Method::PUT, "/v1/sessions/s", &import).await;
    assert_eq!(put.status, 201, "{}", put.text());
}

#[tokio::test]
async fn a_server_without_keys_goes_on_without_and_ends_only_when_it_is_told_to() {
    let upstream = ScriptedUpstream::answering(|_| text("x")).await;
    let mut app = TestApp::with_upstream(&upstream).await;
    reload(&app, READ).await;
    rewrite(&mut app, &key("alice", ALICE, ""));
    reload(&app, "to begin with keys, restart").await;
    assert_eq!(app.post_chat(ask("x")).await.content(), "x");
    app.terminate().await;
    assert!(app.wait_exit().await.success());
}

#[tokio::test]
async fn a_run_whose_key_was_removed_while_it_waited_does_not_go_on() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let operator = key("bob", BOB, "operator = true");
    let rule = "[[permissions]]\ntool = \"t\"\neffect = \"ask\"\n";
    let keys = format!("{rule}{}{operator}", key("alice", ALICE, ""));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let mut app = builder.toml(&keys).start().await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let body = with(ask_with("Go", ["t"]), "agent", json!({"background": true}));
    let run = alice.post_chat(body).await.json()["id"].clone();
    let path = format!("/v1/chat/completions/{}", run.as_str().unwrap());
    let approval = eventually("a question", || async {
        let list = bob.get("/v1/agent/approvals").await.json();
        list["data"].get(0).cloned()
    })
    .await;
    rewrite(&mut app, &operator);
    reload(&app, READ).await;
    let id = approval["approval_id"].as_str().unwrap();
    let decision = json!({"decision": "approve"});
    let path_of_decision = format!("/v1/agent/approvals/{id}");
    let decided = bob.post(&path_of_decision, &decision).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    eventually("the end of the run", || async {
        let told = "the API key of a run that waited was removed";
        app.logs().contains(told).then_some(())
    })
    .await;
    // The key comes back, and its run has ended.
    rewrite(&mut app, &format!("{}{operator}", key("alice", ALICE, "")));
    reload(&app, READ).await;
    let answer = eventually("the answer", || async {
        let answer = alice.get(&path).await;
        (answer.status != 202).then_some(answer)
    })
    .await;
    answer.assert_error(403, Some("key_removed"));
    assert!(hook.calls().is_empty());
}
