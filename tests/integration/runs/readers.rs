//! What a lost connection does to a run: the last reader that leaves cancels it, unless it is to finish.

use super::*;

#[tokio::test]
async fn the_only_reader_that_leaves_cancels_the_run_within_a_second() {
    let upstream = ScriptedUpstream::start([
        text("one two three").hang_after(2),
        calls([("t", json!({}))]),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    // In the model stream.
    let mut stream = app.stream_chat(go()).await;
    stream.next_text().await;
    assert_eq!(running(app.client()).await, 1);
    let left = Instant::now();
    drop(stream);
    upstream.dropped(0).await;
    none_running(app.client()).await;
    assert!(left.elapsed() < AT_ONCE, "{:?}", left.elapsed());
    // In a tool.
    let mut stream = app.stream_chat(go()).await;
    stream.next_progress(TOOL_PROGRESS, "calling").await;
    hook.called(1).await;
    assert_eq!(running(app.client()).await, 1);
    let left = Instant::now();
    drop(stream);
    hook.dropped(0).await;
    none_running(app.client()).await;
    assert!(left.elapsed() < AT_ONCE, "{:?}", left.elapsed());
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_cancels_the_run() {
    let upstream = ScriptedUpstream::start([script::hang(), script::hang()]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    for (number, streamed) in [false, true].into_iter().enumerate() {
        let client = app.client().clone();
        let body = with(go(), "stream", json!(streamed));
        let request = tokio::spawn(async move { client.post_chat(body).await });
        upstream.called(number + 1).await;
        assert_eq!(running(app.client()).await, 1);
        let left = Instant::now();
        request.abort();
        upstream.dropped(number).await;
        none_running(app.client()).await;
        assert!(left.elapsed() < AT_ONCE, "{:?}", left.elapsed());
    }
}

#[tokio::test]
async fn a_turn_that_waits_for_its_session_ends_with_its_client() {
    let upstream = ScriptedUpstream::start([text("one two").hang_after(2), text("Again.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut holder = app.stream_chat(in_session("Go", "s")).await;
    holder.next_text().await;
    let client = app.client().clone();
    let waiting = tokio::spawn(async move { client.post_chat(in_session("Wait", "s")).await });
    eventually("the second run", || async {
        (running(app.client()).await == 2).then_some(())
    })
    .await;
    waiting.abort();
    eventually("the end of the second run", || async {
        (running(app.client()).await == 1).then_some(())
    })
    .await;
    drop(holder);
    let again = app.post_chat(in_session("More", "s")).await;
    assert_eq!(again.content(), "Again.");
    let said = json!(upstream.last().messages()).to_string();
    assert!(
        !said.contains("Wait"),
        "what never began is in no history: {said}"
    );
}

#[tokio::test]
async fn a_run_lives_as_long_as_somebody_reads_it() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two three four")
        .gate_before(2, &gate)
        .hang_after(4)])
    .await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut first = app.stream_chat(go()).await;
    let id = first.run_id();
    assert_eq!(first.next_text().await, "one ");
    let mut second = app.client().events(&id, 0).await.unwrap();
    assert_eq!(second.next_text().await, "one ", "from the beginning");
    let descriptors = app.descriptors();
    drop(first);
    eventually("the first connection closed", || async {
        (app.descriptors() < descriptors).then_some(())
    })
    .await;
    gate.open();
    assert_eq!(second.next_text().await, "two ");
    assert_eq!(second.next_text().await, "three ");
    assert_eq!(running(app.client()).await, 1);
    let left = Instant::now();
    drop(second);
    upstream.dropped(0).await;
    none_running(app.client()).await;
    assert!(left.elapsed() < AT_ONCE, "{:?}", left.elapsed());
}

#[tokio::test]
async fn a_run_that_is_to_finish_does_so_without_a_client_and_can_be_fetched() {
    let gate = Gate::new();
    let told = gate.clone();
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&told));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(finishing(go())).await;
    let id = stream.run_id();
    assert!(id.starts_with("chatcmpl-"), "{id}");
    stream.next_progress(TOOL_PROGRESS, "calling").await;
    hook.called(1).await;
    drop(stream);
    let waiting = app.get(&path(&id)).await;
    assert_eq!(waiting.status, 202, "{}", waiting.text());
    assert!(waiting.header("retry-after").is_some());
    let body = waiting.json();
    assert_eq!(body["id"], id);
    assert_eq!(body["object"], "chat.completion.run");
    assert_eq!(body["status"], "running");
    assert_eq!(
        (&body["round"], &body["approvals"]),
        (&json!(0), &json!([]))
    );
    assert!(
        body["created"].is_u64() && body["session_id"].is_string(),
        "{body}"
    );
    gate.open();
    let fetched = ended(app.client(), &id).await.completion();
    assert_eq!(fetched["id"], id);
    assert_eq!(fetched["session_id"], body["session_id"]);
    assert_eq!(fetched["created"], body["created"]);
    none_running(app.client()).await;
    assert_eq!(hook.calls().len(), 1);
    // A client that stays has the same.
    let uncut = app.post_chat(finishing(go())).await.completion();
    assert_eq!(comparable(fetched), comparable(uncut));
}

#[tokio::test]
async fn a_plain_run_that_is_to_finish_is_found_by_its_session() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_head(&gate)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().clone();
    let body = finishing(in_session("Go", "s"));
    let request = tokio::spawn(async move { client.post_chat(body).await });
    upstream.called(1).await;
    request.abort();
    let id = eventually("a session with a run", || async {
        let session = app.get("/v1/sessions/s").await.json();
        session["running"].as_str().map(ToOwned::to_owned)
    })
    .await;
    // The list has sessions that are stored.
    let listed = app.get("/v1/sessions").await.json();
    assert_eq!(listed["data"], json!([]), "{listed}");
    gate.open();
    let fetched = ended(app.client(), &id).await;
    assert_eq!(fetched.content(), "one two");
    let session = app.get("/v1/sessions/s").await.json();
    assert_eq!(
        (&session["running"], &session["last_run"]),
        (&Value::Null, &json!(id))
    );
    assert_eq!(
        roles(&history(app.client(), "s").await),
        ["user", "assistant"]
    );
}

#[tokio::test]
async fn an_unknown_word_for_a_lost_connection_is_refused() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = agent(go(), json!({"on_disconnect": "forget"}));
    let answer = app.post_chat(body).await;
    answer.assert_error(400, None);
    assert_eq!(answer.json()["error"]["param"], "agent.on_disconnect");
}
