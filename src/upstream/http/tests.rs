use std::convert::Infallible;

use futures_util::TryStreamExt;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use super::*;
use crate::openai::event::ModelEvent;
use crate::openai::usage::FinishReason;
use crate::upstream::Transcript;

/// What the scripted server does once it has read a request.
#[derive(Clone)]
enum Step {
    Send(Vec<u8>),
    /// Says nothing more and keeps the connection open.
    Hang,
    /// Reads the next request of the same connection.
    Next,
    /// Ends the connection with a reset instead of a close.
    Reset,
}

struct Server {
    base: Url,
    requests: UnboundedReceiver<Vec<u8>>,
    /// Keeps the server running.
    _tasks: JoinSet<Infallible>,
}

impl Server {
    async fn start(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, requests) = unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (steps, sender) = (steps.clone(), sender.clone());
                connections.spawn(async move {
                    sender.send(read_request(&mut socket).await).ok();
                    for step in steps {
                        match step {
                            Step::Send(bytes) => {
                                socket.write_all(&bytes).await.ok();
                                socket.flush().await.ok();
                            }
                            Step::Hang => std::future::pending().await,
                            Step::Next => {
                                sender.send(read_request(&mut socket).await).ok();
                            }
                            Step::Reset => socket.set_zero_linger().unwrap(),
                        }
                    }
                });
            }
        });
        Self {
            base: base.parse().unwrap(),
            requests,
            _tasks: tasks,
        }
    }

    async fn answering(head: &str, body: &str) -> Self {
        Self::start(vec![send(&answer(head, body))]).await
    }

    fn settings(&self) -> Settings {
        let long = Duration::from_secs(20);
        Settings {
            name: "u".into(),
            base_url: self.base.clone(),
            api_key: None,
            headers: HeaderMap::new(),
            models: Vec::new(),
            model_map: Vec::new(),
            connect_timeout: long,
            first_byte_timeout: long,
            idle_timeout: long,
            max_stream_bytes: 1 << 20,
            quirks: Quirks::default(),
        }
    }

    fn upstream(&self) -> HttpUpstream {
        HttpUpstream::new(self.settings()).unwrap()
    }

    /// The head (lower case but for its first line) and the body of the next request.
    fn request(&mut self) -> (String, String) {
        let request = String::from_utf8(self.requests.try_recv().unwrap()).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

fn send(text: &str) -> Step {
    Step::Send(text.as_bytes().to_vec())
}

fn answer(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\n\r\n{body}")
}

const SSE_HEAD: &str = "200 OK\r\ncontent-type: text/event-stream\r\nconnection: close";

async fn read_request(socket: &mut TcpStream) -> Vec<u8> {
    let mut request = Vec::new();
    loop {
        if let Some(end) = memchr::memmem::find(&request, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let whole = match length {
                Some(length) => request.len() >= end + 4 + length.parse::<usize>().unwrap(),
                None if head.contains("transfer-encoding: chunked") => {
                    request.ends_with(b"0\r\n\r\n")
                }
                None => true,
            };
            if whole {
                return request;
            }
        }
        if socket.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return request;
        }
    }
}

fn call() -> ModelCall {
    let mut transcript = Transcript::default();
    transcript.push([&Bytes::from(r#"{"role":"user","content":"a"}"#)]);
    transcript.push([
        &Bytes::from(r#"{"role":"assistant","content":"b"}"#),
        &Bytes::from(r#"{"role":"user","content":"c"}"#),
    ]);
    ModelCall {
        model: "m\"".into(),
        fields: r#""temperature":0.50"#.into(),
        stream_options: None,
        tools: Some("[1]".into()),
        tool_choice: Some("\"auto\"".into()),
        transcript,
        headers: Arc::default(),
    }
}

async fn collect(upstream: &HttpUpstream) -> (Vec<ModelEvent>, Option<UpstreamError>) {
    let mut stream = match upstream.stream(&call()).await {
        Ok(stream) => stream.events,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    let mut failure = None;
    while let Some(event) = stream.next().await {
        assert!(failure.is_none(), "the first error ends a stream");
        match event {
            Ok(event) => events.push(event),
            Err(error) => failure = Some(error),
        }
    }
    (events, failure)
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.into())
}

const STOP: ModelEvent = ModelEvent::Finish(FinishReason::Stop);
const A: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[tokio::test]
async fn a_call_is_written_in_the_servers_dialect() {
    let messages = r#""messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"tool_choice":"auto"}"#;
    let rest = format!(r#","temperature":0.50,"tools":[1],{messages}"#);
    for (quirks, model, expected) in [
        (
            Quirks::default(),
            "n",
            format!(
                r#"{{"model":"m\"","stream":true,"stream_options":{{"include_usage":true}}{rest}"#
            ),
        ),
        (
            Quirks {
                stream_options: false,
                ..Quirks::default()
            },
            "m\"",
            format!(r#"{{"model":"mapped","stream":true{rest}"#),
        ),
        (
            Quirks {
                streams: false,
                ..Quirks::default()
            },
            "m\"",
            format!(r#"{{"model":"mapped","stream":false{rest}"#),
        ),
    ] {
        let mut server = Server::answering(SSE_HEAD, DONE).await;
        let mut settings = server.settings();
        settings.quirks = quirks;
        settings.model_map = vec![(model.into(), "mapped".into())];
        let (events, error) = collect(&HttpUpstream::new(settings).unwrap()).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(events, [STOP]);
        let (head, body) = server.request();
        assert_eq!(body, expected);
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}

#[tokio::test]
async fn the_clients_stream_options_are_kept_and_usage_is_always_asked_for() {
    for (asked, expected) in [
        (
            r#"{"include_usage":false, "include_obfuscation": false}"#,
            r#"{"include_usage":true,"include_obfuscation":false}"#,
        ),
        ("{}", r#"{"include_usage":true}"#),
        ("1", r#"{"include_usage":true}"#),
    ] {
        let mut server = Server::answering(SSE_HEAD, DONE).await;
        let call = ModelCall {
            stream_options: Some(asked.into()),
            ..call()
        };
        server.upstream().stream(&call).await.unwrap();
        let body = server.request().1;
        let wanted = format!(r#","stream_options":{expected},"#);
        assert!(body.contains(&wanted), "{body}");
    }
}

#[tokio::test]
async fn large_parts_are_sent_as_well() {
    let mut server = Server::answering(SSE_HEAD, DONE).await;
    let mut call = call();
    let large = format!("[\"{}\"]", "x".repeat(100_000));
    call.tools = Some(large.as_str().into());
    call.fields = "".into();
    let stream = server.upstream().stream(&call).await.unwrap();
    assert_eq!(stream.events.count().await, 1);
    let body: serde_json::Value = serde_json::from_str(&server.request().1).unwrap();
    assert_eq!(body["tools"].to_string(), large);
    assert_eq!(body["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn configured_headers_and_the_key_override_the_callers() {
    let mut server = Server::answering(SSE_HEAD, DONE).await;
    let mut settings = server.settings();
    settings.api_key = Some(SecretString::from("own-key"));
    settings
        .headers
        .insert("x-team", HeaderValue::from_static("red"));
    let mut call = call();
    let headers = [
        ("authorization", "Bearer client"),
        ("x-team", "blue"),
        ("x-other", "1"),
        ("accept-encoding", "gzip"),
        ("host", "elsewhere"),
        ("user-agent", "agent/1"),
        ("accept", "*/*"),
    ];
    call.headers = Arc::new(
        headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect::<HeaderMap>(),
    );
    let upstream = HttpUpstream::new(settings).unwrap();
    upstream.stream(&call).await.unwrap();
    assert!(!format!("{upstream:?}").contains("own-key"));
    let (head, _) = server.request();
    for wanted in [
        "authorization: Bearer own-key\r\n",
        "x-team: red\r\n",
        "x-other: 1\r\n",
        "user-agent: agent/1\r\n",
        "accept: text/event-stream\r\n",
        "content-type: application/json\r\n",
    ] {
        assert!(format!("{head}\r\n").contains(wanted), "{wanted} in {head}");
    }
    for unwanted in ["client", "blue", "gzip", "elsewhere", "*/*"] {
        assert!(!head.contains(unwanted), "{unwanted} in {head}");
    }
}

#[tokio::test]
async fn an_answer_ends_well_or_breaks_off() {
    enum Ends {
        Well,
        Broken,
        Malformed,
        InStream(&'static str),
    }
    use Ends::{Broken, InStream, Malformed, Well};
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
        let server = Server::answering(SSE_HEAD, &body).await;
        let (events, failure) = collect(&server.upstream()).await;
        if count != usize::MAX {
            assert_eq!(events.len(), count, "{what}: {events:?}");
        }
        match (ends, failure) {
            (Well, None) => {
                assert!(events.contains(&STOP), "{what}");
            }
            (Broken, Some(UpstreamError::Broken { .. }))
            | (Malformed, Some(UpstreamError::Malformed { .. })) => {}
            (InStream(expected), Some(UpstreamError::InStream { error, .. })) => {
                assert_eq!(&*error, expected, "{what}");
            }
            (_, failure) => panic!("{what}: {failure:?}"),
        }
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
        (false, SSE_HEAD, &[A, END].concat(), true),
        (true, plain, &[A, END].concat(), true),
        (true, json, r#"{"choices":["#, false),
        (true, json, r#"{"detail":"?"}"#, false),
    ] {
        let server = Server::answering(head, body).await;
        let mut settings = server.settings();
        settings.quirks.streams = streams;
        let (events, failure) = collect(&HttpUpstream::new(settings).unwrap()).await;
        if good {
            assert!(failure.is_none(), "{failure:?}");
            assert_eq!(events, [text("a"), STOP]);
        } else {
            assert!(matches!(failure, Some(UpstreamError::Malformed { .. })));
        }
    }
    let gzip = "200 OK\r\ncontent-encoding: gzip\r\nconnection: close";
    let (_, failure) = collect(&Server::answering(gzip, "x").await.upstream()).await;
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
async fn silence_is_bounded_in_every_phase() {
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
    // A machine without root certificates cannot make such a client.
    if let Ok(upstream) = HttpUpstream::new(settings) {
        let (_, failure) = collect(&upstream).await;
        assert!(
            matches!(failure, Some(UpstreamError::Timeout { phase, .. }) if phase == "connect"),
            "{failure:?}"
        );
    }
}

#[tokio::test]
async fn a_refused_connection_is_told_without_the_address() {
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

fn get(path: &str) -> ForwardRequest {
    ForwardRequest {
        method: Method::GET,
        path_and_query: path.into(),
        headers: HeaderMap::new(),
        body: ForwardBody::Full(Bytes::new()),
    }
}

#[tokio::test]
async fn what_passes_through_is_not_changed() {
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
async fn a_head_request_keeps_the_length_it_was_told() {
    let server =
        Server::answering("200 OK\r\ncontent-length: 12345\r\nconnection: close", "").await;
    let mut request = get("/x");
    request.method = Method::HEAD;
    let answer = server.upstream().forward(request).await.unwrap();
    assert_eq!(answer.headers["content-length"], "12345");
    assert_eq!(answer.body.count().await, 0);
}

#[tokio::test]
async fn a_streamed_body_goes_through_with_the_length_it_has() {
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
async fn whose_fault_a_break_is_can_be_told() {
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
