//! Responses: results, redirects, size limits, event streams and cancellation.

use super::*;

#[tokio::test]
async fn every_success_status_gives_a_result() {
    for (reply, expected) in [
        (content("a"), "a"),
        (
            Reply::Answer("201 Created", "plain text".into()),
            "plain text",
        ),
        (
            Reply::Answer("202 Accepted\r\ncontent-type: text/plain", "\"q\"".into()),
            "q",
        ),
        (Reply::Answer("200 OK", String::new()), ""),
        (Reply::Raw("HTTP/1.1 204 No Content\r\n\r\n".into()), ""),
        (
            Reply::Raw(format!("HTTP/1.1 {OK}\r\n\r\n{{\"a\": 1}}")),
            r#"{"a": 1}"#,
        ),
    ] {
        assert_eq!(outcome(vec![reply], false).await, (expected.into(), 1));
    }
}

#[tokio::test]
async fn a_redirect_is_an_error_and_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let target = Server::start(vec![content("no")]).await;
        let head = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: http://{}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            target.address
        );
        let (text, requests) = outcome(vec![Reply::Raw(head)], true).await;
        let expected =
            format!("the tool endpoint answered with status {status}: redirects are not followed");
        assert_eq!((text, requests), (expected, 1));
        assert_eq!(target.requests(), []);
    }
}

#[tokio::test]
async fn a_response_is_not_read_past_the_limit() {
    let chunked = |bytes: usize| {
        let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
        let chunks = chunk.repeat(bytes / 100);
        let head = "200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked";
        format!("HTTP/1.1 {head}\r\n\r\n{chunks}")
    };
    let too_large = "the tool endpoint answered with more than 1000 bytes";
    let long_event = format!("data: {}", "x".repeat(1001));
    for (reply, expected) in [
        (Reply::Answer("200 OK", "x".repeat(1000)), "x".repeat(1000)),
        (
            Reply::Raw(format!("{}0\r\n\r\n", chunked(1000))),
            "x".repeat(1000),
        ),
        (Reply::Answer("200 OK", "x".repeat(1001)), too_large.into()),
        // The limit applies before the end of the body.
        (
            Reply::Hang("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n".into()),
            too_large.into(),
        ),
        (Reply::Hang(chunked(1100)), too_large.into()),
        (Reply::Hang(sse(&long_event)), too_large.into()),
        (
            Reply::Hang(sse(&": keep-alive\n\n".repeat(80))),
            too_large.into(),
        ),
    ] {
        assert_eq!(outcome(vec![reply], false).await.0, expected);
    }
}

#[tokio::test]
async fn progress_events_are_forwarded_in_order() {
    let events = ": hi\n\ndata: {\"progress\": \"one\"}\r\n\r\ndata:\n\ndata: [DONE]\n\nevent: x\ndata: {\"progress\":\n\
                  data: \"two\"}\n\ndata: {\"progress\":\"\"}\n\n\
                  data: {\"content\": \"end\", \"progress\": 1, \"terminate\": true}\n\ndata: {\"progress\": \"late\"}\n\n";
    // The connection stays open: the result ends the response.
    let server = Server::start(vec![Reply::Hang(sse(events))]).await;
    let (invocation, mut progress) = invocation();
    let tool = tool(server.settings(), false);
    let output = timeout(LONG, tool.call(&invocation))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((output.content.as_str(), output.terminate), ("end", true));
    drop(invocation);
    let mut received = Vec::new();
    while let Some(ToolProgress { text, stream }) = progress.recv().await {
        received.push((text, stream));
    }
    let expected = ["one", "two"].map(|text| (text.to_owned(), "progress"));
    assert_eq!(received, expected);
}

#[tokio::test]
async fn progress_is_forwarded_before_the_result_arrives() {
    let events = sse("data: {\"progress\": \"one\"}\n\n");
    let server = Server::start(vec![Reply::Hang(events)]).await;
    let (invocation, mut progress) = invocation();
    let tool = tool(server.settings(), false);
    let mut answer = tool.call(&invocation);
    tokio::select! {
        output = &mut answer => panic!("{output:?}"),
        received = progress.recv() => assert_eq!(received.unwrap().text, "one"),
    }
}

#[tokio::test]
async fn streams_without_a_regular_result() {
    let no_result = "the tool endpoint's event stream ended without a result";
    for (events, expected) in [
        ("data: {\"content\":\"a\"}", "a"),
        ("data: {\"x\": 1}\n\n", "{\"x\": 1}"),
        ("data: plain\ndata: text\n\n", "plain\ntext"),
        ("data: null\n\n", ""),
        ("", no_result),
        ("data: {\"progress\":\"a\"}\n\ndata: [DONE]\n\n", no_result),
        (
            "data: {\"progress\":{}}\n\n",
            "the tool endpoint's answer cannot be used: 'progress' must be a string",
        ),
    ] {
        let replies = vec![Reply::Raw(sse(events))];
        assert_eq!(
            outcome(replies, true).await,
            (expected.into(), 1),
            "{events}"
        );
    }
}

#[tokio::test]
async fn compressed_and_binary_responses_are_refused() {
    let (text, _) = outcome(vec![plain("200 OK\r\ncontent-encoding: gzip")], false).await;
    assert!(text.contains("compressed"), "{text}");
    let (text, _) = outcome(vec![plain("200 OK\r\ncontent-type: image/png")], false).await;
    assert!(text.contains("image/png"), "{text}");
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    let head = format!("HTTP/1.1 {OK}\r\ncontent-length: 99\r\n\r\n{{");
    for said in [String::new(), head, sse("data: {\"progress\": \"a\"}\n\n")] {
        let mut server = Server::start(vec![Reply::Hang(said)]).await;
        let tool = tool(server.settings(), false);
        let (invocation, _progress) = invocation();
        let wait = Duration::from_millis(100);
        assert!(timeout(wait, tool.call(&invocation)).await.is_err());
        timeout(LONG, server.gone.recv()).await.unwrap().unwrap();
    }
}
