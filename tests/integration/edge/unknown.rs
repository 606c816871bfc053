//! What a request names and nobody knows: members of bodies, and models.

use http::Method;
use serde_json::json;

use super::super::support::app::TestApp;
use super::super::support::ask::{ask, with};
use super::super::support::client::Answer;
use super::super::support::script::text;
use super::super::support::upstream::ScriptedUpstream;
use super::KEYS;

#[tokio::test]
async fn an_unknown_member_of_a_body_is_named_and_nothing_is_done() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    app.post_chat(with(ask("Go"), "session_id", json!("s")))
        .await
        .completion();
    let made = app.post("/v1/conversations", &json!({})).await.json();
    let conversation = format!("/v1/conversations/{}", made["id"].as_str().unwrap());
    let items = format!("{conversation}/items");
    let item = json!([{"role": "user", "content": "x"}]);
    for (path, body, param) in [
        (
            "/v1/sessions/s/fork",
            json!({"before_massage": 1}),
            "before_massage",
        ),
        (
            "/v1/sessions/s/fork",
            json!({"id": "t", "messages": []}),
            "messages",
        ),
        (
            "/v1/sessions/s/fork",
            json!({"id": "t", "Before_message": null}),
            "Before_message",
        ),
        (
            "/v1/sessions/s/cancel",
            json!({"mode": "abort", "after": 1}),
            "after",
        ),
        (
            "/v1/chat/completions/chatcmpl-1/cancel",
            json!({"modus": "abort"}),
            "modus",
        ),
        ("/v1/conversations", json!({"item": item}), "item"),
        (
            &conversation,
            json!({"metadata": {}, "items": item}),
            "items",
        ),
        (&items, json!({"items": item, "metadata": {}}), "metadata"),
    ] {
        let answer = app.post(path, &body).await;
        let message = answer.assert_error(400, None);
        assert_eq!(answer.json()["error"]["param"], param, "{path} {body}");
        assert!(message.contains("the fields are"), "{message}");
    }
    let sessions = app.get("/v1/sessions").await.json();
    assert_eq!(sessions["data"].as_array().unwrap().len(), 2, "{sessions}");
    assert_eq!(app.get(&items).await.json()["data"], json!([]));
    // What is known may be null.
    let body = json!({"id": "t", "before_message": null});
    assert_eq!(app.post("/v1/sessions/s/fork", &body).await.status, 201);
    // An export may have members of another version.
    let mut export = app.get("/v1/sessions/s").await.json();
    export["of_another_version"] = json!(1);
    let put = app
        .client()
        .send(Method::PUT, "/v1/sessions/u", &export)
        .await;
    assert_eq!(put.status, 201, "{}", put.text());
}

#[tokio::test]
async fn a_model_that_no_upstream_lists_is_not_found() {
    let upstream = ScriptedUpstream::start([]).await;
    let key = "alice-key-0123456789";
    let builder = TestApp::builder().upstream(&upstream).env("ALICE", key);
    let app = builder.toml(KEYS).start().await;
    let alice = app.client().key(key);
    for id in ["nope", "org/nope", "nope%2Fencoded", "scripted-model2"] {
        let path = format!("/v1/models/{id}");
        let answer = alice.get(&path).await;
        let message = answer.assert_error(404, Some("model_not_found"));
        assert!(message.contains("GET /v1/models"), "{message}");
        let error = &answer.json()["error"];
        assert_eq!(
            (&error["type"], &error["param"]),
            (&json!("invalid_request_error"), &json!("model"))
        );
        let head = Answer::of(alice.request(Method::HEAD, &path)).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (404, 0), "{id}");
        app.get(&path)
            .await
            .assert_error(401, Some("invalid_api_key"));
    }
    let known = alice.get("/v1/models/scripted-model").await;
    assert_eq!(known.json()["id"], "scripted-model");
}
