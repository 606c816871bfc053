//! Sends requests that no client library changes: any method, any path, any header.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::outcome::Outcome;
use crate::support::app::TestApp;
use crate::support::within;

/// Sends each request over a connection of its own.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    address: String,
    headers: HeaderMap,
}

impl Sender {
    /// A sender without a key.
    pub(super) fn of(app: &TestApp) -> Self {
        Self::to(app.origin())
    }

    /// A sender of requests to an origin.
    pub(super) fn to(origin: &str) -> Self {
        let sender = Self {
            address: origin.trim_start_matches("http://").to_owned(),
            headers: HeaderMap::new(),
        };
        // An MCP client accepts both.
        let sender = sender.with("accept", "application/json, text/event-stream");
        sender.with("host", "localhost")
    }

    /// The same sender with another value of a header.
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut sender = self.clone();
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let value = HeaderValue::from_str(value).unwrap();
        sender.headers.insert(name, value);
        sender
    }

    /// The same sender with an API key.
    pub(super) fn key(&self, key: &str) -> Self {
        self.with("authorization", &format!("Bearer {key}"))
    }

    /// Sends a request; a body is JSON, unless the sender says something else.
    pub(super) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Outcome {
        let body = body.into();
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = path.parse().unwrap();
        if !body.is_empty() {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert("content-type", json);
        }
        for (name, value) in &self.headers {
            match value.is_empty() {
                true => request.headers_mut().remove(name),
                false => request.headers_mut().insert(name, value.clone()),
            };
        }
        within(path, self.exchange(request)).await
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Outcome {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let answered = async {
            let (head, mut body) = sender.send_request(request).await.unwrap().into_parts();
            let mut outcome = Outcome::new(head.status, head.headers);
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => outcome.push(&frame.into_data().unwrap_or_default()),
                    Err(_) => outcome.breaks_off(),
                }
            }
            outcome
        };
        let mut answered = std::pin::pin!(answered);
        tokio::select! {
            outcome = &mut answered => outcome,
            // The answer may be read to its end after the connection has ended.
            _ = connection => answered.await,
        }
    }

    /// Sends these bytes, and takes what comes before the connection is closed.
    pub(super) async fn raw(&self, bytes: &str) -> Outcome {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        within("the end of the connection", read).await.unwrap();
        Outcome::parse(&answer)
    }
}
