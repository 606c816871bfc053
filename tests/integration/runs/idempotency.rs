//! The header `idempotency-key`: a request that is sent again is the same run.

use http::header::HeaderValue;

use super::*;

/// A model that calls `t` once, and a tool that answers when the gate lets it.
async fn gated() -> (ScriptedUpstream, Webhook, Gate) {
    let gate = Gate::new();
    let held = gate.clone();
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held));
    (upstream, hook, gate)
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

#[tokio::test]
async fn a_plain_request_that_comes_again_while_the_first_runs_gets_its_answer() {
    let (upstream, hook, gate) = gated().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    let send = || {
        let client = client.clone();
        tokio::spawn(async move { client.post_chat(go()).await })
    };
    let first = send();
    hook.called(1).await;
    let again = [send(), send()];
    gate.open();
    let first = first.await.unwrap();
    let body = first.completion();
    assert!(!replayed(&first));
    for again in again {
        assert_eq!(again.await.unwrap().completion(), body);
    }
    assert_eq!(
        (hook.calls().len(), upstream.requests().len()),
        (1, 2),
        "one effect, one turn"
    );
    none_running(app.client()).await;
}

#[tokio::test]
async fn a_stream_that_comes_again_while_the_first_runs_begins_at_its_first_event() {
    let (upstream, hook, gate) = gated().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    let first = client.stream_chat(go()).await;
    hook.called(1).await;
    let second = client.stream_chat(go()).await;
    assert_eq!(second.run_id(), first.run_id());
    assert!(
        !second.headers().contains_key("idempotency-replayed"),
        "it is not over yet"
    );
    assert_eq!(running(app.client()).await, 1);
    gate.open();
    let (first, second) = tokio::join!(first.collect(), second.collect());
    assert_eq!(first.data(), second.data());
    assert_eq!((hook.calls().len(), upstream.requests().len()), (1, 2));
}

#[tokio::test]
async fn afterwards_the_stored_answer_comes_even_after_a_restart() {
    let (upstream, hook, gate) = gated().await;
    gate.open();
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    // Named, and nameless.
    for (key, body) in [("k-1", in_session("Go", "s")), ("k-2", go())] {
        let first = app
            .client()
            .header("idempotency-key", key)
            .post_chat(body.clone())
            .await;
        assert!(!replayed(&first));
        let effects = (hook.calls().len(), upstream.requests().len());
        for restarted in [false, true] {
            if restarted {
                app.restart().await;
            }
            let client = app.client().header("idempotency-key", key);
            let again = client.post_chat(body.clone()).await;
            assert!(replayed(&again), "{key}, restarted: {restarted}");
            assert_eq!(again.completion(), first.completion());
        }
        assert_eq!((hook.calls().len(), upstream.requests().len()), effects);
    }
    assert_eq!(
        history(app.client(), "s").await.len(),
        4,
        "nothing was added twice"
    );
}

#[tokio::test]
async fn a_stream_comes_again_from_the_log_and_after_a_restart_as_a_short_one() {
    let (upstream, hook, gate) = gated().await;
    gate.open();
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    let first = client.stream_chat(go()).await;
    assert!(!first.headers().contains_key("idempotency-replayed"));
    let first = first.collect().await;
    let again = client.stream_chat(go()).await;
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(again.run_id(), first.id);
    assert_eq!(again.collect().await.data(), first.data());
    app.restart().await;
    let client = app.client().header("idempotency-key", "k");
    let short = client.stream_chat(go()).await;
    assert_eq!(short.headers()["idempotency-replayed"], "true");
    let short = short.collect().await;
    assert_eq!((&short.id, &short.text), (&first.id, &first.text));
    assert_eq!(short.finish_reason(), "stop");
    assert_eq!(short.session_id(), first.session_id());
    assert_eq!(short.agent()["stop_reason"], "completed");
    assert_eq!(
        short.data().len(),
        4,
        "role, text, finish, [DONE]: {}",
        short.transcript()
    );
    assert_eq!((hook.calls().len(), upstream.requests().len()), (1, 2));
}

#[tokio::test]
async fn a_client_that_left_gets_its_answer_with_the_same_key() {
    for streamed in [false, true] {
        let (upstream, hook, gate) = gated().await;
        let app = TestApp::with_tools(&upstream, &hook).await;
        let client = app.client().header("idempotency-key", "k");
        let body = with(go(), "stream", json!(streamed));
        let first = tokio::spawn({
            let (client, body) = (client.clone(), body.clone());
            async move {
                let answer = client.post_chat(body).await;
                answer.status
            }
        });
        hook.called(1).await;
        let descriptors = app.descriptors();
        first.abort();
        eventually("the first connection closed", || async {
            (app.descriptors() < descriptors).then_some(())
        })
        .await;
        gate.open();
        let text = match streamed {
            false => client.post_chat(body).await.content(),
            true => client.stream_chat(body).await.collect().await.text,
        };
        assert_eq!(text, "Let me see.\n\nIt is done.");
        assert_eq!(
            (hook.calls().len(), upstream.requests().len()),
            (1, 2),
            "streamed: {streamed}"
        );
    }
}

#[tokio::test]
async fn a_request_may_still_ask_to_be_cancelled_with_its_client() {
    let upstream = ScriptedUpstream::start([text("one two").hang_after(2)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    let body = agent(go(), json!({"on_disconnect": "cancel"}));
    let mut stream = client.stream_chat(body).await;
    stream.next_text().await;
    drop(stream);
    upstream.dropped(0).await;
    none_running(app.client()).await;
}

#[tokio::test]
async fn another_body_under_the_same_key_is_refused_while_it_runs_and_afterwards() {
    let (upstream, hook, gate) = gated().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    let stream = client.stream_chat(go()).await;
    hook.called(1).await;
    let other = ask_with("Go on", ["t"]);
    // The bytes count: the same question that is not to be streamed is another request.
    let bodies = [other, go()];
    for body in &bodies {
        let refused = client.post_chat(body.clone()).await;
        refused.assert_error(422, Some("idempotency_key_reused"));
    }
    gate.open();
    stream.collect().await;
    for body in &bodies {
        let refused = client.post_chat(body.clone()).await;
        refused.assert_error(422, Some("idempotency_key_reused"));
    }
    assert_eq!((hook.calls().len(), upstream.requests().len()), (1, 2));
}

#[tokio::test]
async fn a_key_is_short_visible_ascii() {
    let upstream = ScriptedUpstream::answering(|_| text("x")).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let send = |key: &[u8]| {
        let request = app
            .client()
            .request(http::Method::POST, "/v1/chat/completions");
        let request = request.header("content-type", "application/json");
        let request = request.header("idempotency-key", HeaderValue::from_bytes(key).unwrap());
        Answer::of(request.body(go().to_string()))
    };
    let long = "k".repeat(256);
    let refused: [&[u8]; 5] = [
        long.as_bytes(),
        "schlüssel".as_bytes(),
        b"",
        b"two words",
        b"\xff",
    ];
    for key in refused {
        let answer = send(key).await;
        assert_eq!(answer.status, 400, "{key:?}: {}", answer.text());
        answer.assert_error(400, None);
    }
    assert!(upstream.requests().is_empty());
    let taken: [&[u8]; 3] = [&long.as_bytes()[..255], b"k", b"~!{}\"'"];
    for key in taken {
        send(key).await.completion();
    }
}

#[tokio::test]
async fn every_api_key_has_keys_of_its_own() {
    let (upstream, hook, gate) = gated().await;
    gate.open();
    let app = keyed(&upstream, &hook).await;
    let with_key = |key: &str| app.client().key(key).header("idempotency-key", "k");
    let alice = with_key(ALICE).post_chat(go()).await;
    // Not even whether the key was used can be seen.
    let bob = with_key(BOB).post_chat(ask_with("Other", ["t"])).await;
    assert!(!replayed(&bob));
    assert_ne!(alice.completion()["id"], bob.completion()["id"]);
    assert_eq!(hook.calls().len(), 2);
}

#[tokio::test]
async fn an_error_before_any_server_side_call_is_not_kept() {
    for streamed in [false, true] {
        let upstream = ScriptedUpstream::start([script::error(400, "no"), text("Hello.")]).await;
        let hook = Webhook::start().await;
        let app = TestApp::with_tools(&upstream, &hook).await;
        let client = app.client().header("idempotency-key", "k");
        let body = with(go(), "stream", json!(streamed));
        assert_eq!(client.post_chat(body.clone()).await.status, 400);
        // Anew, under the same key.
        let again = client.post_chat(body.clone()).await;
        assert_eq!(again.status, 200, "{}", again.text());
        assert!(!replayed(&again));
        let third = client.post_chat(body).await;
        assert!(replayed(&third));
        assert_eq!(upstream.requests().len(), 2);
    }
}

#[tokio::test]
async fn an_error_after_a_server_side_call_is_the_answer() {
    let upstream =
        ScriptedUpstream::start([calls([("t", json!({}))]), script::error(400, "no")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    let first = client.post_chat(go()).await;
    assert_eq!(first.status, 400);
    assert_eq!(
        first.header("x-should-retry"),
        None,
        "asking again does no harm"
    );
    for restarted in [false, true] {
        if restarted {
            app.restart().await;
        }
        let again = app
            .client()
            .header("idempotency-key", "k")
            .post_chat(go())
            .await;
        assert!(
            replayed(&again),
            "{restarted}: {} {}",
            again.status,
            again.text()
        );
        assert_eq!((again.status, again.text()), (first.status, first.text()));
    }
    assert_eq!((hook.calls().len(), upstream.requests().len()), (1, 2));
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_answered_again_until_the_process_ends() {
    let (upstream, hook, gate) = gated().await;
    gate.open();
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(go(), "store", json!(false));
    let first = app
        .client()
        .header("idempotency-key", "k")
        .post_chat(body.clone())
        .await;
    let again = app
        .client()
        .header("idempotency-key", "k")
        .post_chat(body.clone())
        .await;
    assert!(replayed(&again));
    assert_eq!(first.completion(), again.completion());
    assert_eq!(hook.calls().len(), 1);
    app.restart().await;
    let anew = app
        .client()
        .header("idempotency-key", "k")
        .post_chat(body)
        .await;
    assert!(!replayed(&anew));
    assert_eq!(hook.calls().len(), 2);
}

#[tokio::test]
async fn the_key_of_a_forwarded_request_goes_to_the_upstream() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    for _ in 0..2 {
        let passed = client.post_chat(ask("Go")).await;
        assert_eq!(passed.status, 200);
        assert!(!replayed(&passed), "that is the upstream's business");
        assert_eq!(upstream.last().header("idempotency-key"), Some("k"));
    }
    client
        .post("/v1/embeddings", &json!({"model": MODEL, "input": "x"}))
        .await;
    let other = upstream.others().pop().unwrap();
    assert_eq!(other.header("idempotency-key"), Some("k"));
    // A turn of the loop is several model calls, none of which is the client's request.
    client.post_chat(go()).await.completion();
    let calls = upstream.requests();
    assert!(
        calls[2..]
            .iter()
            .all(|call| call.header("idempotency-key").is_none())
    );
    assert_ne!(hook.call(0).header("idempotency-key"), Some("k"));
}
