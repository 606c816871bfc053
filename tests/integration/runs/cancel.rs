//! Runs that are told to stop: at once or after the round, in every state that a run can be in.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::super::support::collect::Collected;
use super::*;

/// Fails unless the stream ends as that of a cancelled run.
fn assert_cancelled(stream: &Collected) {
    assert_eq!(stream.finish_reason(), "stop", "{}", stream.transcript());
    assert_eq!(stream.agent()["stop_reason"], "cancelled");
    assert!(stream.error.is_none());
    assert_eq!(stream.data().last().unwrap(), "[DONE]");
}

/// Cancels the run that works in a session.
async fn cancel_session(app: &TestApp, body: Value) -> Answer {
    app.post("/v1/sessions/s/cancel", &body).await
}

#[tokio::test]
async fn abort_ends_the_model_stream_and_keeps_the_text_so_far() {
    let upstream =
        ScriptedUpstream::start([text("one two three").hang_after(2), text("Hello.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(in_session("Go", "s")).await;
    let id = stream.run_id();
    assert_eq!(stream.next_text().await, "one ");
    let answer = cancel(app.client(), &id, "abort").await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    upstream.dropped(0).await;
    let stream = stream.collect().await;
    assert_cancelled(&stream);
    assert_eq!(stream.text.trim(), "one");
    none_running(app.client()).await;
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages), ["user", "assistant"]);
    assert_eq!(content(&messages[1]).trim(), "one");
    let fetched = app.get(&path(&id)).await.completion();
    assert_eq!(fetched["agent"]["stop_reason"], "cancelled");
    assert_eq!(
        app.post_chat(in_session("More", "s")).await.content(),
        "Hello."
    );
}

#[tokio::test]
async fn abort_ends_a_running_call_which_may_have_taken_effect() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Let me see.", [("t", json!({}))]),
        text("Hello."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(in_session("Go", "s")).await;
    hook.called(1).await;
    let asked = Instant::now();
    // Without a mode it is abort.
    assert_eq!(cancel_session(&app, json!({})).await.status, 202);
    hook.dropped(0).await;
    let stream = stream.collect().await;
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    assert_cancelled(&stream);
    assert_eq!(stream.text, "Let me see.");
    assert_eq!(stream.phase("complete")[0]["status"], "cancelled");
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages)[..3], ["user", "assistant", "tool"]);
    assert!(content(&messages[2]).contains("may have taken effect"));
    assert_eq!(upstream.requests().len(), 1, "no further model call");
    assert_eq!(
        app.post_chat(in_session("More", "s")).await.content(),
        "Hello."
    );
}

#[tokio::test]
async fn abort_between_two_model_calls_keeps_the_round() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([
        text_and_calls("Let me see.", [("t", json!({}))]),
        text("never").gate_head(&gate),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(in_session("Go", "s")).await;
    gate.reached(1).await;
    assert_eq!(
        cancel(app.client(), &stream.run_id(), "abort").await.status,
        202
    );
    upstream.dropped(1).await;
    let stream = stream.collect().await;
    assert_cancelled(&stream);
    assert_eq!(stream.text, "Let me see.");
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages)[..3], ["user", "assistant", "tool"]);
    assert_eq!(content(&messages[2]), "r");
}

#[tokio::test]
async fn after_round_lets_the_batch_end_and_makes_no_further_model_call() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([
        text_and_calls(
            "Let me see.",
            [("t", json!({"n": 1})), ("t", json!({"n": 2}))],
        ),
        text("Hello."),
    ])
    .await;
    let held = gate.clone();
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(in_session("Go", "s")).await;
    hook.called(2).await;
    let mode = json!({"mode": "after_round"});
    assert_eq!(cancel_session(&app, mode).await.status, 202);
    gate.open();
    let stream = stream.collect().await;
    assert_cancelled(&stream);
    let complete = stream.phase("complete");
    assert_eq!(complete.len(), 2);
    assert!(
        complete.iter().all(|call| call["status"] == "ok"),
        "{complete:?}"
    );
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages)[..4], ["user", "assistant", "tool", "tool"]);
    assert_eq!((content(&messages[2]), content(&messages[3])), ("r", "r"));
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(
        app.post_chat(in_session("More", "s")).await.content(),
        "Hello."
    );
}

#[tokio::test]
async fn after_round_in_a_model_stream_runs_none_of_its_calls() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([
        text_and_calls("one two ", [("t", json!({}))]).gate_before(2, &gate),
        text("Hello."),
    ])
    .await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(in_session("Go", "s")).await;
    assert_eq!(stream.next_text().await, "one ");
    let answer = cancel(app.client(), &stream.run_id(), "after_round").await;
    assert_eq!(answer.status, 202);
    gate.open();
    let stream = stream.collect().await;
    assert_cancelled(&stream);
    assert_eq!(
        stream.text.trim(),
        "one two",
        "the model call was let to its end"
    );
    assert!(hook.calls().is_empty());
    // The strict server takes the history.
    assert_eq!(
        app.post_chat(in_session("More", "s")).await.content(),
        "Hello."
    );
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn abort_goes_before_after_round() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))])]).await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(go()).await;
    hook.called(1).await;
    let id = stream.run_id();
    assert_eq!(cancel(app.client(), &id, "after_round").await.status, 202);
    assert_eq!(running(app.client()).await, 1, "the batch goes on");
    assert_eq!(cancel(app.client(), &id, "abort").await.status, 202);
    hook.dropped(0).await;
    assert_cancelled(&stream.collect().await);
}

#[tokio::test]
async fn a_plain_answer_tells_that_it_was_cancelled() {
    let upstream = ScriptedUpstream::start([text_and_calls("So far.", [("t", json!({}))])]).await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().clone();
    let request = tokio::spawn(async move { client.post_chat(in_session("Go", "s")).await });
    hook.called(1).await;
    // The body may be empty.
    let session = "/v1/sessions/s/cancel";
    let answer = Answer::of(app.client().request(http::Method::POST, session)).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let body = request.await.unwrap().completion();
    assert_eq!(body["agent"]["stop_reason"], "cancelled");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["choices"][0]["message"]["content"], "So far.");
    assert_eq!(body["agentic_tool_calls"][0]["status"], "cancelled");
}

#[tokio::test]
async fn what_does_not_run_cannot_be_cancelled() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(in_session("Go", "s")).await.completion();
    let id = answer["id"].as_str().unwrap();
    for mode in ["abort", "after_round"] {
        let answer = cancel(app.client(), id, mode).await;
        answer.assert_error(409, Some("not_running"));
        let answer = cancel_session(&app, json!({"mode": mode})).await;
        answer.assert_error(409, Some("not_running"));
    }
    let unknown = app.post("/v1/sessions/nobody/cancel", &json!({})).await;
    unknown.assert_error(404, Some("not_found"));
    let unknown = cancel(app.client(), "chatcmpl-nobody", "abort").await;
    unknown.assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn a_mode_that_does_not_exist_is_refused_and_stops_nothing() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_before(2, &gate)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(in_session("Go", "s")).await;
    stream.next_text().await;
    for body in [
        json!({"mode": "now"}),
        json!({"mode": 1}),
        json!({"modes": "abort"}),
        json!([]),
    ] {
        let by_id = format!("{}/cancel", path(&stream.run_id()));
        for path in [by_id.as_str(), "/v1/sessions/s/cancel"] {
            app.post(path, &body).await.assert_error(400, None);
        }
    }
    gate.open();
    let stream = stream.collect().await;
    assert_eq!(
        (stream.text.as_str(), &stream.agent()["stop_reason"]),
        ("one two", &json!("completed"))
    );
}

/// A turn that is cancelled while the files of its first call's result are stored. Another process has the database
/// locked then; `unlock` says when it lets go.
async fn cancelled_while_storing(unlock: Unlock) -> (Collected, Vec<Value>) {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("never")]).await;
    let gate = Gate::new();
    let made = json!({"content": "charged", "files": [{"name": "a.txt", "data": "aGVsbG8="}]});
    let hook = Webhook::start().await;
    let hook = hook.on("t", webhook::json(&made).gated(&gate));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let mut app = builder.toml("files_dir = \"blobs\"").start().await;
    let mut stream = app.stream_chat(in_session("Go", "s")).await;
    hook.called(1).await;
    let mut other = Connection::open(app.dir().join("sessions.db")).unwrap();
    let lock = other
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    gate.release(1);
    let blobs = app.dir().join("blobs");
    eventually("the content of the file", || async {
        placed(&blobs).then_some(())
    })
    .await;
    let id = stream.run_id();
    assert_eq!(cancel(app.client(), &id, "abort").await.status, 202);
    if unlock == Unlock::AfterTheCall {
        let complete = stream.next_progress(TOOL_PROGRESS, "complete").await;
        assert_eq!(complete["status"], "ok", "{complete}");
    }
    drop(lock);
    let stream = stream.collect().await;
    assert_cancelled(&stream);
    none_running(app.client()).await;
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages)[..3], ["user", "assistant", "tool"]);
    assert_eq!(upstream.requests().len(), 1, "no further model call");
    (stream, messages)
}

/// When the database is unlocked.
#[derive(Debug, PartialEq, Eq)]
enum Unlock {
    AtOnce,
    AfterTheCall,
}

/// Whether the content of a file is complete.
fn placed(blobs: &Path) -> bool {
    let shards = blobs.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut shards = shards.filter(|path| path.is_dir() && !path.ends_with("tmp"));
    shards.any(|shard| shard.read_dir().unwrap().next().is_some())
}

#[tokio::test]
async fn a_call_whose_files_are_being_stored_has_run() {
    let (stream, messages) = cancelled_while_storing(Unlock::AtOnce).await;
    let complete = stream.phase("complete")[0];
    assert_eq!(complete["status"], "ok", "{complete}");
    assert_eq!(complete["file_ids"].as_array().unwrap().len(), 1);
    assert_eq!(content(&messages[2]), "charged");
}

#[tokio::test]
async fn a_call_whose_files_take_too_long_to_store_has_run() {
    let (_stream, messages) = cancelled_while_storing(Unlock::AfterTheCall).await;
    let told = content(&messages[2]);
    assert!(
        told.starts_with("charged\n[The turn was cancelled before"),
        "{told}"
    );
}
