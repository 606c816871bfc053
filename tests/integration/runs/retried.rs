//! A retry with an `idempotency-key` after kill -9: the run is continued, and nothing in it runs again.

use super::*;

/// A model that calls `t` with 1 and 2, one after the other, and then has an answer.
fn two_rounds(request: &Recorded) -> Reply {
    match request.tool_results().len() {
        0 => text_and_calls("First.", [("t", json!({"n": 1}))]),
        1 => text_and_calls("Second.", [("t", json!({"n": 2}))]),
        _ => text("It is done."),
    }
}

/// A tool that answers the first call and lets the second one hang.
async fn stuck_tool() -> Webhook {
    Webhook::start()
        .await
        .on_call("t", |call| match call.arguments()["n"] == 1 {
            true => webhook::text("one"),
            false => webhook::hang(),
        })
}

#[tokio::test]
async fn completed_rounds_stay_and_the_unfinished_call_is_not_run_again() {
    for (body, streamed) in [
        (in_session("Go", "s"), false),
        (in_session("Go", "s"), true),
        (go(), false),
        (go(), true),
    ] {
        let upstream = ScriptedUpstream::answering(two_rounds).await;
        let hook = stuck_tool().await;
        let mut app = TestApp::with_tools(&upstream, &hook).await;
        let body = with(body, "stream", json!(streamed));
        let client = app.client().header("idempotency-key", "k");
        let request = client
            .request(http::Method::POST, "/v1/chat/completions")
            .header("content-type", "application/json")
            .body(body.to_string());
        let first = tokio::spawn(request.send());
        hook.called(2).await;
        app.kill9().await;
        first.abort();
        app.restart().await;
        let client = app.client().header("idempotency-key", "k");
        let text = match streamed {
            false => client.post_chat(body.clone()).await.content(),
            true => client.stream_chat(body.clone()).await.collect().await.text,
        };
        assert!(text.ends_with("It is done."), "{text}");
        assert_eq!(hook.calls().len(), 2, "each call once");
        assert_eq!(
            upstream.requests().len(),
            3,
            "the first rounds were not asked for again"
        );
        let sent = upstream.last();
        assert_eq!(
            sent.roles(),
            ["user", "assistant", "tool", "assistant", "tool"]
        );
        let told = sent.tool_results();
        assert_eq!(told[0].1, "one");
        assert!(told[1].1.to_lowercase().contains("interrupted"), "{told:?}");
        assert!(told[1].1.contains("may have taken effect"), "{told:?}");
        // From now on it is an answer like any other.
        let again = client.post_chat(body).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!((hook.calls().len(), upstream.requests().len()), (2, 3));
    }
}

#[tokio::test]
async fn a_run_that_had_done_nothing_begins_anew() {
    let mut first = true;
    let upstream =
        ScriptedUpstream::answering(move |_| match std::mem::replace(&mut first, false) {
            true => script::hang(),
            false => text("Hello."),
        })
        .await;
    let hook = Webhook::start().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let client = app.client().header("idempotency-key", "k");
    let request = client
        .request(http::Method::POST, "/v1/chat/completions")
        .header("content-type", "application/json")
        .body(in_session("Go", "s").to_string());
    let sent = tokio::spawn(request.send());
    upstream.called(1).await;
    app.kill9().await;
    sent.abort();
    app.restart().await;
    let client = app.client().header("idempotency-key", "k");
    assert_eq!(
        client.post_chat(in_session("Go", "s")).await.content(),
        "Hello."
    );
    assert_eq!(upstream.last().roles(), ["user"], "the question once");
    assert_eq!(
        roles(&history(app.client(), "s").await),
        ["user", "assistant"]
    );
}

#[tokio::test]
async fn another_body_cannot_continue_it() {
    let upstream = ScriptedUpstream::answering(two_rounds).await;
    let hook = stuck_tool().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app
        .client()
        .header("idempotency-key", "k")
        .stream_chat(in_session("Go", "s"))
        .await;
    hook.called(2).await;
    app.kill9().await;
    drop(stream);
    app.restart().await;
    let client = app.client().header("idempotency-key", "k");
    let refused = client.post_chat(in_session("Go", "other")).await;
    refused.assert_error(422, Some("idempotency_key_reused"));
    assert_eq!(upstream.requests().len(), 2);
}
