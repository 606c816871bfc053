//! Images of tools as files: what the history, the model and the answer have of them when a file is deleted, cannot be
//! stored, belongs to somebody else, or is not to be stored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::client::Client;
use super::support::script::{Reply, calls, text};
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::webhook::{self, Webhook};

/// The bytes of an image. In base64 it has 4,000.
const IMAGE_BYTES: usize = 3_000;
/// The text for the model in place of an image whose file was deleted.
const MISSING: &str = "[an image that is not available any more]";

/// A tool that brings one image.
async fn drawing() -> Webhook {
    let image = json!({"content": "drawn", "images": [image()]});
    Webhook::start().await.on("t", webhook::json(&image))
}

fn image() -> String {
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(IMAGE_BYTES, 7);
    STANDARD.encode(image)
}

fn one_call() -> Reply {
    calls([("t", json!({}))])
}

async fn start(upstream: &ScriptedUpstream, hook: &Webhook, settings: &str) -> TestApp {
    start_with(upstream, hook, settings, "images = true").await
}

async fn start_with(
    upstream: &ScriptedUpstream,
    hook: &Webhook,
    settings: &str,
    quirks: &str,
) -> TestApp {
    let builder = TestApp::builder().dispatch(hook).toml(settings);
    builder.toml(&upstream.with_quirks(quirks)).start().await
}

fn in_session(text: &str) -> Value {
    with(ask_with(text, ["t"]), "session_id", json!("s"))
}

/// A request with these content parts in a session of its own.
fn showing(parts: Value, session: &str) -> Value {
    let body = json!({"model": MODEL, "session_id": session, "messages": [{"role": "user", "content": parts}]});
    with(body, "tools", ask_with("", ["t"])["tools"].clone())
}

fn image_file(id: &Value) -> Value {
    json!({"type": "image_file", "image_file": {"file_id": id}})
}

/// How often the last request to the model has the image, and this text.
fn sent(upstream: &ScriptedUpstream, note: &str) -> (usize, usize) {
    let body = upstream.last().body.to_string();
    let url = format!("data:image/png;base64,{}", image());
    (body.matches(&url).count(), body.matches(note).count())
}

/// The number of the owner's files.
async fn files(client: &Client) -> usize {
    let list = client.get("/v1/files").await.json();
    list["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_model_is_told_of_an_image_whose_file_is_deleted_during_the_turn() {
    let upstream = ScriptedUpstream::start([one_call(), one_call(), text("Done.")]).await;
    let hook = drawing().await;
    // Room for the file of one image: the second one takes the place of the first.
    let settings = "max_file_bytes = 4000\nmax_total_file_bytes = 4000";
    let app = start(&upstream, &hook, settings).await;
    let answer = app.post_chat(in_session("Go")).await;
    assert_eq!(answer.content(), "Done.");
    assert_eq!(sent(&upstream, MISSING), (1, 1));
    // A later turn tells the same.
    upstream.push(text("Again."));
    app.post_chat(in_session("More")).await.completion();
    assert_eq!(sent(&upstream, MISSING), (1, 1));
}

#[tokio::test]
async fn an_image_that_cannot_be_stored_is_in_the_answer_and_in_the_history() {
    let upstream = ScriptedUpstream::start([one_call(), text("Done."), text("Again.")]).await;
    let hook = drawing().await;
    let app = start(&upstream, &hook, "max_file_bytes = 1000").await;
    let answer = app.post_chat(in_session("Go")).await.completion();
    let call = &answer["agentic_tool_calls"][0];
    assert_eq!(call["result_images_base64"], json!([image()]));
    assert_eq!(call.get("file_ids"), None);
    assert_eq!(sent(&upstream, MISSING), (1, 0));
    app.post_chat(in_session("More")).await.completion();
    assert_eq!(sent(&upstream, MISSING), (1, 0));
    assert_eq!(files(app.client()).await, 0);
}

#[tokio::test]
async fn an_unstored_turn_shows_its_images_and_stores_none() {
    for store in ["sqlite:sessions.db", "memory:"] {
        let upstream = ScriptedUpstream::start([one_call(), one_call(), text("Done.")]).await;
        let hook = drawing().await;
        let settings = format!("session_store = {store:?}");
        let app = start(&upstream, &hook, &settings).await;
        let body = with(ask_with("Go", ["t"]), "store", json!(false));
        let answer = app.post_chat(body).await.completion();
        let call = &answer["agentic_tool_calls"][1];
        assert_eq!(call["result_images_base64"], json!([image()]));
        assert_eq!(sent(&upstream, MISSING), (2, 0));
        assert_eq!(files(app.client()).await, 0, "{store}");
        // A stored one has them as files, wherever sessions are stored.
        [one_call(), text("Done.")]
            .into_iter()
            .for_each(|reply| upstream.push(reply));
        app.post_chat(in_session("Go")).await.completion();
        assert_eq!(sent(&upstream, MISSING), (1, 0));
        assert_eq!(files(app.client()).await, 1, "{store}");
    }
}

#[tokio::test]
async fn an_image_of_another_key_is_not_shown() {
    let keys = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
    let [alice, bob] = ["alice-key-0123456789", "bob-key-0123456789-bob"];
    let upstream = ScriptedUpstream::start([one_call(), text("Done.")]).await;
    let hook = drawing().await;
    let builder = TestApp::builder().dispatch(&hook).toml(keys);
    let builder = builder.toml(&upstream.with_quirks("images = true"));
    let app = builder.env("ALICE", alice).env("BOB", bob).start().await;
    let [alice, bob] = [alice, bob].map(|key| app.client().key(key));
    let answer = alice.post_chat(in_session("Go")).await.completion();
    let id = &answer["agentic_tool_calls"][0]["file_ids"][0];
    for (client, expected) in [(&alice, (1, 0)), (&bob, (0, 1))] {
        upstream.push(text("Seen."));
        let body = showing(json!([image_file(id)]), "other");
        client.post_chat(body).await.completion();
        assert_eq!(sent(&upstream, MISSING), expected);
    }
    // Neither does it become a file of the other's session.
    let session = bob.get("/v1/sessions/other").await.json();
    assert_eq!(session["files"], json!([]));
}

#[tokio::test]
async fn every_mention_of_an_image_counts_as_it_is_sent() {
    let upstream = ScriptedUpstream::start([one_call(), text("Done."), text("Seen.")]).await;
    let hook = drawing().await;
    // Room for three.
    let app = start(&upstream, &hook, "max_turn_bytes = 12000").await;
    let answer = app.post_chat(in_session("Go")).await.completion();
    let id = &answer["agentic_tool_calls"][0]["file_ids"][0];
    let parts = vec![image_file(id); 1_200];
    app.post_chat(showing(json!(parts), "other"))
        .await
        .completion();
    assert_eq!(sent(&upstream, "[an earlier image"), (3, 1_197));
}

#[tokio::test]
async fn a_server_with_a_strict_order_of_roles_gets_the_images() {
    let upstream = ScriptedUpstream::start([one_call(), text("Done."), text("Again.")]).await;
    let hook = drawing().await;
    let quirks = "images = true\nroles = \"alternate\"";
    let app = start_with(&upstream, &hook, "", quirks).await;
    app.post_chat(in_session("Go")).await.completion();
    assert_eq!(sent(&upstream, MISSING), (1, 0));
    let messages = upstream.last().messages();
    let roles: Vec<&Value> = messages.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
    app.post_chat(in_session("More")).await.completion();
    assert_eq!(sent(&upstream, MISSING), (1, 0));
}

#[tokio::test]
async fn an_answer_that_is_asked_for_again_has_the_same_images() {
    let upstream = ScriptedUpstream::start([one_call(), text("Done.")]).await;
    let hook = drawing().await;
    let mut app = start(&upstream, &hook, "images = \"inline\"").await;
    let client = app.client().header("idempotency-key", "k");
    let first = client.post_chat(in_session("Go")).await;
    let completion = first.completion();
    let part = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", image())}});
    assert_eq!(completion["choices"][0]["message"]["images"], json!([part]));
    assert_eq!(
        completion["agentic_tool_calls"][0]["result_images_base64"],
        json!([image()])
    );
    let path = format!(
        "/v1/chat/completions/{}",
        completion["id"].as_str().unwrap()
    );
    for restarted in [false, true] {
        if restarted {
            app.restart().await;
        }
        let client = app.client().header("idempotency-key", "k");
        let again = client.post_chat(in_session("Go")).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.json(), completion, "restarted: {restarted}");
        assert_eq!(app.get(&path).await.json(), completion);
    }
    assert_eq!(hook.calls().len(), 1);
}
