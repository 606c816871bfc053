//! Work in the background: the answer is fetched later, and no connection matters to it.

use super::*;

fn background(body: Value) -> Value {
    agent(body, json!({"background": true}))
}

#[tokio::test]
async fn the_id_comes_at_once_and_the_answer_later() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::answering(one_round).await;
    let held = gate.clone();
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(background(in_session("Go", "s"))).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let body = answer.json();
    let id = body["id"].as_str().unwrap();
    assert_eq!(answer.header("x-completion-id"), Some(id));
    assert_eq!(body["object"], "chat.completion.run");
    assert_eq!(
        (&body["status"], &body["session_id"]),
        (&json!("running"), &json!("s"))
    );
    assert!(body["created"].is_u64() && body["round"].is_u64(), "{body}");
    assert_eq!(body["approvals"], json!([]));
    assert!(answer.header("retry-after").is_some());
    hook.called(1).await;
    assert_eq!(app.get(&path(id)).await.status, 202);
    gate.open();
    let fetched = ended(app.client(), id).await;
    assert_eq!(fetched.content(), "Let me see.\n\nIt is done.");
    let log = app.client().events(id, 0).await.unwrap().collect().await;
    assert_eq!(log.text, fetched.content());
    none_running(app.client()).await;
}

#[tokio::test]
async fn a_request_without_tools_runs_in_the_background_too() {
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(background(ask("Go"))).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(ended(app.client(), &id).await.content(), "Hello.");
}

#[tokio::test]
async fn a_stream_in_the_background_does_not_depend_on_its_connection() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_before(2, &gate)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(background(go())).await;
    let id = stream.run_id();
    assert_eq!(stream.next_text().await, "one ");
    let descriptors = app.descriptors();
    drop(stream);
    eventually("the connection closed", || async {
        (app.descriptors() < descriptors).then_some(())
    })
    .await;
    gate.open();
    assert_eq!(ended(app.client(), &id).await.content(), "one two");
}

#[tokio::test]
async fn a_run_in_the_background_can_be_cancelled() {
    let upstream = ScriptedUpstream::start([script::hang()]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(background(go())).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    upstream.called(1).await;
    assert_eq!(cancel(app.client(), &id, "abort").await.status, 202);
    upstream.dropped(0).await;
    let fetched = ended(app.client(), &id).await.completion();
    assert_eq!(fetched["agent"]["stop_reason"], "cancelled");
}

#[tokio::test]
async fn it_needs_the_store() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(background(go()), "store", json!(false));
    let answer = app.post_chat(body).await;
    answer.assert_error(400, None);
    assert_eq!(answer.json()["error"]["param"], "agent.background");
    let answer = app
        .post_chat(agent(go(), json!({"background": "yes"})))
        .await;
    answer.assert_error(400, None);
    assert_eq!(answer.json()["error"]["param"], "agent.background");
}

#[tokio::test]
async fn a_shutdown_lets_it_end_within_the_grace() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_head(&gate)]).await;
    let hook = Webhook::start().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(background(in_session("Go", "s"))).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    upstream.called(1).await;
    app.terminate().await;
    gate.open();
    assert_eq!(app.wait_exit().await.code(), Some(0));
    app.restart().await;
    assert_eq!(app.get(&path(&id)).await.content(), "one two");
}

#[tokio::test]
async fn a_shutdown_that_cannot_wait_keeps_the_completed_rounds() {
    let upstream =
        ScriptedUpstream::start([calls([("t", json!({}))]), script::hang(), text("Hello.")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let mut app = builder.toml("shutdown_grace = 0.2").start().await;
    let answer = app.post_chat(background(in_session("Go", "s"))).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    upstream.called(2).await;
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0));
    app.restart().await;
    app.get(&path(&id))
        .await
        .assert_error(410, Some("run_interrupted"));
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages)[..3], ["user", "assistant", "tool"]);
    assert_eq!(content(&messages[2]), "r");
    assert_eq!(upstream.requests().len(), 2, "a restart resumes nothing");
    assert_eq!(
        app.post_chat(in_session("More", "s")).await.content(),
        "Hello."
    );
}

#[tokio::test]
async fn runs_can_be_read_while_the_server_drains() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::answering(one_round).await;
    let held = gate.clone();
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held));
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(background(go())).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    hook.called(1).await;
    app.terminate().await;
    // A connection that was open before closes at some moment from now on, which no request may meet.
    let newcomer = || Client::new(app.origin());
    eventually("the shutdown has begun", || async {
        let answer = newcomer().get("/readyz").await;
        (answer.status == 503).then_some(())
    })
    .await;
    newcomer()
        .post_chat(go())
        .await
        .assert_error(503, Some("shutting_down"));
    assert_eq!(newcomer().get(&path(&id)).await.status, 202);
    let log = newcomer().events(&id, 0).await.unwrap();
    gate.open();
    assert_eq!(log.collect().await.text, "Let me see.\n\nIt is done.");
    assert_eq!(app.wait_exit().await.code(), Some(0));
}
