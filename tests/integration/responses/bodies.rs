//! Bodies that are compressed.

use async_compression::tokio::write::{GzipEncoder, ZstdEncoder};
use http::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::super::support::app::TestApp;
use super::super::support::ask::ask;
use super::super::support::client::Answer;
use super::super::support::script::text;
use super::super::support::upstream::ScriptedUpstream;
use super::{PATH, request, response, text_of};

pub(super) async fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzipEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

async fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZstdEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

async fn post(app: &TestApp, path: &str, encoding: &str, body: Vec<u8>) -> Answer {
    let request = app
        .client()
        .request(Method::POST, path)
        .header("content-type", "application/json")
        .header("content-encoding", encoding)
        .body(body);
    Answer::of(request).await
}

#[tokio::test]
async fn compressed_bodies_are_decoded() {
    let upstream = ScriptedUpstream::start(["One.", "Two.", "Three."].map(text)).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = request(json!("Hi")).to_string();
    let made = post(&app, PATH, "gzip", gzip(body.as_bytes()).await).await;
    assert_eq!(text_of(&response(&made)["output"][0]), "One.");
    let made = post(&app, PATH, "zstd", zstd(body.as_bytes()).await).await;
    assert_eq!(text_of(&response(&made)["output"][0]), "Two.");
    // A request that passes through reaches the model server decoded.
    let chat = ask("Hi").to_string();
    let made = post(
        &app,
        "/v1/chat/completions",
        "zstd",
        zstd(chat.as_bytes()).await,
    )
    .await;
    assert_eq!(made.content(), "Three.");
    assert_eq!(upstream.last().header("content-encoding"), None);
}

#[tokio::test]
async fn other_encodings_and_large_bodies_are_refused() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("max_body_bytes = \"64KiB\"")
        .start()
        .await;
    let body = request(json!("Hi")).to_string().into_bytes();
    for encoding in ["br", "gzip, gzip", "zstd, gzip"] {
        let answer = post(&app, PATH, encoding, body.clone()).await;
        answer.assert_error(415, Some("unsupported_encoding"));
    }
    let bomb = request(json!("x".repeat(1024 * 1024))).to_string();
    let answer = post(&app, PATH, "gzip", gzip(bomb.as_bytes()).await).await;
    answer.assert_error(413, Some("request_too_large"));
    let answer = post(&app, PATH, "gzip", body).await;
    answer.assert_error(400, None);
}
