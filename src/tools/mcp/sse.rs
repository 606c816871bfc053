//! The transport of the protocol of 2024-11-05: the server's messages come on one stream of events, whose first event
//! names the endpoint that takes messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use parking_lot::Mutex;
use reqwest::Response;
use rmcp::RoleClient;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::failure::RequestFailure;
use super::http::McpHttpClient;
use super::message::{self, ServerMessage};
use super::post::refused;
use super::read_rate::{MESSAGE_BYTES, ReadRate};
use super::secrets::Secrets;
use super::stdio::Ending;
use crate::settings::mcp::McpEndpoint;
use protocol::sse::{SseDecoder, SseError, SseEvent};

/// Most events before the one that names the endpoint. After them the server is not used.
/// Tried by `sse::a_hostile_stream_gets_no_credentials_elsewhere_and_no_memory`.
const MAX_EARLY_EVENTS: usize = 16;
/// Longest URL of the endpoint, in bytes. With a longer one the server is not used.
/// Tried by `sse::an_endpoint_is_of_the_origin_of_its_server`.
const MAX_ENDPOINT_BYTES: usize = 4096;
/// How long the server may take to take a message. After it the call fails.
const POST_LIMIT: Duration = Duration::from_secs(30);

/// A connection of this transport.
pub(super) struct SseTransport {
    http: McpHttpClient,
    headers: HeaderMap,
    secrets: Arc<Secrets>,
    /// Takes messages; of the same origin as the stream.
    endpoint: Url,
    stream: EventStream,
    ending: Ending,
    posted: PostedRequests,
}

/// Requests whose POST is not answered yet, with what is cancelled once it is. Every message has a POST of its own, so
/// that without this a cancellation could arrive before its request.
#[derive(Clone, Default)]
struct PostedRequests(Arc<Mutex<HashMap<RequestId, CancellationToken>>>);

/// A request whose POST is not answered yet.
struct PostedRequest {
    id: RequestId,
    all: PostedRequests,
}

impl Drop for PostedRequest {
    fn drop(&mut self) {
        if let Some(answered) = self.all.0.lock().remove(&self.id) {
            answered.cancel();
        }
    }
}

impl PostedRequests {
    /// Notes a request.
    fn begin(&self, message: &TxJsonRpcMessage<RoleClient>) -> Option<PostedRequest> {
        let JsonRpcMessage::Request(request) = message else {
            return None;
        };
        let id = request.id.clone();
        self.0.lock().insert(id.clone(), CancellationToken::new());
        Some(PostedRequest {
            id,
            all: self.clone(),
        })
    }

    /// What a cancellation has to wait for.
    fn cancelled(&self, message: &TxJsonRpcMessage<RoleClient>) -> Option<CancellationToken> {
        let JsonRpcMessage::Notification(notification) = message else {
            return None;
        };
        let ClientNotification::CancelledNotification(cancelled) = &notification.notification
        else {
            return None;
        };
        let id = cancelled.params.request_id.as_ref()?;
        self.0.lock().get(id).cloned()
    }
}

/// The server's events.
struct EventStream {
    /// `None` once it is closed.
    response: Option<Response>,
    decoder: SseDecoder,
    rate: ReadRate,
}

impl SseTransport {
    /// Opens the stream and waits for the endpoint. The time is not bounded here.
    ///
    /// # Errors
    /// When the server has no such stream, or names an endpoint elsewhere.
    pub(super) async fn open(
        http: &McpHttpClient,
        server: &McpEndpoint,
        max_bytes: usize,
        ending: Ending,
    ) -> Result<Self, RequestFailure> {
        let get = http.send(|client| {
            let request = client.get(server.url.clone());
            let request = request.headers(server.headers.clone());
            request.header(ACCEPT, "text/event-stream")
        });
        let response = get.await?;
        if !response.status().is_success() {
            return Err(refused(response, &http.secrets(server)).await);
        }
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("text/event-stream") {
            return Err(unusable("it is no stream of events"));
        }
        let mut stream = EventStream {
            response: Some(response),
            decoder: SseDecoder::new(max_bytes),
            rate: http.rate().clone(),
        };
        for _ in 0..MAX_EARLY_EVENTS {
            match stream.next().await {
                Some(Ok(event)) if event.event.as_deref() == Some("endpoint") => {
                    return Ok(Self {
                        http: http.clone(),
                        headers: server.headers.clone(),
                        secrets: Arc::new(http.secrets(server)),
                        endpoint: endpoint(&server.url, &event.data)?,
                        stream,
                        ending,
                        posted: PostedRequests::default(),
                    });
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(unusable(&error.to_string())),
                None => return Err(unusable("the stream ends before it names an endpoint")),
            }
        }
        Err(unusable("the stream does not begin with an endpoint"))
    }
}

fn unusable(text: &str) -> RequestFailure {
    RequestFailure::Unusable(text.to_owned())
}

/// The endpoint that a server names, which has to be of its own origin: it is sent the server's credentials.
fn endpoint(server: &Url, named: &[u8]) -> Result<Url, RequestFailure> {
    let named = std::str::from_utf8(named).ok().map(str::trim);
    let named = named.filter(|named| named.len() <= MAX_ENDPOINT_BYTES);
    let url = named.and_then(|named| server.join(named).ok());
    let url = url.ok_or_else(|| unusable("the endpoint that it names is no URL"))?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_user || url.origin() != server.origin() {
        return Err(unusable("the endpoint that it names is not of its origin"));
    }
    Ok(url)
}

impl EventStream {
    /// The next event; `None` at the end. Cancel safe.
    async fn next(&mut self) -> Option<Result<SseEvent, SseError>> {
        loop {
            self.rate.ready().await;
            if let Some(event) = self.decoder.next_event() {
                self.rate.take(MESSAGE_BYTES);
                return Some(event);
            }
            let chunk = self.response.as_mut()?.chunk().await.ok().flatten()?;
            self.rate.take(chunk.len());
            self.decoder.push(chunk);
        }
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = RequestFailure;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), RequestFailure>> + Send + 'static {
        let (http, endpoint, headers) = (
            self.http.clone(),
            self.endpoint.clone(),
            self.headers.clone(),
        );
        let secrets = self.secrets.clone();
        let (posted, earlier) = (self.posted.begin(&item), self.posted.cancelled(&item));
        async move {
            if let Some(earlier) = earlier {
                earlier.cancelled().await;
            }
            let _until_it_is_answered = posted;
            let body = serde_json::to_vec(&item);
            let body = Bytes::from(body.map_err(|_| unusable("the message cannot be written"))?);
            let post = http.send(|client| {
                let request = client.post(endpoint.clone()).headers(headers.clone());
                let request = request.header(CONTENT_TYPE, "application/json");
                request.body(body.clone())
            });
            let sent = timeout(POST_LIMIT, post).await;
            let sent = sent.unwrap_or_else(|_elapsed| {
                Err(RequestFailure::Ended("it takes no messages".to_owned()))
            });
            let response = sent?;
            match response.status().is_success() {
                true => Ok(()),
                false => Err(refused(response, &secrets).await),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerMessage> {
        loop {
            let event = match self.stream.next().await? {
                Ok(event) => event,
                Err(error) => {
                    *self.ending.lock() = error.to_string();
                    return None;
                }
            };
            if !matches!(event.event.as_deref(), None | Some("message")) {
                continue;
            }
            // A text that is no message and no answer to a request is left out, as on standard output.
            let read = message::read(&event.data).or_else(|problem| {
                let failed = message::unreadable(&event.data, problem);
                failed.ok_or(problem)
            });
            if let Ok(message) = read {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), RequestFailure> {
        self.stream.response = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_of_the_origin_of_its_server() {
        let server: Url = "https://h.example/a/sse?token=1".parse().unwrap();
        for (named, expected) in [
            ("/messages?id=1", "https://h.example/messages?id=1"),
            ("messages", "https://h.example/a/messages"),
            (" https://h.example:443/m \n", "https://h.example/m"),
        ] {
            let url = endpoint(&server, named.as_bytes()).map(String::from);
            assert_eq!(url.unwrap(), expected);
        }
        let long = format!("/{}", "x".repeat(MAX_ENDPOINT_BYTES));
        for named in [
            "http://h.example/m",
            "https://h.example:8443/m",
            "https://evil.example/m",
            "//evil.example/m",
            "https://u:p@h.example/m",
            "file:///etc/passwd",
            "https://",
            &long,
        ] {
            assert!(endpoint(&server, named.as_bytes()).is_err(), "{named}");
        }
        assert!(endpoint(&server, b"/\xff").is_err());
    }
}
