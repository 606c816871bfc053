//! Answers by id: fetched, listed as messages, deleted; failed, broken off, of another key.

use super::*;

async fn hook() -> Webhook {
    Webhook::start().await.on("t", webhook::text("r"))
}

#[tokio::test]
async fn an_answer_can_be_fetched_under_the_id_of_every_dialect() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = hook().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    // Its session was written, and thus it has a record.
    let answer = app.post_chat(in_session("Go", "s")).await.completion();
    let id = answer["id"].as_str().unwrap().to_owned();
    let bare = id.strip_prefix("chatcmpl-").unwrap();
    for restarted in [false, true] {
        if restarted {
            app.restart().await;
        }
        for prefix in ["chatcmpl-", "resp_", "msg_"] {
            let fetched = app.get(&path(&format!("{prefix}{bare}"))).await;
            assert_eq!(
                fetched.completion(),
                answer,
                "{prefix}, restarted: {restarted}"
            );
        }
    }
    let stored = app.get("/v1/sessions/s").await.json();
    assert_eq!(
        (&stored["running"], &stored["last_run"]),
        (&Value::Null, &json!(id))
    );
}

#[tokio::test]
async fn a_streamed_answer_is_fetched_as_a_whole_one() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(go()).await.collect().await;
    let fetched = app.get(&path(&stream.id)).await;
    assert_eq!(fetched.content(), stream.text);
    let fetched = fetched.completion();
    assert_eq!(fetched["session_id"].as_str(), stream.session_id());
    assert_eq!(
        comparable(fetched["agent"].clone()),
        comparable(stream.agent().clone())
    );
    let whole = app.post_chat(go()).await.completion();
    assert_eq!(comparable(fetched), comparable(whole));
}

#[tokio::test]
async fn a_run_without_a_record_is_gone_with_its_end() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_before(2, &gate)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(go()).await;
    stream.next_text().await;
    let id = stream.run_id();
    let waiting = app.get(&path(&id)).await;
    assert_eq!(waiting.status, 202, "{}", waiting.text());
    assert_eq!(waiting.json()["session_id"], Value::Null);
    gate.open();
    stream.collect().await;
    none_running(app.client()).await;
    for what in ["", "/messages", "/events"] {
        let answer = app.get(&format!("{}{what}", path(&id))).await;
        answer.assert_error(404, Some("not_found"));
    }
}

#[tokio::test]
async fn the_error_of_a_failed_run_is_its_answer() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]),
        script::error(400, "too warm"),
        calls([("t", json!({}))]),
        script::error(400, "too warm"),
    ])
    .await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let plain = app.post_chat(finishing(in_session("Go", "plain"))).await;
    assert_eq!(plain.status, 400);
    let session = app.get("/v1/sessions/plain").await.json();
    let id = session["last_run"].as_str().unwrap().to_owned();
    let fetched = app.get(&path(&id)).await;
    assert_eq!(
        (fetched.status, fetched.text()),
        (plain.status, plain.text())
    );
    // Streamed, the status has been 200 already; the stored one is the error's own.
    let stream = app
        .stream_chat(finishing(in_session("Go", "streamed")))
        .await;
    let id = stream.run_id();
    let (stream, problems) = stream.collect_with_problems().await;
    assert!(
        problems.is_empty() && stream.error.is_some(),
        "{problems:?}"
    );
    let fetched = ended(app.client(), &id).await;
    assert_eq!(fetched.status, 400);
    assert!(fetched.text().contains("too warm"), "{}", fetched.text());
}

#[tokio::test]
async fn a_run_that_the_end_of_the_process_broke_off_is_gone_for_good() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Let me see.", [("t", json!({"n": 1}))]),
        text("one two").hang_after(2),
        text("Hello."),
    ])
    .await;
    let hook = hook().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(finishing(in_session("Go", "s"))).await;
    let id = stream.run_id();
    stream.next_progress(TOOL_PROGRESS, "complete").await;
    stream.next_text().await;
    // The finished round is written while the model answers.
    history_of(app.client(), "s", 3).await;
    app.kill9().await;
    drop(stream);
    app.restart().await;
    app.get(&path(&id))
        .await
        .assert_error(410, Some("run_interrupted"));
    assert_eq!(cancel(app.client(), &id, "abort").await.status, 409);
    // The session has what was done.
    let messages = history(app.client(), "s").await;
    assert_eq!(roles(&messages), ["user", "assistant", "tool"]);
    assert_eq!(content(&messages[2]), "r");
    assert_eq!(running(app.client()).await, 0);
    assert_eq!(
        app.get("/v1/sessions/s").await.json()["running"],
        Value::Null
    );
    assert_eq!(
        app.post_chat(in_session("More", "s")).await.content(),
        "Hello."
    );
}

#[tokio::test]
async fn the_messages_of_an_answer_are_listed() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(finishing(go())).await.completion();
    let id = answer["id"].as_str().unwrap();
    let list = app.get(&format!("{}/messages", path(id))).await;
    assert_eq!(list.status, 200, "{}", list.text());
    let list = list.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["has_more"], false);
    let data = list["data"].as_array().unwrap();
    assert!(
        !data.is_empty() && data.iter().all(|message| message["id"].is_string()),
        "{list}"
    );
    assert_eq!(
        (&data[0]["role"], &data[0]["content"]),
        (&json!("user"), &json!("Go"))
    );
}

#[tokio::test]
async fn a_deleted_answer_is_gone_and_its_session_stays() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    let answer = client.post_chat(in_session("Go", "s")).await.completion();
    let id = answer["id"].as_str().unwrap();
    let deleted = app.client().delete(&path(id)).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(
        deleted.json(),
        json!({"id": id, "object": "chat.completion.deleted", "deleted": true})
    );
    for what in ["", "/messages", "/events"] {
        let answer = app.get(&format!("{}{what}", path(id))).await;
        answer.assert_error(404, Some("not_found"));
    }
    let again = app.client().delete(&path(id)).await;
    again.assert_error(404, Some("not_found"));
    assert_eq!(history(app.client(), "s").await.len(), 4);
}

#[tokio::test]
async fn a_run_of_another_key_does_not_exist() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let gate = Gate::new();
    let held = gate.clone();
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held));
    let app = keyed(&upstream, &hook).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let stream = alice.stream_chat(finishing(in_session("Go", "s"))).await;
    let id = stream.run_id();
    hook.called(1).await;
    // While it runs, and afterwards.
    for runs in [true, false] {
        for id in [id.as_str(), "chatcmpl-0123456789abcdef0123456789abcdef"] {
            for what in ["", "/messages", "/events"] {
                let answer = bob.get(&format!("{}{what}", path(id))).await;
                answer.assert_error(404, Some("not_found"));
            }
            cancel(&bob, id, "abort")
                .await
                .assert_error(404, Some("not_found"));
            bob.delete(&path(id))
                .await
                .assert_error(404, Some("not_found"));
        }
        let cancelled = bob.post("/v1/sessions/s/cancel", &json!({})).await;
        cancelled.assert_error(404, Some("not_found"));
        assert_eq!(app.get(&path(&id)).await.status, 401);
        let own = alice.get(&path(&id)).await.status;
        assert_eq!(own, if runs { 202 } else { 200 });
        if runs {
            gate.open();
            ended(&alice, &id).await.completion();
        }
    }
    assert!(
        stream.collect().await.error.is_none(),
        "nobody else has stopped it"
    );
}

#[tokio::test]
async fn ids_that_are_none_lead_nowhere_and_are_never_forwarded() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let long = "x".repeat(300);
    for id in ["chatcmpl-", "gen-1", "'", long.as_str()] {
        for what in ["", "/messages", "/events?after=0"] {
            let answer = app.get(&format!("{}{what}", path(id))).await;
            assert_eq!(answer.status, 404, "{id}{what}: {}", answer.text());
        }
        assert_eq!(cancel(app.client(), id, "abort").await.status, 404, "{id}");
        assert_eq!(app.client().delete(&path(id)).await.status, 404, "{id}");
    }
    for id in ["..%2F..", "chatcmpl-a%00b"] {
        let answer = app.get(&path(id)).await;
        assert!(answer.status.is_client_error(), "{id}: {}", answer.text());
    }
    assert!(upstream.others().is_empty(), "nothing was forwarded");
}
