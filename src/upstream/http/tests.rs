//! A scripted server, and tests of the upstream against it.

mod answers;
mod calls;
mod failures;
mod forwarding;

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use url::Url;

use super::*;
use crate::Transcript;
use crate::settings::ChosenQuirks;
use protocol::ids::WorkspaceId;
use protocol::openai::ending::AnswerEnd;
use protocol::openai::event::ModelEvent;
use protocol::openai::usage::FinishReason;

/// One step of the scripted server after it has read a request.
#[derive(Clone)]
enum Step {
    Send(Vec<u8>),
    /// Sends nothing more and keeps the connection open.
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
            kind: None,
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
            affinity_header: None,
            certificates: net::CaCertificates::default(),
            key_source: KeySource::None,
            quirks: ChosenQuirks::default(),
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
    transcript.push([r#"{"role":"user","content":"a"}"#.into()]);
    transcript.push([
        r#"{"role":"assistant","content":"b"}"#.into(),
        r#"{"role":"user","content":"c"}"#.into(),
    ]);
    ModelCall {
        streams: true,
        sends_stream_options: true,
        model: "m\"".into(),
        fields: r#""temperature":0.50"#.into(),
        stream_options: None,
        tools: Some("[1]".into()),
        tool_choice: Some("\"auto\"".into()),
        max_output_tokens: None,
        transcript,
        headers: Arc::default(),
        session: WorkspaceId::fresh(),
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

const STOP: ModelEvent = ModelEvent::Finish(AnswerEnd::Reason(FinishReason::Stop));
const A: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn get(path: &str) -> ForwardRequest {
    ForwardRequest {
        method: Method::GET,
        path_and_query: path.into(),
        headers: HeaderMap::new(),
        body: ForwardBody::Full(Bytes::new()),
    }
}
