//! Which failures are retried, and when retries stop.

use super::*;

#[tokio::test]
async fn a_call_is_retried_only_where_that_is_safe() {
    let broken = || Reply::Raw(format!("HTTP/1.1 {OK}\r\ncontent-length: 99\r\n\r\n{{"));
    let broken_sse = || {
        Reply::Raw(
            sse("data: {\"progress\":\"p\"}\n\n")
                .replace("connection: close", "content-length: 999"),
        )
    };
    let cases = [
        (plain("429 Too Many Requests"), 2, 2),
        (plain("429 Too Many Requests\r\nretry-after: 0"), 2, 2),
        (plain("503 Service Unavailable\r\nretry-after: 0"), 2, 2),
        (plain("503 Service Unavailable"), 1, 2),
        (plain("500 Internal Server Error"), 1, 2),
        (plain("500 Internal Server Error\r\nretry-after: 0"), 1, 2),
        (Reply::Reset, 1, 2),
        (Reply::Raw(String::new()), 1, 2),
        (broken(), 1, 2),
        (broken_sse(), 1, 2),
        (plain("404 Not Found\r\nretry-after: 0"), 1, 1),
        (plain("400 Bad Request"), 1, 1),
        (plain("302 Found\r\nlocation: /secret"), 1, 1),
        (
            Reply::Answer(OK, r#"{"content":"","is_error":1}"#.into()),
            1,
            1,
        ),
        (plain("429 Too Many Requests\r\nretry-after: 61"), 1, 1),
        // Longer than the time limit of the call.
        (plain("429 Too Many Requests\r\nretry-after: 30"), 1, 1),
    ];
    let checks = cases.map(|(reply, plain, idempotent)| async move {
        for (expected, is_idempotent) in [(plain, false), (idempotent, true)] {
            let replies = vec![reply.clone(), content("again")];
            let (text, requests) = outcome(replies, is_idempotent).await;
            let shown = match &reply {
                Reply::Answer(head, _) => (*head).to_owned(),
                Reply::Raw(text) | Reply::Hang(text) => text.clone(),
                Reply::Reset => "reset".to_owned(),
            };
            assert_eq!(requests, expected, "{shown}, {is_idempotent}: {text}");
            assert_eq!(text == "again", expected == 2, "{shown}: {text}");
        }
    });
    join_all(checks).await;
}

#[tokio::test]
async fn retries_are_limited_in_number() {
    let server = Server::start(vec![plain("429 Too Many Requests")]).await;
    let mut settings = server.settings();
    settings.max_retries = 2;
    let error = call(&tool(settings, false)).await.unwrap_err();
    assert_eq!(
        error_text(&error, &server),
        "the tool endpoint answered with status 429"
    );
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_refused_connection_is_retried_for_every_tool() {
    // The port is reserved but does not listen yet.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let tool = tool(endpoint(socket.local_addr().unwrap()), false);
    let (invocation, _progress) = invocation();
    let mut answer = tool.call(&invocation);
    let polled = timeout(Duration::from_millis(100), &mut answer).await;
    assert!(polled.is_err(), "{polled:?}");
    let server = Server::on(socket.listen(8).unwrap(), vec![content("up")]);
    assert_eq!(answer.await.unwrap().content, "up");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn an_unreachable_endpoint_is_reported_without_its_address() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut settings = endpoint(socket.local_addr().unwrap());
    settings.max_retries = 0;
    let error = call(&tool(settings, false)).await.unwrap_err();
    let mut server = Server::start(vec![content("")]).await;
    server.address = socket.local_addr().unwrap();
    assert_eq!(
        error_text(&error, &server),
        "the tool endpoint could not be reached"
    );
}
