//! Pass-through: bytes in, bytes out, both ways, for chat requests that no tool can touch and for every other endpoint.

mod arbitrary;

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::support::app::TestApp;
use super::support::ask::{ask, with};
use super::support::client::Answer;
use super::support::script::{self, text};
use super::support::server::Gate;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::Webhook;

/// A body that nothing but pass-through keeps as it is.
const ODD: &str = "{ \"model\":\"scripted-model\",\r\n \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e4 \u{2028}\"}],\"temperature\":1.0e0, \"x\":[ ] , \"x\":1 }";

async fn post(app: &TestApp, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = app
        .client()
        .request(Method::POST, path)
        .header("content-type", kind);
    Answer::of(request.body(body)).await
}

#[tokio::test]
async fn a_chat_request_goes_byte_for_byte_and_comes_back_so() {
    let odd_answer = "{ \"odd\" :1.0,\n\"id\":\"x\" }";
    let upstream = ScriptedUpstream::start([script::status(
        200,
        &[
            ("x-request-id", "upstreams-own"),
            ("x-ratelimit-remaining", "5"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
        ],
        odd_answer,
    )])
    .await
    .lenient();
    let app = TestApp::with_upstream(&upstream).await;
    let answer = post(
        &app,
        "/v1/chat/completions?a=b%20c",
        "application/json",
        ODD,
    )
    .await;
    assert_eq!(answer.text(), odd_answer);
    assert_eq!(answer.header("x-request-id"), Some("upstreams-own"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("5"));
    assert!(answer.header("x-hop").is_none() && answer.header("x-session-id").is_none());
    let seen = upstream.last();
    assert_eq!(seen.bytes, ODD.as_bytes());
    assert_eq!(seen.path, "/v1/chat/completions?a=b%20c");
}

#[tokio::test]
async fn a_stream_is_the_upstreams_byte_for_byte_and_frame_by_frame() {
    let gate = Gate::new();
    let frames = [
        "data: {\"odd\":1}\r\n\r\n",
        ": comment\n\n",
        "event: x\ndata: y\n\n",
        "data: [DONE]\n\n",
    ];
    let upstream = ScriptedUpstream::start([script::raw_sse(frames).gate(&gate)]).await;
    let app = TestApp::with_upstream(&upstream).await;
    gate.release(1);
    let request = app
        .client()
        .request(Method::POST, "/v1/chat/completions")
        .header("content-type", "application/json");
    let body = with(ask("x"), "stream", json!(true)).to_string();
    let mut response = request.body(body).send().await.unwrap();
    assert_eq!(
        response.headers()["content-type"],
        "text/event-stream; charset=utf-8"
    );
    let mut got = Vec::new();
    for expected in frames {
        let mut frame = Vec::new();
        while frame.len() < expected.len() {
            frame.extend_from_slice(
                &super::support::within("a frame", response.chunk())
                    .await
                    .unwrap()
                    .unwrap(),
            );
        }
        assert_eq!(
            frame,
            expected.as_bytes(),
            "before the next one is released"
        );
        got.extend(frame);
        gate.release(1);
    }
    assert_eq!(got, frames.concat().as_bytes());
}

#[tokio::test]
async fn a_broken_stream_is_broken_off() {
    let upstream = ScriptedUpstream::start([text("one two three").cut_after(2)]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let (bytes, error) = app.stream_chat(ask("x")).await.raw().await;
    assert!(String::from_utf8_lossy(&bytes).contains("one "));
    assert!(error.is_some(), "no clean end");
    assert!(!String::from_utf8_lossy(&bytes).contains("[DONE]"));
}

#[tokio::test]
async fn openai_fields_do_not_end_pass_through() {
    let upstream = ScriptedUpstream::start([text("x"), text("x")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = with(
        with(
            with(ask("x"), "store", json!(true)),
            "max_tool_calls",
            json!(3),
        ),
        "n",
        json!(2),
    );
    let client = app.client().header("idempotency-key", "k");
    client.post_chat(body.clone()).await;
    assert_eq!(upstream.last().bytes, body.to_string());
    assert_eq!(upstream.last().header("idempotency-key"), Some("k"));
    // Tools that only the client can run.
    let body = with(
        ask("x"),
        "tools",
        json!([super::support::ask::tool("mine")]),
    );
    app.post_chat(body.clone()).await;
    assert_eq!(upstream.last().bytes, body.to_string());
}

#[tokio::test]
async fn other_endpoints_are_forwarded_with_any_body_and_method() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let binary: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for (path, kind) in [
        ("/v1/embeddings", "application/json"),
        (
            "/v1/audio/transcriptions",
            "multipart/form-data; boundary=abc",
        ),
        ("/v1/rerank?x=1", "application/octet-stream"),
    ] {
        let answer = post(&app, path, kind, binary.clone()).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, Bytes::from(binary.clone()), "{path}");
        assert_eq!(answer.header("content-type"), Some(kind));
        assert_eq!(answer.header("x-echo-path"), Some(path));
        assert_eq!(answer.header("x-request-id"), Some("echo-request"));
    }
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH] {
        let answer = Answer::of(app.client().request(method.clone(), "/v1/batches/b_1")).await;
        assert_eq!(answer.header("x-echo-method"), Some(method.as_str()));
    }
}

#[tokio::test]
async fn percent_encoded_segments_go_on_byte_for_byte() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    for path in [
        "/v1/fine_tuning/jobs/ft%3Aabc%2Bd/cancel?x=%2F..",
        "/v1/x/%e2%82%ac%20",
        "/v1/x/%2520%25",
    ] {
        assert_eq!(app.get(path).await.header("x-echo-path"), Some(path));
    }
}

#[tokio::test]
async fn a_model_is_deleted_where_it_lives() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let path = "/v1/models/ft%3Aabc";
    let answer = app.client().delete(path).await;
    assert_eq!(answer.header("x-echo-method"), Some("DELETE"));
    assert_eq!(answer.header("x-echo-path"), Some(path));
    assert!(answer.header("allow").is_none(), "not ours to say");
}

#[tokio::test]
async fn session_ids_stay_here() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder
        .toml("session_headers = [\"x-chat-id\"]")
        .start()
        .await;
    let client = ["x-session-id", "x-chat-id", "x-else"]
        .into_iter()
        .fold(app.client().clone(), |client, name| {
            client.header(name, "s")
        });
    client.get("/v1/batches").await;
    client.get("/v1/models").await;
    for seen in upstream.others() {
        assert!(seen.header("x-session-id").is_none() && seen.header("x-chat-id").is_none());
        assert_eq!(seen.header("x-else"), Some("s"));
    }
    assert_eq!(upstream.others().len(), 2);
}

#[tokio::test]
async fn a_body_streams_both_ways_at_once() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|item| (item, receiver))
    });
    let request = app
        .client()
        .request(Method::POST, "/v1/audio/speech")
        .header("content-type", "application/octet-stream");
    let sending = tokio::spawn(request.body(reqwest::Body::wrap_stream(stream)).send());
    sender.send(Ok(Bytes::from_static(b"first"))).await.unwrap();
    let mut response = super::support::within("the head", sending)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        super::support::within("the echo", response.chunk())
            .await
            .unwrap()
            .unwrap(),
        "first"
    );
    sender
        .send(Ok(Bytes::from_static(b"second")))
        .await
        .unwrap();
    assert_eq!(
        super::support::within("the echo", response.chunk())
            .await
            .unwrap()
            .unwrap(),
        "second"
    );
    drop(sender);
    assert!(
        super::support::within("the end", response.chunk())
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_upstreams_work_in_pass_through_too() {
    let upstream = ScriptedUpstream::start([text("one two three").hang_after(2)]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let mut stream = app.stream_chat(ask("x")).await;
    stream.next_text().await;
    drop(stream);
    upstream.dropped(0).await;
}

#[tokio::test]
async fn with_a_dispatch_url_a_request_without_tools_still_passes_through() {
    let upstream = ScriptedUpstream::start([text("x")]).await.lenient();
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    post(&app, "/v1/chat/completions", "application/json", ODD).await;
    assert_eq!(upstream.last().bytes, ODD.as_bytes());
}

#[tokio::test]
async fn a_passed_through_request_is_tried_again_while_nothing_has_been_answered() {
    let busy = || script::error(500, "busy");
    let upstream = ScriptedUpstream::start([
        busy(),
        script::reset(),
        text("Fine."),
        busy(),
        busy(),
        busy(),
    ])
    .await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder
        .toml("[retry]\nmax_attempts = 3\nbase_delay = \"1ms\"")
        .start()
        .await;
    let answer = app.post_chat(ask("x")).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "Fine.");
    let first = upstream.request(0).bytes;
    assert!(
        upstream
            .requests()
            .iter()
            .all(|request| request.bytes == first)
    );
    // Used up: the upstream's own answer, as it came.
    let answer = app.post_chat(ask("x")).await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.json()["error"]["message"], "busy");
    assert_eq!(upstream.remaining(), 0);
}
