//! How MCP servers behind URLs are reached: the client, and the access token that its requests carry.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, RequestBuilder, Response};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use url::Url;

use super::failure::{HttpError, RequestFailure};
use super::oauth::Tokens;
use super::post::{Envelope, get, post};
use super::read_rate::ReadRate;
use super::secrets::Secrets;
use crate::settings::mcp::McpEndpoint;
use protocol::ids::Owner;
use web::fetch::GuardedHosts;

/// Shortest pause that a server can ask for before a stream is opened again, in milliseconds.
/// Tried by `protocol::streams_that_end_at_once_are_opened_again_with_pauses_only`.
const MIN_RETRY_MS: u64 = 500;
/// Longest pause that a server can ask for before a stream is opened again, in milliseconds.
const MAX_RETRY_MS: u64 = 30_000;
/// Longest id of an event that is sent back, in bytes; a longer one counts as none.
const MAX_EVENT_ID_BYTES: usize = 1024;

type EventStream = BoxStream<'static, Result<Sse, SseError>>;

/// Where the client for a server comes from.
#[derive(Debug, Clone)]
pub(super) enum HttpAccess {
    /// A server of the settings, whose connections share a client.
    Configured {
        client: Client,
        /// Where access tokens come from, if the server wants some.
        tokens: Option<Arc<Tokens>>,
    },
    /// A server of a request: each connection has a client of its own, which reaches permitted hosts only.
    Guarded {
        /// The permitted hosts.
        hosts: GuardedHosts,
        /// Who asks.
        owner: Owner,
    },
}

/// The client of one connection.
#[derive(Debug, Clone)]
pub(super) struct McpHttpClient {
    client: Client,
    /// Where access tokens come from, if the server wants some.
    tokens: Option<Arc<Tokens>>,
    rate: ReadRate,
}

impl HttpAccess {
    /// The client for a connection.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub(super) async fn client(
        &self,
        endpoint: &McpEndpoint,
        rate: ReadRate,
    ) -> Result<McpHttpClient, RequestFailure> {
        let failed = |text: &str| RequestFailure::Unreachable(text.to_owned());
        match self {
            Self::Configured { client, tokens } => Ok(McpHttpClient {
                client: client.clone(),
                tokens: tokens.clone(),
                rate,
            }),
            Self::Guarded { hosts, owner } => {
                let (hosts, owner, url) = (hosts.clone(), owner.clone(), endpoint.url.clone());
                // Root certificates are read from the disk.
                let built = tokio::task::spawn_blocking(move || hosts.client(&owner, &url)).await;
                let client = built
                    .map_err(|error| failed(&error.to_string()))?
                    .map_err(|error| failed(&error.to_string()))?;
                Ok(McpHttpClient {
                    client,
                    tokens: None,
                    rate,
                })
            }
        }
    }
}

impl McpHttpClient {
    /// The pace of the connection.
    pub(super) fn rate(&self) -> &ReadRate {
        &self.rate
    }

    /// What a server must not repeat.
    pub(super) fn secrets(&self, endpoint: &McpEndpoint) -> Secrets {
        Secrets::new(&endpoint.headers, &endpoint.url, self.tokens.clone())
    }

    /// Sends a request, with a token if the server wants one. A token that the server refuses is replaced once.
    ///
    /// # Errors
    /// When there is no response.
    pub(super) async fn send(
        &self,
        build: impl Fn(&Client) -> RequestBuilder + Sync,
    ) -> Result<Response, RequestFailure> {
        let send = |token: Option<String>| {
            let request = build(&self.client);
            let request = match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            let sent = request.send();
            async {
                sent.await
                    .map_err(|error| RequestFailure::of_http(error.into()))
            }
        };
        let Some(tokens) = &self.tokens else {
            return send(None).await;
        };
        let token = tokens.current().await?;
        let response = send(Some(token.clone())).await?;
        match response.status() == StatusCode::UNAUTHORIZED {
            true => send(Some(tokens.after_refusal(&token).await?)).await,
            false => Ok(response),
        }
    }

    /// The same for a request of the SDK.
    async fn authorized<T, F>(
        &self,
        call: impl Fn(Option<String>) -> F + Sync,
    ) -> Result<T, HttpError>
    where
        F: Future<Output = Result<T, HttpError>> + Send,
    {
        let Some(tokens) = &self.tokens else {
            return call(None).await;
        };
        let no_token = |failure: RequestFailure| HttpError::Io(std::io::Error::other(failure));
        let token = tokens.current().await.map_err(no_token)?;
        match call(Some(token.clone())).await {
            Err(error) if is_unauthorized(&error) => {
                let fresh = tokens.after_refusal(&token).await.map_err(no_token)?;
                call(Some(fresh)).await
            }
            result => result,
        }
    }
}

impl StreamableHttpClient for McpHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let limits = StreamableHttpResponseLimits::default();
        let post = self.post_message_with_response_limits(
            uri,
            message,
            session_id,
            auth_header,
            headers,
            limits,
        );
        post.await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let url = parsed(&uri)?;
        let (url, message, headers) = (&url, &message, &headers);
        let session_id = session_id.as_deref();
        let post = self.authorized(|token| {
            let envelope = Envelope {
                url,
                session_id,
                token,
                headers,
                rate: &self.rate,
            };
            post(&self.client, message, envelope, limits)
        });
        Ok(match post.await? {
            StreamableHttpPostResponse::Sse(stream, session) => {
                StreamableHttpPostResponse::Sse(bounded(stream), session)
            }
            response => response,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let delete = self.authorized(|token| {
            let (uri, session_id) = (uri.clone(), session_id.clone());
            self.client
                .delete_session(uri, session_id, token, headers.clone())
        });
        delete.await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<EventStream, HttpError> {
        let max_bytes = StreamableHttpResponseLimits::default().max_sse_event_size;
        let get = self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            headers,
            max_bytes,
        );
        get.await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<EventStream, HttpError> {
        let url = parsed(&uri)?;
        let (url, headers) = (&url, &headers);
        let (session_id, last_event_id) = (session_id.as_deref(), last_event_id.as_deref());
        let get = self.authorized(|token| {
            let envelope = Envelope {
                url,
                session_id,
                token,
                headers,
                rate: &self.rate,
            };
            get(&self.client, last_event_id, envelope, max_sse_event_size)
        });
        get.await.map(bounded)
    }
}

fn parsed(uri: &str) -> Result<Url, HttpError> {
    Url::parse(uri).map_err(|_| HttpError::UnexpectedServerResponse("no URL".into()))
}

/// A stream whose server cannot have it opened again without a pause, or with an id of any length.
fn bounded(stream: EventStream) -> EventStream {
    let bounded = stream.map_ok(|mut event| {
        event.retry = event
            .retry
            .map(|retry| retry.clamp(MIN_RETRY_MS, MAX_RETRY_MS));
        event.id = event.id.filter(|id| id.len() <= MAX_EVENT_ID_BYTES);
        event
    });
    bounded.boxed()
}

/// Whether the server refuses the token.
fn is_unauthorized(error: &HttpError) -> bool {
    match error {
        HttpError::AuthRequired(_) => true,
        HttpError::Io(error) => {
            let failure = error.get_ref();
            let failure = failure.and_then(|error| error.downcast_ref::<RequestFailure>());
            failure.and_then(RequestFailure::status) == Some(401)
        }
        HttpError::Client(error) => error.status() == Some(StatusCode::UNAUTHORIZED),
        _ => false,
    }
}
