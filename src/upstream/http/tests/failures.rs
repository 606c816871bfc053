//! Time-outs, connection errors, error statuses and redirects.

use super::*;
use crate::MAX_ERROR_BODY_BYTES;

#[tokio::test]
async fn every_phase_has_a_time_out() {
    let short = Duration::from_millis(40);
    let phase_of = |failure: Option<UpstreamError>| match failure {
        Some(UpstreamError::Timeout { phase, limit, .. }) => {
            assert_eq!(limit, short);
            phase
        }
        other => panic!("{other:?}"),
    };
    let server = Server::start(vec![Step::Hang]).await;
    let mut settings = server.settings();
    settings.first_byte_timeout = short;
    let (_, failure) = collect(&HttpUpstream::new(settings).unwrap()).await;
    assert_eq!(phase_of(failure), "first byte");

    let head_and_piece = send(&answer(SSE_HEAD, A));
    let server = Server::start(vec![head_and_piece.clone(), Step::Hang]).await;
    let mut settings = server.settings();
    settings.idle_timeout = short;
    let upstream = HttpUpstream::new(settings.clone()).unwrap();
    let (events, failure) = collect(&upstream).await;
    assert_eq!(events, [text("a")]);
    assert_eq!(phase_of(failure), "next chunk");
    let passed = upstream.forward(get("/x")).await.unwrap();
    let pieces: Vec<_> = passed.body.collect().await;
    assert_eq!(pieces.len(), 2);
    assert_eq!(
        phase_of(pieces.into_iter().find_map(Result::err)),
        "next chunk"
    );

    let server = Server::start(vec![send(&answer(SSE_HEAD, A)), send(END), Step::Hang]).await;
    settings.base_url = server.base.clone();
    let (events, failure) = collect(&HttpUpstream::new(settings).unwrap()).await;
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(events, [text("a"), STOP]);
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_a_connect_time_out() {
    let server = Server::start(vec![Step::Hang]).await;
    let mut settings = server.settings();
    settings.base_url.set_scheme("https").unwrap();
    settings.connect_timeout = Duration::from_millis(40);
    let upstream = HttpUpstream::new(settings).unwrap();
    let (_, failure) = collect(&upstream).await;
    assert!(
        matches!(failure, Some(UpstreamError::Timeout { phase, .. }) if phase == "connect"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn the_error_of_a_refused_connection_has_no_address() {
    let server = Server::start(Vec::new()).await;
    let upstream = server.upstream();
    let address = server.base.authority().to_owned();
    drop(server);
    // The port may only be free once the server's task is gone.
    tokio::task::yield_now().await;
    let (_, failure) = collect(&upstream).await;
    let error = failure.unwrap();
    assert!(matches!(error, UpstreamError::Connect { .. }), "{error:?}");
    assert!(!error.to_string().contains(&address));
}

#[tokio::test]
async fn an_error_status_comes_with_its_headers_and_body() {
    let head = "429 Too Many Requests\r\nretry-after: 7\r\nconnection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: 1";
    let server = Server::answering(head, "slow down").await;
    let (_, failure) = collect(&server.upstream()).await;
    let Some(UpstreamError::Status {
        status,
        headers,
        body,
        ..
    }) = failure
    else {
        panic!("{failure:?}");
    };
    assert_eq!((status.as_u16(), &body[..]), (429, &b"slow down"[..]));
    assert_eq!(headers.len(), 1);
    assert_eq!(headers["retry-after"], "7");

    let size = MAX_ERROR_BODY_BYTES + 10;
    let head = format!("500 Oops\r\nconnection: close\r\ncontent-length: {size}");
    let server = Server::answering(&head, &"x".repeat(size)).await;
    match collect(&server.upstream()).await.1 {
        Some(UpstreamError::Status { headers, body, .. }) => {
            assert_eq!(body.len(), MAX_ERROR_BODY_BYTES);
            assert!(headers.is_empty(), "{headers:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let head = "302 Found\r\nlocation: /v1/elsewhere\r\ncontent-length: 0";
    let mut server = Server::answering(head, "").await;
    let upstream = server.upstream();
    let (_, failure) = collect(&upstream).await;
    assert!(
        matches!(&failure, Some(UpstreamError::Malformed { reason, retryable: false, .. }) if reason.contains("302")),
        "{failure:?}"
    );
    let passed = upstream.forward(get("/x")).await.unwrap();
    assert_eq!(passed.status.as_u16(), 302);
    assert_eq!(passed.headers["location"], "/v1/elsewhere");
    server.request();
    server.request();
    assert!(server.requests.try_recv().is_err());
}
