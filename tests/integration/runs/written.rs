//! Calls that may have an effect are in the history before they run, however the turn ends.

use super::*;

/// Fails unless the result says that the call has no result and may have done something.
fn assert_may_have_taken_effect(message: &Value, word: &str) {
    assert_eq!(message["role"], "tool", "{message}");
    let told = content(message).to_lowercase();
    assert!(told.contains(word), "{word}: {told}");
    assert!(told.contains("may have taken effect"), "{told}");
}

/// A model that calls `t` first and then says that it goes on.
async fn calling_model() -> ScriptedUpstream {
    ScriptedUpstream::start([
        text_and_calls("Let me see.", [("t", json!({"n": 1}))]),
        text("Going on."),
    ])
    .await
}

#[tokio::test]
async fn a_call_is_in_the_history_while_it_runs() {
    let upstream = calling_model().await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(in_session("Go", "s")).await;
    hook.called(1).await;
    // At once: not only when something else happens.
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages)[..2], ["user", "assistant"]);
    let call = &messages[1]["tool_calls"][0]["function"];
    assert_eq!(
        (&call["name"], &call["arguments"]),
        (&json!("t"), &json!(r#"{"n":1}"#))
    );
    drop(stream);
}

#[tokio::test]
async fn a_lost_client_leaves_the_call_as_cancelled() {
    let upstream = calling_model().await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(in_session("Go", "s")).await;
    hook.called(1).await;
    drop(stream);
    hook.dropped(0).await;
    let messages = history_of(app.client(), "s", 3).await;
    assert_eq!(roles(&messages), ["user", "assistant", "tool"]);
    assert_eq!(
        messages[1]["tool_calls"][0]["id"],
        messages[2]["tool_call_id"]
    );
    assert_may_have_taken_effect(&messages[2], "cancelled");
    // The scripted server is strict: the next turn is valid, and its model is told.
    let next = json!({"model": MODEL, "session_id": "s", "messages": [user("Go on")]});
    assert_eq!(app.post_chat(next).await.content(), "Going on.");
    let sent = upstream.last().messages();
    assert_eq!(roles(&sent), ["user", "assistant", "tool", "user"]);
    assert_may_have_taken_effect(&sent[2], "cancelled");
    assert_eq!(hook.calls().len(), 1);
}

#[tokio::test]
async fn a_client_that_asks_again_without_a_key_finds_its_first_call_as_cancelled() {
    let upstream = calling_model().await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().clone();
    let body = in_session("Go", "s");
    let first = tokio::spawn({
        let body = body.clone();
        async move { client.post_chat(body).await }
    });
    hook.called(1).await;
    first.abort();
    hook.dropped(0).await;
    // The very same request: a retry of an SDK.
    assert_eq!(app.post_chat(body).await.content(), "Going on.");
    let sent = upstream.last().messages();
    let tool = sent.iter().find(|message| message["role"] == "tool");
    let tool = tool.unwrap_or_else(|| panic!("the call of the first attempt: {sent:?}"));
    assert_may_have_taken_effect(tool, "cancelled");
    assert_eq!(hook.calls().len(), 1, "one effect");
}

#[tokio::test]
async fn kill_9_leaves_the_call_as_interrupted() {
    let upstream = calling_model().await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(in_session("Go", "s")).await;
    hook.called(1).await;
    app.kill9().await;
    drop(stream);
    app.restart().await;
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages)[..2], ["user", "assistant"]);
    let next = json!({"model": MODEL, "session_id": "s", "messages": [user("Go on")]});
    assert_eq!(app.post_chat(next).await.content(), "Going on.");
    let sent = upstream.last().messages();
    assert_eq!(roles(&sent), ["user", "assistant", "tool", "user"]);
    assert_may_have_taken_effect(&sent[2], "interrupted");
    assert_eq!(hook.calls().len(), 1);
}

#[tokio::test]
async fn a_call_of_the_batch_that_had_not_begun_was_not_run() {
    let upstream = ScriptedUpstream::start([
        calls([
            ("t", json!({"n": 1})),
            ("t", json!({"n": 2})),
            ("t", json!({"n": 3})),
        ]),
        text("Going on."),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .on_call("t", |call| match call.arguments()["n"] == 1 {
            true => webhook::text("one"),
            false => webhook::hang(),
        });
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = agent(
        in_session("Go", "s"),
        json!({"tool_execution": "sequential"}),
    );
    let stream = app.stream_chat(body).await;
    hook.called(2).await;
    drop(stream);
    hook.dropped(1).await;
    let messages = history_of(app.client(), "s", 5).await;
    assert_eq!(
        roles(&messages),
        ["user", "assistant", "tool", "tool", "tool"]
    );
    // What had a result may have lost it with the batch, but not that it ran.
    let first = content(&messages[2]);
    assert!(
        first == "one" || first.contains("may have taken effect"),
        "{first}"
    );
    assert_may_have_taken_effect(&messages[3], "cancelled");
    let last = content(&messages[4]);
    assert!(last.contains("not run"), "{last}");
    assert!(!last.contains("may have taken effect"), "{last}");
    assert_eq!(
        app.post_chat(in_session("Go on", "s")).await.content(),
        "Going on."
    );
    assert_eq!(hook.calls().len(), 2);
}

#[tokio::test]
async fn a_tool_that_only_reads_leaves_no_doubt() {
    let upstream = ScriptedUpstream::start([calls([("look", json!({}))]), text("Fine.")]).await;
    let hook = Webhook::start().await.on("look", webhook::hang());
    let tool = format!(
        "[[tools]]\nname = \"look\"\ndescription = \"Looks.\"\nurl = \"{}\"\nread_only = true",
        hook.url()
    );
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml(&tool)
        .start()
        .await;
    let body = |text: &str| with(ask(text), "session_id", json!("s"));
    let stream = app.stream_chat(body("Go")).await;
    hook.called(1).await;
    drop(stream);
    hook.dropped(0).await;
    assert_eq!(app.post_chat(body("Go on")).await.content(), "Fine.");
    let told = upstream.last().tool_results();
    assert!(!told.is_empty(), "the call and its end are in the history");
    assert!(!told[0].1.contains("may have taken effect"), "{told:?}");
}

#[tokio::test]
async fn a_named_session_exists_although_its_first_model_call_never_answered() {
    let upstream = ScriptedUpstream::start([script::hang(), text("Hello.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().clone();
    let request = tokio::spawn(async move { client.post_chat(in_session("Go", "s")).await });
    upstream.called(1).await;
    request.abort();
    upstream.dropped(0).await;
    none_running(app.client()).await;
    let messages = history(app.client(), "s").await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0], user("Go"));
    // The same request again is a repetition, not a second question.
    assert_eq!(
        app.post_chat(in_session("Go", "s")).await.content(),
        "Hello."
    );
    assert_eq!(upstream.last().roles(), ["user"]);
    assert_eq!(
        roles(&history(app.client(), "s").await),
        ["user", "assistant"]
    );
}

#[tokio::test]
async fn a_store_that_fails_lets_no_call_run_that_needs_it() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]).gate_head(&gate),
        text("I could not."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let file = app.dir().join("sessions.db");
    let client = app.client().clone();
    let body = in_session("Go", "s");
    let request = tokio::spawn(async move { client.stream_chat(body).await.collect().await });
    upstream.called(1).await;
    // Another program ruins the store's tables while the model thinks.
    let database = rusqlite::Connection::open(file).unwrap();
    database
        .execute_batch("ALTER TABLE messages RENAME TO lost")
        .unwrap();
    gate.open();
    let stream = request.await.unwrap();
    assert_eq!(stream.text, "I could not.");
    let notices = stream.notices();
    assert!(
        notices
            .iter()
            .any(|notice| notice["kind"] == "session_store"),
        "{}",
        stream.transcript()
    );
    assert_eq!(stream.phase("complete")[0]["status"], "error");
    let told = upstream.last().tool_results();
    assert!(told[0].1.contains("history"), "{told:?}");
    assert_eq!(
        hook.calls().len(),
        0,
        "what could not be written down was not done"
    );
}

#[tokio::test]
async fn a_session_that_is_full_lets_no_call_run_that_needs_it() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({"n": 1}))]),
        calls([("t", json!({"n": 2}))]),
        text("Full."),
    ])
    .await;
    let long = "x".repeat(3000);
    let hook = Webhook::start().await.on("t", webhook::text(&long));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml("session_max_bytes = 2048")
        .start()
        .await;
    let answer = app.post_chat(in_session("Go", "s")).await.completion();
    let notices = answer["agent"]["notices"].to_string();
    assert!(notices.contains("session_too_large"), "{notices}");
    assert!(notices.contains("session_max_bytes"), "{notices}");
    // The result of the first call does not fit, so that the second one cannot be written before it runs.
    assert_eq!(hook.calls().len(), 1);
    let second = &answer["agentic_tool_calls"][1];
    assert_eq!(second["status"], "error", "{second}");
    let told = second["result_content"].as_str().unwrap();
    assert!(told.contains("nothing was done"), "{told}");
}
