//! Tests of compressed answers.

use async_compression::tokio::write::{GzipEncoder, ZlibEncoder};
use tokio::io::AsyncWriteExt;

use super::*;

/// More bytes than are read of an answer.
const TOO_MUCH: usize = (16 << 20) + 1;

async fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzipEncoder::new(Vec::new());
    encoder.write_all(body).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

async fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new());
    encoder.write_all(body).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

#[tokio::test]
async fn compressed_answers_are_read() {
    for kind in ProviderKind::ALL {
        let body = good(kind).as_bytes();
        let (plain, _) = outcome(kind, [FakeReply::good(good(kind))]).await;
        let plain = plain.unwrap();
        assert!(!plain.is_empty());
        for (encoding, body) in [("gzip", gzip(body).await), ("deflate", deflate(body).await)] {
            let reply = FakeReply::Encoded(200, encoding, body);
            assert_eq!(
                outcome(kind, [reply]).await,
                (Ok(plain.clone()), 1),
                "{kind:?} {encoding}"
            );
        }
    }
}

#[tokio::test]
async fn compressed_error_answers_are_read() {
    let body = gzip(fixture!("brave_quota.json").as_bytes()).await;
    let reply = FakeReply::Encoded(429, "gzip", body);
    let refused = outcome(ProviderKind::Brave, [reply]).await;
    assert_eq!(refused, (Err(ProviderProblem::Quota), 1));
}

#[tokio::test]
async fn a_small_answer_that_becomes_a_large_one_is_too_large() {
    let bomb = vec![b' '; 256 << 20];
    let bomb = gzip(&bomb).await;
    assert!(bomb.len() < 1 << 20);
    let reply = FakeReply::Encoded(200, "gzip", bomb);
    let refused = outcome(ProviderKind::SearXng, [reply]).await;
    assert_eq!(refused, (Err(ProviderProblem::TooLarge(16 << 20)), 1));
}

#[tokio::test]
async fn bytes_as_sent_are_limited_even_without_content() {
    let mut empty = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    empty.extend(b"\0\0\0\xff\xff".repeat(TOO_MUCH / 5 + 1));
    let reply = FakeReply::Encoded(200, "gzip", empty);
    let refused = outcome(ProviderKind::SearXng, [reply]).await;
    assert_eq!(refused, (Err(ProviderProblem::TooLarge(16 << 20)), 1));
}

#[tokio::test]
async fn a_truncated_answer_is_requested_again_and_not_used() {
    let kind = ProviderKind::SearXng;
    let whole = gzip(good(kind).as_bytes()).await;
    for cut in [0, 5, whole.len() / 2, whole.len() - 1] {
        let part = || FakeReply::Encoded(200, "gzip", whole[..cut].to_vec());
        let (problem, requests) = outcome(kind, [part(), part()]).await;
        assert!(
            matches!(
                problem,
                Err(ProviderProblem::Broken { .. } | ProviderProblem::Malformed(_))
            ),
            "{cut}: {problem:?}"
        );
        assert!(requests == 2 || cut == 0, "{cut}: {requests}");
        let (answer, _) = outcome(
            kind,
            [part(), FakeReply::Encoded(200, "gzip", whole.clone())],
        )
        .await;
        assert!(answer.is_ok() || cut == 0, "{cut}");
    }
}
