//! The answer of a turn that waited is that of the whole turn, wherever it is read. Only a client that shows the earlier part
//! gets what follows it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{
    Answer, Client, ScriptedUpstream, TestApp, Value, Webhook, ask_with, asked, assistant, charge,
    decided, json, pay, question, server, statuses, user, with,
};
use crate::hooks::receiver::Receiver;
use crate::support::eventually;
use crate::support::script::{Reply, text, text_and_calls};
use crate::support::server::HttpReply;
use crate::support::webhook;

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const WHOLE_TEXT: &str = "First.\n\nSecond.\n\nThird.";

fn read() -> (&'static str, Value) {
    ("read", json!({}))
}

/// Three rounds with text; a plot and a file before, between and behind two waits.
fn script() -> [Reply; 4] {
    [
        text_and_calls("First.", [read(), charge(5)]).usage(10, 1),
        text_and_calls("Second.", [read(), charge(6)]).usage(20, 2),
        text_and_calls("Third.", [read()]).usage(30, 3),
        text("").usage(40, 4),
    ]
}

async fn hook() -> Webhook {
    let made = json!({
        "content": "read", "images": [PIXEL],
        "files": [{"name": "a.csv", "mime_type": "text/csv", "data": STANDARD.encode("1,2")}],
    });
    let hook = Webhook::start().await.on("read", webhook::json(&made));
    hook.on("charge", webhook::text("charged"))
}

async fn start(more: &str) -> (ScriptedUpstream, Webhook, TestApp) {
    let (upstream, hook) = (ScriptedUpstream::start(script()).await, hook().await);
    let app = server(&upstream, &hook, more).start().await;
    (upstream, hook, app)
}

fn approve() -> Value {
    json!({"decision": "approve"})
}

/// Approves the next call that waits, other than those before.
async fn approve_next(client: &Client, before: &mut Vec<Value>) {
    let approval = eventually("a question", || async {
        let list = client.get("/v1/agent/approvals").await.json();
        let found = list["data"].as_array().unwrap().iter();
        let mut new = found.filter(|one| !before.contains(&one["approval_id"]));
        new.next().cloned()
    })
    .await;
    before.push(approval["approval_id"].clone());
    decided(client, &approval, approve()).await;
}

async fn ended(client: &Client, id: &Value) -> Answer {
    let path = format!("/v1/chat/completions/{}", id.as_str().unwrap());
    eventually("the end of a run", || async {
        let answer = client.get(&path).await;
        (answer.status != 202).then_some(answer)
    })
    .await
}

/// An answer of the whole turn.
fn assert_whole(answer: &Answer) {
    let body = answer.completion();
    assert_eq!(answer.content(), WHOLE_TEXT);
    let calls = ["read ok", "charge ok", "read ok", "charge ok", "read ok"];
    let mut found = statuses(answer);
    found.sort();
    let mut expected = calls.map(ToOwned::to_owned).to_vec();
    expected.sort();
    assert_eq!(found, expected, "{body}");
    let entries = body["agentic_tool_calls"].as_array().unwrap();
    let rounds: Vec<&Value> = entries.iter().map(|entry| &entry["round"]).collect();
    assert_eq!(rounds, [0, 0, 1, 1, 2]);
    let reads = entries.iter().filter(|entry| entry["name"] == "read");
    for entry in reads {
        assert_eq!(entry["result_images_base64"], json!([PIXEL]), "{entry}");
    }
    let files = body["files"].as_array().unwrap();
    let named = files.iter().filter(|file| file["name"] == "a.csv");
    let contents: Vec<&Value> = named.map(|file| &file["data"]).collect();
    assert_eq!(contents, [&json!(STANDARD.encode("1,2")); 3]);
    assert_eq!(body["usage"]["prompt_tokens"], 100, "{body}");
    assert_eq!(body["usage"]["completion_tokens"], 10);
    let agent = &body["agent"];
    assert_eq!(agent["usage_by_round"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&agent["rounds"], &agent["model_calls"]),
        (&json!(3), &json!(4))
    );
}

#[tokio::test]
async fn a_run_in_the_background_has_one_answer_of_all_its_rounds() {
    let (upstream, hook, app) = start("").await;
    let body = with(pay(), "agent", json!({"background": true}));
    let id = app.post_chat(body).await.json()["id"].clone();
    let mut decided = Vec::new();
    approve_next(app.client(), &mut decided).await;
    approve_next(app.client(), &mut decided).await;
    assert_whole(&ended(app.client(), &id).await);
    assert_eq!(hook.names().len(), 5);

    // A client that repeats the conversation with this answer changes nothing in it.
    let messages = json!([user("Pay"), assistant(WHOLE_TEXT), user("And now?")]);
    let before = app.get("/v1/sessions/s").await.json();
    let kept = before["messages"].as_array().unwrap().len();
    upstream.push(text("More."));
    app.post_chat(with(pay(), "messages", messages))
        .await
        .completion();
    let after = app.get("/v1/sessions/s").await.json();
    assert_eq!(
        after["messages"].as_array().unwrap()[..kept],
        before["messages"].as_array().unwrap()[..]
    );
}

#[tokio::test]
async fn a_kill_between_the_waits_loses_nothing_of_the_answer() {
    let (upstream, hook) = (ScriptedUpstream::start(script()).await, hook().await);
    let mut app = server(&upstream, &hook, "").start().await;
    let keyed = app.client().header("idempotency-key", "k");
    let first = keyed.post_chat(pay()).await;
    let id = first.completion()["id"].clone();
    let mut decided = Vec::new();
    for _ in 0..2 {
        app.kill9().await;
        app.restart().await;
        approve_next(app.client(), &mut decided).await;
    }
    assert_whole(&ended(app.client(), &id).await);
    let keyed = app.client().header("idempotency-key", "k");
    let repeated = keyed.post_chat(pay()).await;
    assert_eq!(repeated.header("idempotency-replayed"), Some("true"));
    assert_whole(&repeated);
    assert_eq!(hook.names().len(), 5, "no call ran twice");
}

#[tokio::test]
async fn requests_without_messages_get_the_whole_answer_streamed_and_not() {
    for streamed in [false, true] {
        let (_upstream, _hook, app) = start("approval_wait = 0").await;
        let first = app.post_chat(pay()).await;
        let approval = asked(&first).remove(0);
        decided(app.client(), &approval, approve()).await;
        let empty = with(pay(), "messages", json!([]));
        let second = app.post_chat(empty.clone()).await;
        assert!(
            second.content().starts_with("First.\n\nSecond.\n\n"),
            "{}",
            second.content()
        );
        let approval = asked(&second).remove(0);
        decided(app.client(), &approval, approve()).await;
        if !streamed {
            assert_whole(&app.post_chat(empty).await);
            continue;
        }
        let stream = app.stream_chat(empty).await.collect().await;
        assert_eq!(stream.text, WHOLE_TEXT);
        assert_eq!(stream.phase("complete").len(), 5);
        assert_eq!(stream.phase("calling").len(), 5);
        assert_eq!(stream.agent()["rounds"], 3);
        assert_eq!(
            stream.agent()["usage_by_round"].as_array().unwrap().len(),
            4
        );
    }
}

#[tokio::test]
async fn a_client_that_shows_the_earlier_part_gets_the_rest() {
    let (upstream, _hook, app) = start("").await;
    let first = app.post_chat(pay()).await;
    let approval = asked(&first).remove(0);
    decided(app.client(), &approval, approve()).await;
    let mut messages = vec![user("Pay"), assistant(&first.content())];
    let body = |messages: &[Value]| with(pay(), "messages", json!(messages));
    let second = app.post_chat(body(&messages)).await;
    assert!(
        second.content().starts_with("Second.\n\n"),
        "{}",
        second.content()
    );
    let approval = asked(&second).remove(0);
    decided(app.client(), &approval, approve()).await;
    messages.push(assistant(&second.content()));
    let third = app.post_chat(body(&messages)).await;
    let completion = third.completion();
    assert_eq!(third.content(), "Third.");
    assert_eq!(statuses(&third), ["charge ok", "read ok"]);
    let agent = &completion["agent"];
    assert_eq!(
        (&agent["rounds"], &agent["model_calls"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(agent["usage_by_round"].as_array().unwrap().len(), 2);
    assert_eq!(completion["usage"]["prompt_tokens"], 70);

    // The conversation as this client has it is no edit.
    let kept = app.get("/v1/sessions/s").await.json()["messages"].clone();
    let kept = kept.as_array().unwrap();
    messages.push(assistant(&third.content()));
    messages.push(user("And now?"));
    upstream.push(text("More."));
    app.post_chat(body(&messages)).await.completion();
    let after = app.get("/v1/sessions/s").await.json()["messages"].clone();
    assert_eq!(after.as_array().unwrap()[..kept.len()], kept[..]);
}

#[tokio::test]
async fn a_message_of_the_user_gets_what_follows_it() {
    let (_upstream, _hook, app) = start("").await;
    let first = app.post_chat(pay()).await;
    let approval = asked(&first).remove(0);
    decided(app.client(), &approval, approve()).await;
    let say = with(pay(), "messages", json!([user("Go on")]));
    let second = app.post_chat(say).await;
    assert!(
        second.content().starts_with("Second.\n\n"),
        "{}",
        second.content()
    );
}

#[tokio::test]
async fn a_stream_that_waits_in_place_is_whole_under_its_id() {
    let (_upstream, _hook, app) = start("").await;
    let body = with(pay(), "agent", json!({"on_disconnect": "finish"}));
    let mut stream = app.stream_chat(body).await;
    for _ in 0..2 {
        let approval = question(&mut stream).await;
        decided(app.client(), &approval, approve()).await;
    }
    let collected = stream.collect().await;
    assert_whole(&ended(app.client(), &json!(collected.id)).await);
}

/// The texts of the messages of the model among items.
fn texts(items: &Value) -> Vec<String> {
    let items = items.as_array().unwrap().iter();
    let messages = items.filter(|item| item["type"] == "message" && item["role"] == "assistant");
    messages
        .map(|item| item["content"][0]["text"].as_str().unwrap().to_owned())
        .collect()
}

fn ids(items: &Value) -> Vec<Value> {
    let items = items.as_array().unwrap().iter();
    items.map(|item| item["id"].clone()).collect()
}

/// A response in the background, in a conversation of its own, and the items of the conversation.
async fn response(app: &TestApp, waits: usize) -> (Value, Value) {
    let tools = ["charge", "read"].map(|name| {
        let tool = ask_with("", [name])["tools"][0]["function"].clone();
        json!({"type": "function", "name": name, "parameters": tool["parameters"]})
    });
    let created = app.post("/v1/conversations", &json!({})).await.json();
    let body = json!({
        "model": "m", "input": "Pay", "background": true, "tools": tools, "conversation": created["id"],
    });
    let begun = app.post("/v1/responses", &body).await.json();
    let mut decided = Vec::new();
    for _ in 0..waits {
        approve_next(app.client(), &mut decided).await;
    }
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    let response = eventually("the response", || async {
        let response = app.get(&path).await.json();
        let is_over = !["queued", "in_progress"].contains(&response["status"].as_str().unwrap());
        is_over.then_some(response)
    })
    .await;
    let id = created["id"].as_str().unwrap();
    let path = format!("/v1/conversations/{id}/items?order=asc&limit=100");
    (response, app.get(&path).await.json())
}

#[tokio::test]
async fn a_response_in_the_background_is_that_of_a_turn_that_has_not_waited() {
    let (_upstream, hook, app) = start("").await;
    let (waited, items) = response(&app, 2).await;
    assert_eq!(hook.names().len(), 5);
    let (upstream, hook) = (ScriptedUpstream::start(script()).await, self::hook().await);
    let app = TestApp::with_tools(&upstream, &hook).await;
    let (plain, plain_items) = response(&app, 0).await;
    assert_eq!(texts(&waited["output"]), texts(&plain["output"]));
    let kinds = |items: &Value| -> Vec<Value> {
        let items = items.as_array().unwrap().iter();
        items.map(|item| item["type"].clone()).collect()
    };
    assert_eq!(kinds(&waited["output"]), kinds(&plain["output"]));
    assert_eq!(waited["usage"], plain["usage"]);
    assert_eq!(waited["agent"], plain["agent"]);
    assert_eq!(texts(&items["data"]), texts(&plain_items["data"]));
    assert_eq!(kinds(&items["data"]), kinds(&plain_items["data"]));
    // The items of the conversation are those of the response, as without a wait.
    let listed = |response: &Value, items: &Value| -> Vec<bool> {
        let of_conversation = ids(&items["data"]);
        let of_response = ids(&response["output"]);
        of_response
            .iter()
            .map(|id| of_conversation.contains(id))
            .collect()
    };
    assert_eq!(listed(&waited, &items), listed(&plain, &plain_items));
}

/// Each call has begun once and ended once, and the text is that of the stored view.
fn assert_told_once(stream: &crate::support::collect::Collected) {
    for phase in ["calling", "complete"] {
        let of_phase = stream.phase(phase);
        let calls: Vec<&Value> = of_phase
            .iter()
            .map(|event| &event["tool_call_id"])
            .collect();
        let mut distinct = calls.clone();
        distinct.sort_by_key(ToString::to_string);
        distinct.dedup();
        assert_eq!(calls.len(), distinct.len(), "{phase}: {calls:?}");
    }
}

#[tokio::test]
async fn who_shows_one_part_and_asks_for_the_whole_later_gets_it_once() {
    let (upstream, _hook, app) = start("approval_wait = 0").await;
    let first = app.post_chat(pay()).await;
    let shown = with(
        pay(),
        "messages",
        json!([user("Pay"), assistant(&first.content())]),
    );
    // A repeat before the decision changes nothing.
    asked(&app.post_chat(shown.clone()).await);
    decided(app.client(), &asked(&first)[0], approve()).await;
    let second = app.post_chat(shown).await;
    assert!(second.content().starts_with("Second."));
    decided(app.client(), &asked(&second)[0], approve()).await;
    let empty = with(pay(), "messages", json!([]));
    let third = app.stream_chat(empty).await.collect().await;
    assert_eq!(third.text, WHOLE_TEXT);
    assert_told_once(&third);
    assert_eq!(third.phase("complete").len(), 5);
    let kept = app.get("/v1/sessions/s").await.json()["messages"].clone();
    let kept = kept.as_array().unwrap();
    upstream.push(text("More."));
    let messages = json!([user("Pay"), assistant(WHOLE_TEXT), user("And now?")]);
    app.post_chat(with(pay(), "messages", messages))
        .await
        .completion();
    let after = app.get("/v1/sessions/s").await.json()["messages"].clone();
    assert_eq!(after.as_array().unwrap()[..kept.len()], kept[..]);
}

#[tokio::test]
async fn a_run_that_began_behind_a_wait_keeps_its_answer_behind_it() {
    let (_upstream, _hook, app) = start("").await;
    let first = app.post_chat(pay()).await;
    decided(app.client(), &asked(&first)[0], approve()).await;
    let shown = with(
        pay(),
        "messages",
        json!([user("Pay"), assistant(&first.content())]),
    );
    let shown = with(shown, "agent", json!({"background": true}));
    let id = app.post_chat(shown).await.json()["id"].clone();
    let before = asked(&first)[0]["approval_id"].clone();
    approve_next(app.client(), &mut vec![before]).await;
    let answer = ended(app.client(), &id).await;
    assert_eq!(answer.content(), "Second.\n\nThird.");
    assert_eq!(answer.completion()["usage"]["prompt_tokens"], 90);
    assert_eq!(
        statuses(&answer),
        ["charge ok", "read ok", "charge ok", "read ok"]
    );
}

#[tokio::test]
async fn what_precedes_a_message_of_the_user_is_no_part_of_the_answer_to_it() {
    let (_upstream, _hook, app) = start("").await;
    let first = app.post_chat(pay()).await;
    decided(app.client(), &asked(&first)[0], approve()).await;
    let say = with(pay(), "messages", json!([user("Go on")]));
    let second = app.post_chat(say).await;
    decided(app.client(), &asked(&second)[0], approve()).await;
    let third = app.post_chat(with(pay(), "messages", json!([]))).await;
    assert_eq!(third.content(), "Second.\n\nThird.");
}

#[tokio::test]
async fn a_request_that_is_sent_again_shows_nothing() {
    let upstream = ScriptedUpstream::start(
        [crate::support::script::calls([("mine", json!({}))])]
            .into_iter()
            .chain(script()),
    )
    .await;
    let hook = hook().await;
    let app = server(&upstream, &hook, "").start().await;
    let with_own = ask_with("Pay", ["charge", "read", "mine"]);
    let mut body = with(with_own, "session_id", json!("s"));
    body["agent"] = json!({"client_tools": ["mine"]});
    let called = app.post_chat(body.clone()).await.completion();
    let message = called["choices"][0]["message"].clone();
    let call = message["tool_calls"][0]["id"].clone();
    let result = json!({"role": "tool", "tool_call_id": call, "content": "done"});
    let again = with(body, "messages", json!([user("Pay"), message, result]));
    let first = app.post_chat(again.clone()).await;
    decided(app.client(), &asked(&first)[0], approve()).await;
    let second = app.post_chat(again).await;
    assert!(
        second.content().starts_with("First.\n\nSecond."),
        "{}",
        second.content()
    );
}

#[tokio::test]
async fn a_turn_keeps_how_its_text_is_told() {
    let (_upstream, _hook, app) = start("").await;
    let last_only = with(pay(), "agent", json!({"text": "final"}));
    let first = app.post_chat(last_only).await;
    decided(app.client(), &asked(&first)[0], approve()).await;
    let empty = with(pay(), "messages", json!([]));
    let second = app.post_chat(empty.clone()).await;
    assert!(!second.content().contains("First."), "{}", second.content());
    decided(app.client(), &asked(&second)[0], approve()).await;
    let third = app.post_chat(empty).await;
    assert!(!third.content().contains("First."), "{}", third.content());
}

#[tokio::test]
async fn a_client_that_shows_the_text_without_the_sentence_resumes_the_turn() {
    let (upstream, hook, app) = start("").await;
    let first = app.post_chat(pay()).await;
    let body = |text: &str| with(pay(), "messages", json!([user("Pay"), assistant(text)]));
    // Before the decision it waits again, and nothing is refused.
    let again = asked(&app.post_chat(body("First.")).await);
    assert_eq!(again[0]["approval_id"], asked(&first)[0]["approval_id"]);
    decided(app.client(), &again[0], approve()).await;
    let second = app.post_chat(body("First.\n\n")).await;
    assert!(
        second.content().starts_with("Second."),
        "{}",
        second.content()
    );
    decided(app.client(), &asked(&second)[0], approve()).await;
    let third = app.post_chat(body("First.\n\nSecond.")).await;
    assert_eq!(third.content(), "Third.");
    assert_eq!(hook.names().len(), 5, "every call has run once");
    // The model has seen no message that it has not written.
    let sent = upstream.last().messages();
    let texts = sent.iter().filter(|message| message["role"] == "assistant");
    let texts: Vec<&Value> = texts.map(|message| &message["content"]).collect();
    assert_eq!(texts, ["First.", "Second.", "Third."]);
}

#[tokio::test]
async fn hooks_that_failed_before_the_waits_are_counted() {
    let upstream = ScriptedUpstream::start(script()).await;
    let hook = hook().await;
    let broken = Receiver::start(|_, _| HttpReply::whole(500, "text/plain", "no")).await;
    let more = broken.entry(
        "after_tool",
        "/",
        "tools = [\"read\"]\non_failure = \"continue\"",
    );
    // Tables follow the keys of the top level.
    let builder = server(&upstream, &hook, "");
    let app = builder.toml(&more).start().await;
    let body = with(pay(), "agent", json!({"background": true}));
    let id = app.post_chat(body).await.json()["id"].clone();
    let mut decided = Vec::new();
    approve_next(app.client(), &mut decided).await;
    approve_next(app.client(), &mut decided).await;
    let body = ended(app.client(), &id).await.completion();
    let notices = body["agent"]["notices"].as_array().unwrap().iter();
    let of_hooks: Vec<&Value> = notices.filter(|one| one["kind"] == "hook").collect();
    assert_eq!(of_hooks.len(), 1, "{body}");
    let message = of_hooks[0]["message"].as_str().unwrap();
    assert!(message.contains("failed 3 times"), "{message}");
}
