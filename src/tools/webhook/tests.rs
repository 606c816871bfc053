use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{self, Receiver, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::ids::{RequestId, SessionId};
use crate::tools::{CallContext, ProgressSender, ToolProgress};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// Longer than anything here takes; only a mistake waits for it.
const LONG: Duration = Duration::from_secs(20);
const OK: &str = "200 OK\r\ncontent-type: application/json";

/// How the scripted server answers one request.
#[derive(Clone)]
enum Reply {
    /// Status line, headers and body; the length is added.
    Answer(&'static str, String),
    /// These bytes, and then the end of the connection.
    Raw(String),
    /// These bytes, and then nothing until the caller is gone.
    Hang(String),
    /// A reset instead of an answer.
    Reset,
}

struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    /// Says so each time a caller of [`Reply::Hang`] is gone.
    gone: UnboundedReceiver<()>,
    /// Keeps the server running.
    _tasks: JoinSet<Infallible>,
}

#[derive(Debug, Clone, PartialEq)]
struct Request {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Server {
    /// Answers one request after the other; the last reply is given again and again.
    async fn start(replies: Vec<Reply>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), replies)
    }

    fn on(listener: TcpListener, replies: Vec<Reply>) -> Self {
        let address = listener.local_addr().unwrap();
        let (gone_sender, gone) = mpsc::unbounded_channel();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let seen = requests.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (seen, replies, gone) = (seen.clone(), replies.clone(), gone_sender.clone());
                connections.spawn(async move {
                    let request = read_request(&mut socket).await;
                    let at = {
                        let mut seen = seen.lock();
                        seen.push(request);
                        seen.len() - 1
                    };
                    let reply = replies.get(at).or_else(|| replies.last()).unwrap();
                    answer(&mut socket, reply, &gone).await;
                });
            }
        });
        Self {
            address,
            requests,
            gone,
            _tasks: tasks,
        }
    }

    fn settings(&self) -> EndpointSettings {
        endpoint(self.address)
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }
}

async fn answer(socket: &mut TcpStream, reply: &Reply, gone: &UnboundedSender<()>) {
    let text = match reply {
        Reply::Answer(head, body) => {
            let length = body.len();
            format!(
                "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
        }
        Reply::Raw(text) | Reply::Hang(text) => text.clone(),
        Reply::Reset => {
            socket.set_zero_linger().unwrap();
            return;
        }
    };
    socket.write_all(text.as_bytes()).await.ok();
    if matches!(reply, Reply::Hang(_)) {
        while socket.read(&mut [0; 64]).await.unwrap_or(0) > 0 {}
        gone.send(()).ok();
    }
}

async fn read_request(socket: &mut TcpStream) -> Request {
    let mut bytes = Vec::new();
    loop {
        assert!(socket.read_buf(&mut bytes).await.unwrap() > 0, "{bytes:?}");
        let text = std::str::from_utf8(&bytes).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let (line, fields) = head.split_once("\r\n").unwrap();
        let headers: BTreeMap<String, String> = fields
            .lines()
            .map(|field| field.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers
            .get("content-length")
            .map_or(0, |length| length.parse().unwrap());
        if body.len() >= length {
            return Request {
                line: line.to_owned(),
                body: body.to_owned(),
                headers,
            };
        }
    }
}

fn endpoint(address: SocketAddr) -> EndpointSettings {
    EndpointSettings {
        url: format!("http://{address}/run?key=secret").parse().unwrap(),
        method: Method::POST,
        headers: HeaderMap::new(),
        secret: None,
        timeout: LONG,
        max_answer_bytes: 1000,
        max_retries: 1,
    }
}

fn tool(endpoint: EndpointSettings, idempotent: bool) -> HttpTool {
    let entry = HttpToolSettings {
        name: "get_ticket".into(),
        description: "d".into(),
        parameters_json: r#"{"type":"object"}"#.into(),
        endpoint,
        sequential: false,
        idempotent,
    };
    let settings = Settings {
        dispatch: None,
        http_tools: vec![entry],
        max_parallel_tools: 8,
        max_result_chars: 1000,
        connect_timeout: LONG,
    };
    let client = WebhookClient::new(&settings).unwrap();
    HttpTool::from_settings(&client, &settings.http_tools[0]).unwrap()
}

fn invocation() -> (ToolInvocation, Receiver<ToolProgress>) {
    let (sender, progress) = mpsc::channel(16);
    let invocation = ToolInvocation {
        name: "get_ticket".into(),
        arguments: json!({"id": 7}).as_object().unwrap().clone(),
        call_id: "call_1".into(),
        context: Arc::new(CallContext {
            request_id: RequestId::parse("req_1").unwrap(),
            round: 2,
            ..CallContext::example()
        }),
        progress: ProgressSender(sender),
    };
    (invocation, progress)
}

async fn call(tool: &HttpTool) -> Result<ToolOutput, ToolError> {
    timeout(LONG, tool.call(&invocation().0)).await.unwrap()
}

/// Calls a server that gives these replies: the content or the error text, and how many requests came.
async fn outcome(replies: Vec<Reply>, idempotent: bool) -> (String, usize) {
    let server = Server::start(replies).await;
    let text = match call(&tool(server.settings(), idempotent)).await {
        Ok(output) => output.content,
        Err(error) => told(&error, &server),
    };
    (text, server.requests().len())
}

/// The text of an error, which must say nothing of the endpoint; nor may what the log gets hold the URL.
fn told(error: &ToolError, server: &Server) -> String {
    let mut logged = String::new();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        logged.push_str(&error.to_string());
        source = error.source();
    }
    let text = error.to_string();
    let port = server.address.port().to_string();
    for secret in ["127.0.0.1", "/run", "secret", &port] {
        assert!(!text.contains(secret), "{text}");
        assert!(!logged.contains(secret), "{logged}");
    }
    text
}

fn plain(head: &'static str) -> Reply {
    Reply::Answer(head, "secret".into())
}

fn content(text: &str) -> Reply {
    Reply::Answer(OK, json!({"content": text}).to_string())
}

fn sse(events: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n\r\n{events}"
    )
}

fn header(name: &'static str, value: &str) -> HeaderMap {
    [(
        ::http::HeaderName::from_static(name),
        value.parse().unwrap(),
    )]
    .into_iter()
    .collect()
}

#[tokio::test]
async fn a_call_is_sent_to_the_letter_of_the_contract() {
    let server = Server::start(vec![content("found")]).await;
    let mut settings = server.settings();
    settings.headers = header("authorization", "Bearer t");
    let (mut invocation, _progress) = invocation();
    let tool = tool(settings, false);
    let context = Arc::get_mut(&mut invocation.context).unwrap();
    context.trace = header("traceparent", "00-1-2-01");
    context.trace.extend(header("tracestate", "a=b"));
    assert_eq!(tool.call(&invocation).await.unwrap().content, "found");
    let context = Arc::get_mut(&mut invocation.context).unwrap();
    context.session_id = Some(SessionId::parse("s").unwrap());
    context.user = Some("u\"".into());
    tool.call(&invocation).await.unwrap();

    let [short, full] = server.requests().try_into().unwrap();
    assert_eq!(
        short.body,
        r#"{"name":"get_ticket","arguments":{"id":7},"tool_call_id":"call_1","request_id":"req_1","round":2,"model":"m"}"#
    );
    assert_eq!(
        full.body,
        r#"{"name":"get_ticket","arguments":{"id":7},"tool_call_id":"call_1","session_id":"s","request_id":"req_1","round":2,"model":"m","user":"u\""}"#
    );
    assert_eq!(short.line, "POST /run?key=secret HTTP/1.1");
    let mut headers = short.headers;
    let key = headers.remove("idempotency-key").unwrap();
    assert!(key.starts_with("msg_") && key.len() == 28, "{key}");
    assert_ne!(full.headers["idempotency-key"], key);
    let expected = [
        (
            "accept",
            "application/json, text/event-stream, text/plain;q=0.9, */*;q=0.1",
        ),
        ("authorization", "Bearer t"),
        ("content-length", &short.body.len().to_string()),
        ("content-type", "application/json"),
        ("host", &server.address.to_string()),
        ("traceparent", "00-1-2-01"),
        ("tracestate", "a=b"),
        ("user-agent", USER_AGENT),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers, BTreeMap::from(expected));
}

#[tokio::test]
async fn own_headers_replace_ours_but_not_what_identifies_a_call() {
    let server = Server::start(vec![content("")]).await;
    let mut settings = server.settings();
    for (name, value) in [
        ("user-agent", "own"),
        ("idempotency-key", "own"),
        ("content-length", "1"),
        ("accept-encoding", "gzip"),
    ] {
        settings.headers.extend(header(name, value));
    }
    call(&tool(settings, false)).await.unwrap();
    let headers = server.requests().remove(0).headers;
    assert_eq!(headers["user-agent"], "own");
    assert!(headers["idempotency-key"].starts_with("msg_"));
    assert!(!headers.contains_key("accept-encoding"));
    let parent: Vec<&str> = headers["traceparent"].split('-').collect();
    let lengths: Vec<usize> = parent.iter().map(|part| part.len()).collect();
    assert_eq!(lengths, [2, 32, 16, 2], "{parent:?}");
}

#[tokio::test]
async fn every_success_is_an_answer() {
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
async fn what_a_get_tool_is_given_goes_into_the_query() {
    let server = Server::start(vec![content("")]).await;
    let mut settings = server.settings();
    settings.method = Method::GET;
    settings.secret = Some(SECRET.into());
    let tool = tool(settings, false);
    let (mut invocation, _progress) = invocation();
    let arguments = json!({"b": true, "l": ["x y", 2, null], "n": 1.5, "no": null, "o": {"k": "ä&"}, "s": "t=u"});
    invocation.arguments = arguments.as_object().unwrap().clone();
    tool.call(&invocation).await.unwrap();
    invocation.arguments.clear();
    tool.call(&invocation).await.unwrap();
    let [with, without] = server.requests().try_into().unwrap();
    assert_eq!(
        with.line,
        "GET /run?key=secret&b=true&l=x+y&l=2&n=1.5&o=%7B%22k%22%3A%22%C3%A4%26%22%7D&s=t%3Du HTTP/1.1"
    );
    assert_eq!(without.line, "GET /run?key=secret HTTP/1.1");
    assert_eq!(with.body, "");
    assert!(!with.headers.contains_key("content-type"));
    verify(&with);

    invocation.arguments = json!({"s": "x".repeat(40_000)})
        .as_object()
        .unwrap()
        .clone();
    let error = tool.call(&invocation).await.unwrap_err();
    assert!(matches!(error, ToolError::Rejected(_)), "{error}");
}

#[tokio::test]
async fn the_query_that_the_operator_has_set_is_not_the_models_to_change() {
    let server = Server::start(vec![content("")]).await;
    let mut settings = server.settings();
    settings.method = Method::GET;
    let tool = tool(settings, false);
    let (mut invocation, _progress) = invocation();
    for key in ["key", "KEY", "key[]", "key[0]", "k%65y", "key ", "+key"] {
        invocation.arguments =
            serde_json::Map::from_iter([("a".into(), 1.into()), (key.into(), "x".into())]);
        let error = tool.call(&invocation).await.unwrap_err();
        assert!(matches!(error, ToolError::Rejected(_)), "{key}: {error}");
        assert!(error.to_string().contains(key), "{error}");
    }
    assert_eq!(server.requests().len(), 0);
    let arguments = json!({"key": null, "keys": 1, "ke": 2, "[": 3});
    invocation.arguments = arguments.as_object().unwrap().clone();
    tool.call(&invocation).await.unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn other_methods_have_the_body_of_a_post() {
    for method in [Method::PUT, Method::PATCH, Method::DELETE] {
        let server = Server::start(vec![content("")]).await;
        let mut settings = server.settings();
        settings.method = method.clone();
        call(&tool(settings, false)).await.unwrap();
        let request = server.requests().remove(0);
        assert_eq!(request.line, format!("{method} /run?key=secret HTTP/1.1"));
        assert!(request.body.starts_with(r#"{"name":"get_ticket""#));
    }
}

fn verify(request: &Request) {
    let headers: HeaderMap = request
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.parse().ok()?, value.parse().ok()?)))
        .collect::<Vec<(::http::HeaderName, ::http::HeaderValue)>>()
        .into_iter()
        .collect();
    let webhook = Webhook::new(SECRET).unwrap();
    webhook.verify(request.body.as_bytes(), &headers).unwrap();
    assert_eq!(
        request.headers["webhook-id"],
        request.headers["idempotency-key"]
    );
}

#[tokio::test]
async fn signed_calls_verify_and_keep_their_id_over_retries() {
    let server = Server::start(vec![plain("429 Too Many Requests"), content("a")]).await;
    let mut settings = server.settings();
    settings.secret = Some(SECRET.into());
    assert_eq!(call(&tool(settings, false)).await.unwrap().content, "a");
    let [first, second] = server.requests().try_into().unwrap();
    verify(&first);
    verify(&second);
    assert_eq!(
        first.headers["idempotency-key"],
        second.headers["idempotency-key"]
    );
    assert_eq!(first.headers["traceparent"], second.headers["traceparent"]);
    assert_eq!(first.body, second.body);
}

#[tokio::test]
async fn a_call_is_made_again_only_where_that_is_safe() {
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
        // Longer than the whole call may take.
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
async fn retries_end() {
    let server = Server::start(vec![plain("429 Too Many Requests")]).await;
    let mut settings = server.settings();
    settings.max_retries = 2;
    let error = call(&tool(settings, false)).await.unwrap_err();
    assert_eq!(
        told(&error, &server),
        "the tool endpoint answered with status 429"
    );
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_for_every_tool() {
    // Bound, so that nobody else gets the port, but not listening yet.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let tool = tool(endpoint(socket.local_addr().unwrap()), false);
    let (invocation, _progress) = invocation();
    let mut answer = tool.call(&invocation);
    let early = timeout(Duration::from_millis(100), &mut answer).await;
    assert!(early.is_err(), "{early:?}");
    let server = Server::on(socket.listen(8).unwrap(), vec![content("up")]);
    assert_eq!(answer.await.unwrap().content, "up");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn an_endpoint_that_stays_away_is_reported_without_its_address() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut settings = endpoint(socket.local_addr().unwrap());
    settings.max_retries = 0;
    let error = call(&tool(settings, false)).await.unwrap_err();
    let mut server = Server::start(vec![content("")]).await;
    server.address = socket.local_addr().unwrap();
    assert_eq!(
        told(&error, &server),
        "the tool endpoint could not be reached"
    );
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_its_target_hears_nothing() {
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
async fn no_more_is_read_than_allowed() {
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
        // The end never comes: what is too long is not waited for.
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
async fn progress_of_a_stream_is_handed_on_before_the_result() {
    let events = ": hi\n\ndata: {\"progress\": \"one\"}\r\n\r\ndata:\n\ndata: [DONE]\n\nevent: x\ndata: {\"progress\":\n\
                  data: \"two\"}\n\ndata: {\"progress\":\"\"}\n\n\
                  data: {\"content\": \"end\", \"progress\": 1, \"terminate\": true}\n\ndata: {\"progress\": \"late\"}\n\n";
    // The connection stays open: the result ends the answer.
    let server = Server::start(vec![Reply::Hang(sse(events))]).await;
    let (invocation, mut progress) = invocation();
    let tool = tool(server.settings(), false);
    let output = timeout(LONG, tool.call(&invocation))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((output.content.as_str(), output.terminate), ("end", true));
    drop(invocation);
    let mut heard = Vec::new();
    while let Some(ToolProgress { text, stream }) = progress.recv().await {
        heard.push((text, stream));
    }
    let expected = ["one", "two"].map(|text| (text.to_owned(), "progress"));
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn progress_is_live() {
    let events = sse("data: {\"progress\": \"one\"}\n\n");
    let server = Server::start(vec![Reply::Hang(events)]).await;
    let (invocation, mut progress) = invocation();
    let tool = tool(server.settings(), false);
    let mut answer = tool.call(&invocation);
    tokio::select! {
        output = &mut answer => panic!("{output:?}"),
        heard = progress.recv() => assert_eq!(heard.unwrap().text, "one"),
    }
}

#[tokio::test]
async fn a_stream_may_end_in_other_ways() {
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
async fn a_compressed_answer_is_refused() {
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

#[tokio::test]
async fn a_dispatched_tool_is_sent_to_the_common_endpoint() {
    let server = Server::start(vec![content("a")]).await;
    let settings = Settings {
        dispatch: Some(DispatchSettings {
            tools: vec!["*".into()],
            endpoint: server.settings(),
            sequential: true,
            idempotent: true,
        }),
        http_tools: Vec::new(),
        max_parallel_tools: 8,
        max_result_chars: 1000,
        connect_timeout: LONG,
    };
    let client = WebhookClient::new(&settings).unwrap();
    let endpoint = Endpoint::dispatch(&client, settings.dispatch.as_ref().unwrap()).unwrap();
    let definition = ToolDefinition::function("get_ticket", "d", "{}");
    let tool = HttpTool::dispatched(&Arc::new(endpoint), definition);
    let policy = tool.policy();
    assert!(policy.sequential && policy.idempotent && policy.source == ToolSource::Dispatch);
    assert_eq!(policy.timeout, LONG);
    assert_eq!(call(&tool).await.unwrap().content, "a");
    let body: Value = serde_json::from_str(&server.requests().remove(0).body).unwrap();
    assert_eq!(body["name"], "get_ticket");
}
