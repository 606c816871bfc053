//! Search providers for tests: servers on loopback with the documented APIs, which record undocumented requests.

mod documented;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::SecretString;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::Url;

use self::documented::check;
use crate::settings::{
    ExtractorSettings, FetchSettings, ProviderKind, ProviderSettings, SearchSettings, Settings,
};

/// The key that the fakes accept.
pub(crate) const KEY: &str = "sk-SECRET-of-the-operator";
const USER_AGENT: &str = "loopwright-test/1";

/// The reply of a fake to one request.
#[derive(Debug, Clone)]
pub(crate) enum FakeReply {
    /// Status, headers and body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// Status, content encoding and body.
    Encoded(u16, &'static str, Vec<u8>),
    /// A reply that waits for a permit.
    Gated(Arc<Semaphore>, String),
    /// No reply.
    Silence,
    /// A reply without end.
    Endless,
    /// Closes the connection.
    Close,
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct SeenRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The query, or the fields of a form.
    pub(crate) parameters: Vec<(String, String)>,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// One fake provider.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) kind: ProviderKind,
    pub(crate) url: Url,
    state: Arc<State>,
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    kind: ProviderKind,
    replies: Mutex<VecDeque<FakeReply>>,
    requests: Mutex<Vec<SeenRequest>>,
    wrong: Mutex<Vec<String>>,
    came: Semaphore,
}

impl FakeReply {
    pub(crate) fn good(body: &str) -> Self {
        Self::status(200, body)
    }

    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self::Answer(status, Vec::new(), body.to_owned())
    }

    pub(crate) fn with_header(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Answer(status, mut headers, body) => {
                headers.push((name, value.to_owned()));
                Self::Answer(status, headers, body)
            }
            other => other,
        }
    }
}

impl SeenRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }
}

impl Fake {
    /// Starts a fake with replies in order. Further requests are errors.
    pub(crate) async fn start(
        kind: ProviderKind,
        replies: impl IntoIterator<Item = FakeReply>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            kind,
            replies: Mutex::new(replies.into_iter().collect()),
            requests: Mutex::default(),
            wrong: Mutex::default(),
            came: Semaphore::new(0),
        });
        let mut server = JoinSet::new();
        server.spawn(serve(listener, state.clone()));
        Self {
            kind,
            url: Url::parse(&format!("http://{address}")).unwrap(),
            state,
            _server: server,
        }
    }

    /// The received requests, all of which must be as documented.
    pub(crate) fn requests(&self) -> Vec<SeenRequest> {
        assert_eq!(*self.state.wrong.lock(), Vec::<String>::new());
        self.state.requests.lock().clone()
    }

    /// Waits for the next request.
    pub(crate) async fn came(&self) {
        self.state.came.acquire().await.unwrap().forget();
    }

    pub(crate) fn settings(&self) -> ProviderSettings {
        let keyless = matches!(self.kind, ProviderKind::SearXng | ProviderKind::DuckDuckGo);
        ProviderSettings {
            kind: self.kind,
            url: Some(self.url.clone()),
            api_key: (!keyless).then(|| SecretString::from(KEY)),
            requests_per_minute: 6_000,
        }
    }
}

/// Settings with these providers, no cache, one retry and snippets only.
pub(crate) fn settings(providers: Vec<ProviderSettings>) -> Settings {
    Settings {
        providers,
        search: SearchSettings {
            timeout: Duration::from_secs(10),
            max_retries: 1,
            max_results: 20,
            max_pages: 0,
            pages_timeout: Duration::from_secs(1),
            cache_ttl: Duration::ZERO,
            cache_bytes: 1 << 20,
        },
        fetch: FetchSettings {
            user_agent: USER_AGENT.to_owned(),
            connect_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            max_bytes: 1,
            max_redirects: 1,
            ports: Vec::new(),
            allow: Vec::new(),
            block: Vec::new(),
            private: Vec::new(),
            robots: true,
            per_host: 1,
            host_interval: Duration::ZERO,
        },
        extractor: ExtractorSettings {
            program: "loopwright".into(),
            processes: 1,
            timeout: Duration::from_secs(1),
            memory: 1,
        },
        embeddings: None,
        certificates: net::CaCertificates::default(),
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(stream, state.clone()));
    }
}

/// Handles one request on a connection.
async fn converse(mut stream: TcpStream, state: Arc<State>) {
    let Some(request) = receive(&mut stream).await else {
        return;
    };
    if let Err(wrong) = check(state.kind, &request) {
        state.wrong.lock().push(wrong);
    }
    state.requests.lock().push(request);
    let reply = state.replies.lock().pop_front();
    state.came.add_permits(1);
    // The client may close the connection early.
    let _ = match reply {
        None => {
            let one_too_many = "a request that no reply was made for".to_owned();
            state.wrong.lock().push(one_too_many);
            Ok(())
        }
        Some(FakeReply::Answer(status, headers, body)) => {
            send(&mut stream, status, &headers, body.as_bytes()).await
        }
        Some(FakeReply::Encoded(status, encoding, body)) => {
            let headers = [("content-encoding", encoding.to_owned())];
            send(&mut stream, status, &headers, &body).await
        }
        Some(FakeReply::Gated(gate, body)) => {
            gate.acquire().await.unwrap().forget();
            send(&mut stream, 200, &[], body.as_bytes()).await
        }
        Some(FakeReply::Silence) => std::future::pending().await,
        Some(FakeReply::Endless) => pour(&mut stream).await,
        Some(FakeReply::Close) => Ok(()),
    };
}

async fn receive(stream: &mut TcpStream) -> Option<SeenRequest> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        (stream.read_buf(&mut bytes).await.ok()? > 0).then_some(())?;
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        (stream.read_buf(&mut bytes).await.ok()? > 0).then_some(())?;
    }
    let body = String::from_utf8(bytes[head_end + 4..].to_vec()).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let form = headers.contains(&(
        "content-type".to_owned(),
        "application/x-www-form-urlencoded".to_owned(),
    ));
    let fields = if form { body.as_str() } else { query };
    Some(SeenRequest {
        method,
        path: path.to_owned(),
        parameters: url::form_urlencoded::parse(fields.as_bytes())
            .into_owned()
            .collect(),
        headers,
        body,
    })
}

async fn send(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&str, String)],
    body: &[u8],
) -> std::io::Result<()> {
    let mut text = format!(
        "HTTP/1.1 {status} Test\r\ncontent-length: {}\r\nconnection: close\r\n",
        body.len()
    );
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await
}

async fn pour(stream: &mut TcpStream) -> std::io::Result<()> {
    stream
        .write_all(b"HTTP/1.1 200 Test\r\nconnection: close\r\n\r\n{\"results\": [")
        .await?;
    loop {
        stream.write_all(&[b' '; 1 << 16]).await?;
    }
}
