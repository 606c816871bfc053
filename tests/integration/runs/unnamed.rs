//! Runs without a session id, and runs that are not to be stored.

use super::*;

#[tokio::test]
async fn without_a_server_side_call_nothing_is_stored_and_no_id_is_given() {
    let upstream = ScriptedUpstream::start([text("One."), text("Two.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let plain = app.post_chat(go()).await;
    assert_eq!(plain.completion().get("session_id"), None);
    assert_eq!(plain.header("x-session-id"), None);
    let stream = app.stream_chat(go()).await;
    assert!(!stream.headers().contains_key("x-session-id"));
    assert_eq!(stream.collect().await.session_id(), None);
    assert_eq!(session_ids(app.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_call_of_the_client_alone_stores_nothing_either() {
    let upstream = ScriptedUpstream::start([calls([("mine", json!({}))]), text("Done.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let declare = |mut body: Value| {
        body["tools"] = json!([tool("t"), tool("mine")]);
        agent(body, json!({"client_tools": ["mine"]}))
    };
    let first = app.post_chat(declare(ask("Go"))).await.completion();
    assert_eq!(first["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(first.get("session_id"), None);
    let message = first["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    let mut body = declare(ask("Go"));
    body["messages"] =
        json!([user("Go"), message, {"role": "tool", "tool_call_id": id, "content": "r"}]);
    let second = app.post_chat(body).await;
    assert_eq!(second.content(), "Done.");
    assert_eq!(second.completion().get("session_id"), None);
    assert_eq!(upstream.last().roles(), ["user", "assistant", "tool"]);
    assert_eq!(session_ids(app.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn once_a_server_side_call_has_started_the_run_is_stored_and_its_session_named() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let plain = app.post_chat(go()).await;
    assert_eq!(plain.header("x-session-id"), None, "the request named none");
    let plain = plain.completion()["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let stream = app.stream_chat(go()).await.collect().await;
    let streamed = stream.session_id().unwrap().to_owned();
    assert_ne!(plain, streamed);
    for id in [&plain, &streamed] {
        let messages = history(app.client(), id).await;
        assert_eq!(roles(&messages), ["user", "assistant", "tool", "assistant"]);
    }
    let mut ids = session_ids(app.client()).await;
    ids.sort();
    let mut expected = vec![plain.clone(), streamed];
    expected.sort();
    assert_eq!(ids, expected);
    // The id is a session like any other.
    let more = with(ask("More"), "session_id", json!(plain));
    app.post_chat(more).await.completion();
    assert_eq!(
        upstream.last().roles(),
        ["user", "assistant", "tool", "assistant", "user"]
    );
}

#[tokio::test]
async fn a_nameless_run_that_is_left_in_a_tool_leaves_its_call() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(go()).await;
    hook.called(1).await;
    drop(stream);
    hook.dropped(0).await;
    none_running(app.client()).await;
    let ids = session_ids(app.client()).await;
    assert_eq!(ids.len(), 1, "{ids:?}");
    let messages = history(app.client(), &ids[0]).await;
    assert_eq!(roles(&messages), ["user", "assistant", "tool"]);
    assert!(content(&messages[2]).contains("may have taken effect"));
    // The tool was given the same id.
    assert_eq!(hook.call(0).body["session_id"], ids[0]);
}

#[tokio::test]
async fn a_nameless_run_that_is_left_before_any_call_leaves_nothing() {
    let upstream = ScriptedUpstream::start([text("one two").hang_after(2)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(go()).await;
    stream.next_text().await;
    let id = stream.run_id();
    drop(stream);
    none_running(app.client()).await;
    assert_eq!(session_ids(app.client()).await, Vec::<String>::new());
    app.get(&path(&id))
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn what_is_not_to_be_stored_leaves_nothing() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start()
        .await
        .once("t", webhook::text("r"))
        .on("t", webhook::hang());
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(go(), "store", json!(false));
    let answer = app.post_chat(body.clone()).await.completion();
    assert_eq!(answer.get("session_id"), None);
    let id = answer["id"].as_str().unwrap();
    app.get(&path(id))
        .await
        .assert_error(404, Some("not_found"));
    assert_eq!(hook.call(0).body.get("session_id"), None);
    // Neither while a call runs, nor once the client has left.
    let stream = app.stream_chat(body).await;
    let id = stream.run_id();
    hook.called(2).await;
    assert_eq!(
        app.get(&path(&id)).await.status,
        202,
        "a running run has an id all the same"
    );
    assert_eq!(session_ids(app.client()).await, Vec::<String>::new());
    drop(stream);
    hook.dropped(1).await;
    none_running(app.client()).await;
    app.get(&path(&id))
        .await
        .assert_error(404, Some("not_found"));
    app.restart().await;
    assert_eq!(session_ids(app.client()).await, Vec::<String>::new());
    app.get(&path(&id))
        .await
        .assert_error(404, Some("not_found"));
}
