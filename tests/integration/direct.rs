//! Calls of server-side tools outside of a turn: `POST /v1/agent/tools/{name}/call`.

mod gate;
mod kinds;
#[cfg(feature = "mcp")]
mod mcp;
mod repeated;

use serde_json::{Value, json};

use super::support::app::{Builder, TestApp};
use super::support::client::{Answer, Client};
use super::support::eventually;
use super::support::server::Gate;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

const ALICE: &str = "alice-key-0123456789";
const BOB: &str = "bob-key-0123456789-bob";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\n";

/// A server without a model, with a scripted webhook behind it.
async fn builder(hook: &Webhook) -> Builder {
    let upstream = ScriptedUpstream::start([]).await;
    TestApp::builder().upstream(&upstream).dispatch(hook)
}

/// The same for two API keys.
async fn keyed(hook: &Webhook, settings: &str) -> Builder {
    let builder = builder(hook).await.toml(settings).toml(KEYS);
    builder.env("ALICE", ALICE).env("BOB", BOB)
}

/// An entry of `[[tools]]` for a tool of the webhook, which takes a path and perhaps a number of lines.
fn configured(hook: &Webhook, name: &str, more: &str) -> String {
    let url = hook.tool_url(name);
    format!(
        "[[tools]]\nname = \"{name}\"\ndescription = \"Reads a file.\"\nurl = \"{url}\"\n{more}\n\
         [tools.parameters]\ntype = \"object\"\nrequired = [\"path\"]\n\
         [tools.parameters.properties.path]\ntype = \"string\"\n\
         [tools.parameters.properties.lines]\ntype = \"integer\"\n"
    )
}

async fn call(client: &Client, tool: &str, body: &Value) -> Answer {
    client
        .post(&format!("/v1/agent/tools/{tool}/call"), body)
        .await
}

/// The entry of a call that was answered.
async fn entry(client: &Client, tool: &str, arguments: Value) -> Value {
    let answer = call(client, tool, &json!({"arguments": arguments})).await;
    let entry = answer.json();
    assert_eq!(answer.status, 200, "{entry}");
    entry
}

#[tokio::test]
async fn a_call_is_answered_with_its_entry() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let hook = hook.on(
        "read",
        webhook::json(&json!({"content": "gone", "is_error": true})),
    );
    let settings = configured(&hook, "read", "");
    let app = builder(&hook).await.toml(&settings).start().await;
    let mut first = entry(app.client(), "t", json!({"a": 1})).await;
    let id = first["tool_call_id"].take();
    assert!(id.as_str().unwrap().starts_with("call_"), "{id}");
    let duration = first["duration_ms"].take();
    assert!(duration.is_u64());
    let expected = json!({
        "round": 0, "tool_call_id": null, "name": "t", "arguments": r#"{"a":1}"#, "result_content": "r", "status": "ok",
        "duration_ms": null,
    });
    assert_eq!(first, expected);
    let sent = hook.call(0).body;
    assert_eq!((&sent["model"], &sent["round"]), (&json!(""), &json!(0)));
    assert!(sent["session_id"].is_null(), "{sent}");
    // What the model would have to mend is mended for others, too.
    let mended = entry(app.client(), "read", json!({"path": "/x", "lines": "3"})).await;
    assert_eq!(mended["arguments"], r#"{"lines":3,"path":"/x"}"#);
    assert_eq!(mended["status"], "error");
    let content = mended["result_content"].as_str().unwrap();
    assert!(
        content.starts_with("gone\n[This call was corrected"),
        "{content}"
    );
    assert_eq!(
        mended["repairs"].as_array().map(Vec::len),
        Some(1),
        "{mended}"
    );
    // Without arguments.
    let bare = call(app.client(), "t", &json!({})).await.json();
    assert_eq!(bare["arguments"], "{}");
}

#[tokio::test]
async fn bad_requests_name_the_member() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let settings = configured(&hook, "read", "");
    let app = builder(&hook).await.toml(&settings).start().await;
    for (body, param) in [
        (json!({"arguments": {"lines": 3}}), "arguments"),
        (json!({"arguments": {"path": {"a": 1}}}), "arguments"),
        (json!({"arguments": []}), "arguments"),
        (
            json!({"arguments": {"path": "/x"}, "session_id": "a b"}),
            "session_id",
        ),
        (
            json!({"arguments": {"path": "/x"}, "session_id": 1}),
            "session_id",
        ),
        (json!({"arguments": {"path": "/x"}, "args": {}}), "args"),
    ] {
        let answer = call(app.client(), "read", &body).await;
        answer.assert_error(400, None);
        assert_eq!(answer.json()["error"]["param"], param, "{body}");
    }
    let missing = call(app.client(), "read", &json!({"arguments": {}})).await;
    let message = missing.assert_error(400, None);
    assert!(message.contains("path"), "{message}");
    let session = json!({"arguments": {"path": "/x"}, "session_id": "none"});
    let answer = call(app.client(), "read", &session).await;
    answer.assert_error(404, Some("not_found"));
    assert_eq!(answer.json()["error"]["param"], "session_id");
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn an_unknown_tool_is_a_404_that_names_those_that_exist() {
    let hook = Webhook::start().await;
    let mut settings = "dispatch_tools = [\"mine_*\"]\n".to_owned();
    for number in 0..41 {
        settings.push_str(&configured(&hook, &format!("read_{number}"), ""));
    }
    let app = builder(&hook).await.toml(&settings).start().await;
    let answer = call(app.client(), "nothing", &json!({"arguments": {}})).await;
    let message = answer.assert_error(404, Some("not_found"));
    assert!(
        message.contains("'nothing'") && message.contains("read_0, read_1,"),
        "{message}"
    );
    assert!(
        message.contains("and 1 more") && !message.contains("read_40"),
        "{message}"
    );
}

#[tokio::test]
async fn tools_and_sessions_are_those_of_the_key() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = keyed(&hook, "").await.start().await;
    call(app.client(), "t", &json!({}))
        .await
        .assert_error(401, Some("invalid_api_key"));
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let session = json!({"id": "s", "messages": [{"role": "user", "content": "hello"}]});
    let made = alice
        .send(http::Method::PUT, "/v1/sessions/s", &session)
        .await;
    assert!(made.status.is_success(), "{}", made.text());
    let body = json!({"session_id": "s"});
    let own = call(&alice, "t", &body).await;
    assert_eq!(own.json()["status"], "ok", "{}", own.text());
    assert_eq!(hook.call(0).body["session_id"], "s");
    assert_eq!(hook.call(0).body["owner"], "alice");
    call(&bob, "t", &body)
        .await
        .assert_error(404, Some("not_found"));
    assert_eq!(hook.calls().len(), 1);
    // The history is as it was.
    let export = alice.get("/v1/sessions/s").await.json();
    assert_eq!(
        export["messages"].as_array().map(Vec::len),
        Some(1),
        "{export}"
    );
}

#[tokio::test]
async fn a_session_makes_one_call_at_a_time_and_waits_for_its_turn() {
    let gate = Gate::new();
    let held = gate.clone();
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held));
    let app = builder(&hook)
        .await
        .toml("session_wait_ms = 300")
        .start()
        .await;
    let session = json!({"id": "s", "messages": [{"role": "user", "content": "hello"}]});
    app.client()
        .send(http::Method::PUT, "/v1/sessions/s", &session)
        .await;
    let client = app.client().clone();
    let first = tokio::spawn(async move { call(&client, "t", &json!({"session_id": "s"})).await });
    hook.called(1).await;
    let second = call(app.client(), "t", &json!({"session_id": "s"})).await;
    second.assert_error(409, Some("session_busy"));
    // It can be cancelled like a turn.
    let cancelled = app.client().post("/v1/sessions/s/cancel", &json!({})).await;
    assert_eq!(cancelled.status, 202, "{}", cancelled.text());
    let first = first.await.unwrap().json();
    assert_eq!(first["status"], "cancelled", "{first}");
    gate.open();
    assert_eq!(
        call(app.client(), "t", &json!({"session_id": "s"}))
            .await
            .json()["status"],
        "ok"
    );
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_call() {
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = builder(&hook).await.start().await;
    let client = app.client().clone();
    let asking = tokio::spawn(async move { call(&client, "t", &json!({})).await });
    hook.called(1).await;
    asking.abort();
    eventually("the end of the call", async || {
        let metrics = app.get("/metrics").await.text();
        let ended = |line: &&str| line.contains("cancelled") && line.ends_with(" 1");
        let mut lines = metrics
            .lines()
            .filter(|line| line.starts_with("loopwright_tool_calls"));
        lines.find(ended).map(|_| ())
    })
    .await;
}

#[tokio::test]
async fn a_key_has_its_share_of_calls() {
    let gate = Gate::new();
    let held = gate.clone();
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held));
    let app = keyed(&hook, "max_connections = 16\n").await.start().await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let asking: Vec<_> = (0..16)
        .map(|_| {
            let alice = alice.clone();
            tokio::spawn(async move { call(&alice, "t", &json!({})).await.status.as_u16() })
        })
        .collect();
    eventually("a refusal", async || {
        let done = asking.iter().filter(|one| one.is_finished()).count();
        (done > 0).then_some(())
    })
    .await;
    let other = tokio::spawn(async move { call(&bob, "t", &json!({})).await.status.as_u16() });
    gate.open();
    assert_eq!(other.await.unwrap(), 200);
    let mut statuses = Vec::new();
    for one in asking {
        statuses.push(one.await.unwrap());
    }
    assert!(
        statuses.contains(&429) && statuses.contains(&200),
        "{statuses:?}"
    );
}
