//! Forwarded requests and their responses.

use futures_util::TryStreamExt;
use secrecy::SecretString;

use super::*;

#[tokio::test]
async fn a_forwarded_request_and_its_response_are_not_changed() {
    let body = [&[0_u8, 255, 13, 10, 0][..], &b"{ \"a\" : 1.0 }"[..]].concat();
    let head = format!(
        "HTTP/1.1 418 Teapot\r\ncontent-type: x/y\r\ncontent-encoding: gzip\r\nset-cookie: a\r\nset-cookie: b\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut server = Server::start(vec![send(&head), Step::Send(body.clone())]).await;
    let mut settings = server.settings();
    settings.api_key = Some(SecretString::from("own"));
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("host", "me"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("content-length", "999"),
        ("authorization", "Bearer client"),
        ("content-type", "multipart/form-data; boundary=x"),
        ("accept-encoding", "br"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let sent = "a b\r\n{\"z\":1}";
    let request = ForwardRequest {
        method: Method::PUT,
        path_and_query: "/embeddings/a%20b?x=1&y=%2F".into(),
        headers,
        body: ForwardBody::Full(sent.into()),
    };
    let upstream = HttpUpstream::new(settings).unwrap();
    let answer = upstream.forward(request).await.unwrap();
    assert_eq!(answer.status.as_u16(), 418);
    assert_eq!(answer.headers["content-length"], body.len().to_string());
    assert_eq!(answer.headers["content-encoding"], "gzip");
    assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 2);
    assert!(!answer.headers.contains_key("connection"));
    let got: Vec<Bytes> = answer.body.try_collect().await.unwrap();
    assert_eq!(got.concat(), body);

    let (head, got) = server.request();
    assert_eq!(got, sent);
    assert!(head.starts_with("PUT /v1/embeddings/a%20b?x=1&y=%2F HTTP/1.1\r\n"));
    assert!(head.contains(&format!("host: {}", server.base.authority())));
    assert!(head.contains(&format!("content-length: {}", sent.len())));
    assert!(head.contains("authorization: Bearer own"));
    assert!(head.contains("accept-encoding: br"));
    assert!(
        !head.contains("x-hop") && !head.contains("client"),
        "{head}"
    );
}

#[tokio::test]
async fn the_response_to_a_head_request_keeps_its_content_length() {
    let server =
        Server::answering("200 OK\r\ncontent-length: 12345\r\nconnection: close", "").await;
    let mut request = get("/x");
    request.method = Method::HEAD;
    let answer = server.upstream().forward(request).await.unwrap();
    assert_eq!(answer.headers["content-length"], "12345");
    assert_eq!(answer.body.count().await, 0);
}

#[tokio::test]
async fn a_streamed_body_is_forwarded_with_its_length() {
    for (length, framing) in [
        (Some(4), "content-length: 4"),
        (None, "transfer-encoding: chunked"),
    ] {
        let mut server = Server::answering("200 OK\r\ncontent-length: 0", "").await;
        let pieces = ["ab", "cd"].map(|piece| Ok(Bytes::from(piece)));
        let request = ForwardRequest {
            method: Method::POST,
            body: ForwardBody::Stream {
                stream: futures_util::stream::iter(pieces).boxed(),
                length,
            },
            ..get("/files")
        };
        server.upstream().forward(request).await.unwrap();
        let (head, body) = server.request();
        assert!(head.contains(framing), "{head}");
        match length {
            Some(_) => assert_eq!(body, "abcd"),
            None => assert_eq!(body, "2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"),
        }
    }
}

#[tokio::test]
async fn a_broken_request_body_and_a_broken_response_are_different_errors() {
    let server = Server::start(vec![Step::Hang]).await;
    let pieces = [Ok(Bytes::from("ab")), Err(std::io::Error::other("gone"))];
    let request = ForwardRequest {
        method: Method::POST,
        body: ForwardBody::Stream {
            stream: futures_util::stream::iter(pieces).boxed(),
            length: None,
        },
        ..get("/files")
    };
    let failure = server.upstream().forward(request).await.unwrap_err();
    assert!(matches!(failure, UpstreamError::RequestBody), "{failure:?}");

    let server = Server::answering("200 OK\r\ncontent-length: 9", "half").await;
    let answer = server.upstream().forward(get("/x")).await.unwrap();
    let pieces: Vec<_> = answer.body.collect().await;
    assert!(matches!(
        pieces.last(),
        Some(Err(UpstreamError::Broken { .. }))
    ));
}

#[tokio::test]
async fn no_path_leads_out_of_the_base_url() {
    let mut server = Server::answering("200 OK\r\ncontent-length: 0", "").await;
    let upstream = server.upstream();
    for path in [
        "/../admin",
        "/%2e%2e/admin",
        "/a/../../admin",
        "/..\\admin",
        "/..",
    ] {
        let failure = upstream.forward(get(path)).await.unwrap_err();
        assert!(
            matches!(&failure, UpstreamError::Status { status, .. } if status.as_u16() == 404),
            "{path}: {failure:?}"
        );
    }
    assert!(server.requests.try_recv().is_err());
    for path in ["//host/x", "/a/../b", "/@host"] {
        let answer = upstream.forward(get(path)).await.unwrap();
        assert_eq!(answer.status.as_u16(), 200, "{path}");
        assert!(server.request().0.starts_with("GET /v1/"), "{path}");
    }
}

#[test]
fn a_base_url_may_have_a_query_or_no_path() {
    for (base, path, expected) in [
        ("http://h/v1", "/x?a=1", "http://h/v1/x?a=1"),
        ("http://h/v1/", "/x", "http://h/v1/x"),
        ("http://h", "/x", "http://h/x"),
        ("http://h/v1?k=2", "/x?a=1", "http://h/v1/x?k=2&a=1"),
        ("http://h/v1?k=2", "x", "http://h/v1/x?k=2"),
    ] {
        let url = join_url(&base.parse().unwrap(), path).unwrap();
        assert_eq!(url.as_str(), expected);
    }
}
