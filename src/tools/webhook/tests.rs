mod request;
mod response;
mod retries;

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
use crate::{CallContext, ProgressSender, ToolProgress};
use protocol::ids::{Owner, RequestId, SessionId, WorkspaceId};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// A time limit that no passing test reaches.
const LONG: Duration = Duration::from_secs(20);
const OK: &str = "200 OK\r\ncontent-type: application/json";

/// How the scripted server answers one request.
#[derive(Clone)]
enum Reply {
    /// Status line, headers and body; the length is added.
    Answer(&'static str, String),
    /// These bytes, then the connection is closed.
    Raw(String),
    /// These bytes, then the connection stays open until the client closes it.
    Hang(String),
    /// A TCP reset instead of a response.
    Reset,
}

struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    /// Receives a message each time the client closes a connection of [`Reply::Hang`].
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
    /// Gives the replies in order; the last one is repeated.
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
        read_only: false,
        destructive: true,
        open_world: true,
        repeatable: false,
    };
    let settings = Settings {
        dispatch: None,
        http_tools: vec![entry],
        max_parallel_tools: 8,
        max_result_chars: 1000,
        connect_timeout: LONG,
        code_by_default: false,
        certificates: net::CaCertificates::default(),
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
        trace: None,
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

/// Calls a server with these replies. Returns the content or the error text, and the number of requests.
async fn outcome(replies: Vec<Reply>, idempotent: bool) -> (String, usize) {
    let server = Server::start(replies).await;
    let text = match call(&tool(server.settings(), idempotent)).await {
        Ok(output) => output.content,
        Err(error) => error_text(&error, &server),
    };
    (text, server.requests().len())
}

/// The text of an error. It and its sources, which are logged, must not contain the URL or a secret.
fn error_text(error: &ToolError, server: &Server) -> String {
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
