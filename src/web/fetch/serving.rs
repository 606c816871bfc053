//! A test server on loopback, and settings that permit it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::settings::FetchSettings;

/// The response for a path.
#[derive(Debug, Clone)]
pub(crate) enum ServedReply {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// These bytes, then `again` repeatedly.
    Endless {
        head: Vec<u8>,
        again: Vec<u8>,
        every: Duration,
    },
}

/// A server that stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
    _tasks: JoinSet<()>,
}

/// Settings for the public internet.
pub(crate) fn settings() -> FetchSettings {
    FetchSettings {
        user_agent: "loopwright/0.1 (tests)".to_owned(),
        connect_timeout: Duration::from_secs(5),
        timeout: Duration::from_secs(20),
        max_bytes: 100_000,
        max_redirects: 3,
        ports: vec![80, 443],
        allow: Vec::new(),
        block: Vec::new(),
        private: Vec::new(),
        robots: false,
        per_host: 4,
        host_interval: Duration::ZERO,
    }
}

/// Settings that permit loopback.
pub(crate) fn local_settings() -> FetchSettings {
    FetchSettings {
        private: vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
        ..settings()
    }
}

/// A response with these header fields.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> ServedReply {
    let mut bytes = head(status, headers);
    let end = bytes.split_off(bytes.len() - 2);
    bytes.extend(format!("content-length: {}\r\n", body.len()).into_bytes());
    bytes.extend(end);
    bytes.extend(body);
    ServedReply::Bytes(bytes)
}

/// An HTML page.
pub(crate) fn page(body: &str) -> ServedReply {
    answer(200, &[("content-type", "text/html")], body.as_bytes())
}

/// The head of a response whose body ends with the connection.
pub(crate) fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

impl Server {
    /// Serves these paths, and 404 for others.
    pub(crate) async fn start<const N: usize>(replies: [(&str, ServedReply); N]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let replies: HashMap<String, ServedReply> = replies
            .into_iter()
            .map(|(path, reply)| (path.to_owned(), reply))
            .collect();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&requests);
        let replies = Arc::new(replies);
        let mut tasks = JoinSet::new();
        let task = tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&replies), Arc::clone(&heard)));
            }
        });
        Self {
            address,
            requests,
            task,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    /// The paths of the requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        let requests = self.requests();
        let path = |request: &String| request.split(' ').nth(1).unwrap_or_default().to_owned();
        requests.iter().map(path).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    replies: Arc<HashMap<String, ServedReply>>,
    heard: Arc<Mutex<Vec<String>>>,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or_default() == 0 {
            return;
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    heard.lock().push(request);
    let reply = replies.get(&path).cloned();
    let _gone = match reply.unwrap_or_else(|| answer(404, &[], b"")) {
        ServedReply::Bytes(bytes) => stream.write_all(&bytes).await,
        ServedReply::Endless { head, again, every } => {
            repeat(&mut stream, &head, &again, every).await
        }
    };
    let _gone = stream.shutdown().await;
}

async fn repeat(
    stream: &mut TcpStream,
    head: &[u8],
    again: &[u8],
    every: Duration,
) -> std::io::Result<()> {
    stream.write_all(head).await?;
    loop {
        stream.write_all(again).await?;
        tokio::time::sleep(every).await;
    }
}
