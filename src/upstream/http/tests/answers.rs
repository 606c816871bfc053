//! Responses with a success status, up to their end.

use futures_util::TryStreamExt;

use super::*;

/// How an answer ends.
enum Ends {
    Well,
    Broken,
    Malformed,
    InStream(&'static str),
}
use Ends::{Broken, InStream, Malformed, Well};

/// Fails unless an event stream of this body has this number of events and this end.
async fn check(what: &str, body: &str, count: usize, ends: Ends) {
    let server = Server::answering(SSE_HEAD, body).await;
    let (events, failure) = collect(&server.upstream()).await;
    if count != usize::MAX {
        assert_eq!(events.len(), count, "{what}: {events:?}");
    }
    match (ends, failure) {
        (Well, None) => {
            let unstated = ModelEvent::Finish(AnswerEnd::Unstated);
            let has_reason = body.contains("finish_reason\":\"stop");
            let end = if has_reason { &STOP } else { &unstated };
            assert!(events.contains(end), "{what}: {events:?}");
        }
        (Broken, Some(UpstreamError::Broken { .. }))
        | (Malformed, Some(UpstreamError::Malformed { .. })) => {}
        (InStream(expected), Some(UpstreamError::InStream { error, .. })) => {
            assert_eq!(&*error, expected, "{what}");
        }
        (_, failure) => panic!("{what}: {failure:?}"),
    }
}

#[tokio::test]
async fn lines_that_are_not_of_an_event_stream_are_errors_or_make_the_answer_incomplete() {
    for (what, body, count, ends) in [
        (
            "an error in a field of its own",
            [A, "error: {\"message\":\"m\"}\n\n", DONE].concat(),
            1,
            InStream("{\"message\":\"m\"}"),
        ),
        (
            "an error without a field",
            [A, "{\"error\":{\"message\":\"m\"}}\n\n", DONE].concat(),
            1,
            InStream("{\"message\":\"m\"}"),
        ),
        (
            "foreign lines without a finish",
            [A, "oh no\n", DONE].concat(),
            1,
            Broken,
        ),
        (
            "foreign lines with one",
            [A, "oh no\n", END, DONE].concat(),
            2,
            Well,
        ),
    ] {
        check(what, &body, count, ends).await;
    }
}

#[tokio::test]
async fn an_answer_is_complete_or_ends_with_one_error() {
    let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\n";
    let error = "data: {\"error\":{\"code\":500}}\n\n";
    for (what, body, count, ends) in [
        ("all there", [A, END, usage, DONE].concat(), 3, Well),
        ("no [DONE]", [A, END, usage].concat(), 3, Well),
        ("no finish", [A, DONE].concat(), 2, Well),
        ("neither", [A, A].concat(), 2, Broken),
        ("nothing", String::new(), 0, Broken),
        ("only comments", ": hi\n\n".into(), 0, Broken),
        (
            "cut inside an event",
            [A, "data: {\"choi"].concat(),
            1,
            Broken,
        ),
        ("unterminated finish", [A, END.trim_end()].concat(), 2, Well),
        ("unterminated [DONE]", [A, "data: [DONE]"].concat(), 2, Well),
        ("after the end", [A, END, DONE, A].concat(), 2, Well),
        (
            "junk after the finish",
            [A, END, "data: junk\n\n", A].concat(),
            2,
            Well,
        ),
        (
            "junk",
            [A, "data: junk\n\n", END, DONE].concat(),
            1,
            Malformed,
        ),
        (
            "an error",
            [A, error, A, DONE].concat(),
            1,
            InStream("{\"code\":500}"),
        ),
        (
            "an error event",
            [A, "event: error\ndata: {\"message\":\"m\"}\n\n"].concat(),
            1,
            InStream("{\"message\":\"m\"}"),
        ),
        (
            "an error event of plain text",
            [A, "event: error\ndata: oh \"no\"\n\n"].concat(),
            1,
            InStream(r#""oh \"no\"""#),
        ),
        (
            "too large",
            [A.to_owned(), A.repeat(20_000), DONE.to_owned()].concat(),
            usize::MAX,
            Malformed,
        ),
    ] {
        check(what, &body, count, ends).await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error_only_before_the_finish() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    for (pieces, reset, broken) in [
        (vec![chunk(A)], false, true),
        (vec![chunk(A)], true, true),
        (vec![chunk(A), "ff\r\ndata:".into()], false, true),
        (vec![chunk(A), chunk(END)], false, false),
    ] {
        let mut steps = vec![send(head)];
        steps.extend(pieces.iter().map(|piece| send(piece)));
        if reset {
            steps.push(Step::Reset);
        }
        let server = Server::start(steps).await;
        let (_, failure) = collect(&server.upstream()).await;
        let is_broken = matches!(failure, Some(UpstreamError::Broken { .. }));
        assert_eq!(is_broken, broken, "{failure:?}");
        assert_eq!(failure.is_some(), broken);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_gives_the_same_events() {
    let whole = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    let json = "200 OK\r\ncontent-type: Application/JSON; charset=utf-8\r\nconnection: close";
    let plain = "200 OK\r\nconnection: close";
    for (streams, head, body, good) in [
        (true, json, whole, true),
        (false, json, whole, true),
        (false, plain, whole, true),
        // The bytes count, not the label.
        (true, plain, whole, true),
        (true, SSE_HEAD, whole, true),
        (
            true,
            SSE_HEAD,
            &format!("\u{feff} \n{whole}\n\ndata: [DONE]\n\n"),
            true,
        ),
        (true, json, &[A, END].concat(), true),
        (true, json, &format!("\u{feff}{A}{END}"), true),
        (true, SSE_HEAD, &format!("\n\n{A}{END}"), true),
        (false, SSE_HEAD, &[A, END].concat(), true),
        (true, plain, &[A, END].concat(), true),
        (true, json, r#"{"choices":["#, false),
        (true, json, r#"{"id":"?"}"#, false),
    ] {
        let server = Server::answering(head, body).await;
        let mut settings = server.settings();
        settings.quirks.streams = Some(streams);
        let (events, failure) = collect(&HttpUpstream::new(settings).unwrap()).await;
        if good {
            assert!(failure.is_none(), "{failure:?}");
            assert_eq!(events, [text("a"), STOP]);
        } else {
            assert!(matches!(failure, Some(UpstreamError::Malformed { .. })));
        }
    }
    let unknown = "200 OK\r\ncontent-encoding: compress\r\nconnection: close";
    let (_, failure) = collect(&Server::answering(unknown, "x").await.upstream()).await;
    assert!(matches!(failure, Some(UpstreamError::Malformed { .. })));
}

#[tokio::test]
async fn events_come_as_they_arrive_at_any_split() {
    let head = answer(SSE_HEAD, "");
    let body = [A, A, END, DONE].concat();
    let (first, second) = body.split_at(A.len() + 17);
    let server = Server::start(vec![send(&head), send(first), Step::Hang]).await;
    let upstream = server.upstream();
    let call = call();
    let mut events = upstream.stream(&call).await.unwrap().events;
    assert_eq!(events.next().await.unwrap().unwrap(), text("a"));
    let server = Server::start(vec![send(&head), send(first), send(second)]).await;
    let (events, failure) = collect(&server.upstream()).await;
    assert!(failure.is_none());
    assert_eq!(events, [text("a"), text("a"), STOP]);
}

#[tokio::test]
async fn a_connection_serves_several_answers() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-request-id: r\r\nx-ratelimit-left: 3\r\nserver: s\r\n\r\n";
    let body = [A, END, DONE].concat();
    let answer = send(&format!("{head}{:x}\r\n{body}\r\n", body.len()));
    let end = send("0\r\n\r\n");
    let server = Server::start(vec![
        answer.clone(),
        end.clone(),
        Step::Next,
        answer,
        end,
        Step::Hang,
    ])
    .await;
    let upstream = server.upstream();
    for _ in 0..2 {
        let stream = upstream.stream(&call()).await.unwrap();
        assert_eq!(stream.headers.len(), 2, "{:?}", stream.headers);
        let events: Vec<_> = stream.events.try_collect().await.unwrap();
        assert_eq!(events, [text("a"), STOP]);
    }
    // A second connection would have been given the script from its beginning and left `Next` unused.
    let mut server = server;
    assert_eq!(server.request().1, server.request().1);
}
