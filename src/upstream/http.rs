//! An upstream over HTTP, with its own connection pool.
//!
//! Encodes calls, sets headers, applies the time-outs and classifies failures. It does not retry, and does not choose
//! between upstreams.

mod events;
mod failure;
mod reader;
mod request;
mod response;
mod tokenize;

use std::sync::{Arc, OnceLock};

use ::http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT,
    HOST,
};
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use secrecy::ExposeSecret;
use tokio::time::{Instant, timeout, timeout_at};

use self::events::ResponseEvents;
use self::reader::{BodyReader, ForwardedBody};
use self::request::{Upload, chat_body, join_url};
use self::response::{client_headers, decoded};
use super::decode::ChunkDecoder;
use super::headers::{remove_headers, strip_headers, strip_hop_by_hop};
use super::refusal::KeyRefusals;
use super::settings::{KeySource, Quirks, ServerKind, Settings};
use super::{
    BoxError, ForwardBody, ForwardRequest, ForwardResponse, MODELS_PATH, ModelCall, ModelStream,
    Upstream, UpstreamError,
};
use net::{ClientOptions, HttpClient, ReceivedBody, RequestBody};

/// Path of chat requests below the base URL.
const CHAT_PATH: &str = "/chat/completions";
/// The user agent if the client sent none.
const USER_AGENT: &str = concat!("loopwright/", env!("CARGO_PKG_VERSION"));
/// An upstream over HTTP.
#[derive(Debug)]
pub(crate) struct HttpUpstream {
    name: Arc<str>,
    client: HttpClient,
    chat_uri: Uri,
    authorization: Option<HeaderValue>,
    settings: Settings,
    /// The quirks as long as the kind is not found.
    quirks: Quirks,
    /// The kind, if it was found out, and the quirks with it.
    found: OnceLock<(ServerKind, Quirks)>,
    refusals: KeyRefusals,
}

/// Why the HTTP client of an upstream cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HttpUpstreamError {
    /// The key has characters that are not allowed in a header.
    #[error("the api key of upstream {0} holds characters that a header cannot carry")]
    ApiKey(String),
    /// The base URL cannot be extended by a path.
    #[error("the base URL of upstream {0} must be an http or https URL")]
    BaseUrl(String),
    /// The client cannot be made.
    #[error("could not set up the client of upstream {upstream}")]
    Client {
        /// The upstream's configured name.
        upstream: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
}

impl HttpUpstream {
    /// Makes the client of one upstream without connecting.
    ///
    /// # Errors
    /// When the settings cannot be used for a client.
    pub(crate) fn new(settings: Settings) -> Result<Self, HttpUpstreamError> {
        let authorization = settings
            .api_key
            .as_ref()
            .map(|key| HeaderValue::try_from(format!("Bearer {}", key.expose_secret())))
            .transpose()
            .map_err(|_| HttpUpstreamError::ApiKey(settings.name.clone()))?
            .map(|mut value| {
                value.set_sensitive(true);
                value
            });
        let chat_url = join_url(&settings.base_url, CHAT_PATH)
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| HttpUpstreamError::BaseUrl(settings.name.clone()))?;
        let options = ClientOptions {
            user_agent: Some(HeaderValue::from_static(USER_AGENT)),
            connect_timeout: settings.connect_timeout,
            tls: chat_url.scheme() == "https",
            certificates: settings.certificates.clone(),
            ..ClientOptions::default()
        };
        let chat_uri = Uri::try_from(chat_url.as_str())
            .map_err(|_| HttpUpstreamError::BaseUrl(settings.name.clone()))?;
        let client = options
            .build_http()
            .map_err(|error| HttpUpstreamError::Client {
                upstream: settings.name.clone(),
                source: Box::new(error),
            })?;
        Ok(Self {
            name: settings.name.as_str().into(),
            client,
            chat_uri,
            authorization,
            quirks: settings.quirks.settle(settings.kind),
            found: OnceLock::new(),
            refusals: KeyRefusals::default(),
            settings,
        })
    }

    async fn call(&self, call: &ModelCall) -> Result<ModelStream, UpstreamError> {
        let quirks = self.quirks();
        let mut request = Request::new(chat_body(call, self.model_name(&call.model), quirks).await);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.chat_uri.clone();
        *request.headers_mut() = self.call_headers(call);
        // Without streaming, the head arrives only when the whole response is ready.
        let wait = if quirks.streams && call.streams {
            self.settings.first_byte_timeout
        } else {
            self.settings
                .first_byte_timeout
                .max(self.settings.idle_timeout)
        };
        let mut response = timeout(wait, self.client.execute(request))
            .await
            .map_err(|_| self.timeout_error("first byte", wait))?
            .map_err(|error| self.request_error(error))?;
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            self.refusals.note(status, self);
            return Err(self.error_status(response).await);
        }
        if !status.is_success() {
            return Err(UpstreamError::Malformed {
                upstream: self.name.clone(),
                reason: format!("the status is {}", status.as_u16()),
                retryable: false,
            });
        }
        let mut headers = std::mem::take(response.headers_mut());
        let body = decoded(&mut headers, response.into_body());
        if headers
            .get(CONTENT_ENCODING)
            .is_some_and(|coding| coding != "identity")
        {
            return Err(UpstreamError::Malformed {
                upstream: self.name.clone(),
                reason: "the body has an encoding that is not known".into(),
                retryable: false,
            });
        }
        let reader = BodyReader::new(body, self.settings.idle_timeout);
        let mut decoder = ChunkDecoder::new(quirks);
        if let Some(tools) = call.tools.clone().filter(|_| quirks.text_calls) {
            decoder = decoder.with_text_calls(tools);
        }
        let answer_id = decoder.answer_id();
        let events = ResponseEvents::new(
            self.name.clone(),
            reader,
            decoder,
            self.settings.max_stream_bytes,
        );
        Ok(ModelStream {
            headers: client_headers(&headers),
            answer_id,
            events: events.boxed(),
        })
    }

    async fn forward_request(
        &self,
        request: ForwardRequest,
    ) -> Result<ForwardResponse, UpstreamError> {
        // The caller that asks for the models reports a faulty answer itself.
        let is_list = request.path_and_query == MODELS_PATH;
        let uri = match request.path_and_query.as_str() {
            // The common case. It saves the few microseconds of parsing a URL.
            CHAT_PATH => Some(self.chat_uri.clone()),
            other => join_url(&self.settings.base_url, other)
                .and_then(|url| Uri::try_from(url.as_str()).ok()),
        };
        let Some(uri) = uri else {
            return Err(self.not_found());
        };
        let mut headers = request.headers;
        strip_headers(&mut headers, |name| {
            [HOST, CONTENT_LENGTH, EXPECT].contains(name)
        });
        self.set_configured_headers(&mut headers);
        let upload = Arc::new(Upload::new());
        let mut outgoing = Request::new(match request.body {
            ForwardBody::Full(bytes) => bytes.into(),
            ForwardBody::Stream { stream, length } => {
                if let Some(length) = length {
                    headers.insert(CONTENT_LENGTH, length.into());
                }
                RequestBody::wrap_stream(upload.clone().watch(stream))
            }
        });
        *outgoing.method_mut() = request.method;
        *outgoing.uri_mut() = uri;
        *outgoing.headers_mut() = headers;
        let mut response = self.head_after_upload(outgoing, &upload).await?;
        let status = response.status();
        if !is_list {
            self.refusals.note(status, self);
        }
        let mut headers = std::mem::take(response.headers_mut());
        strip_hop_by_hop(&mut headers);
        let reader = BodyReader::new(response.into_body(), self.settings.idle_timeout);
        Ok(ForwardResponse {
            status,
            headers,
            body: ForwardedBody::new(self.name.clone(), reader).boxed(),
        })
    }

    /// Waits for the response head. The time-out starts again whenever a part of the client's body arrives.
    async fn head_after_upload(
        &self,
        request: Request<RequestBody>,
        upload: &Upload,
    ) -> Result<Response<ReceivedBody>, UpstreamError> {
        let limit = self.settings.first_byte_timeout;
        let mut answer = std::pin::pin!(self.client.execute(request));
        loop {
            let deadline = upload.last_progress() + limit;
            match timeout_at(deadline, &mut answer).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(_)) if upload.broke_off() => return Err(UpstreamError::RequestBody),
                Ok(Err(error)) => return Err(self.request_error(error)),
                Err(_) if upload.last_progress() + limit > Instant::now() => {}
                Err(_) => return Err(self.timeout_error("first byte", limit)),
            }
        }
    }

    fn call_headers(&self, call: &ModelCall) -> HeaderMap {
        let mut headers = HeaderMap::clone(&call.headers);
        remove_headers(&mut headers, |name| {
            [HOST, CONTENT_LENGTH, ACCEPT_ENCODING, EXPECT].contains(name)
        });
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Without it any encoding would be acceptable.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let accept = if self.quirks().streams && call.streams {
            "text/event-stream"
        } else {
            "application/json"
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        self.set_configured_headers(&mut headers);
        if let Some(name) = &self.settings.affinity_header
            && let Ok(key) = HeaderValue::from_str(call.session.as_str())
        {
            headers.insert(name.clone(), key);
        }
        headers
    }

    /// Sets the key and the configured headers; they replace the client's headers of the same names.
    fn set_configured_headers(&self, headers: &mut HeaderMap) {
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        for name in self.settings.headers.keys() {
            headers.remove(name);
        }
        for (name, value) in &self.settings.headers {
            headers.append(name.clone(), value.clone());
        }
    }
}

impl Upstream for HttpUpstream {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Option<ServerKind> {
        let found = || self.found.get().map(|(kind, _)| *kind);
        self.settings.kind.or_else(found)
    }

    fn recognise(&self, kind: ServerKind) {
        if self.settings.kind.is_none() {
            let settle = || (kind, self.settings.quirks.settle(Some(kind)));
            let _first_kind_stays = self.found.get_or_init(settle);
        }
    }

    fn address(&self) -> &str {
        self.settings.base_url.as_str()
    }

    fn key_source(&self) -> &KeySource {
        &self.settings.key_source
    }

    fn quirks(&self) -> &Quirks {
        self.found.get().map_or(&self.quirks, |(_, quirks)| quirks)
    }

    fn model_name<'a>(&'a self, model: &'a str) -> &'a str {
        self.settings.model_name(model)
    }

    fn stream<'a>(
        &'a self,
        call: &'a ModelCall,
    ) -> BoxFuture<'a, Result<ModelStream, UpstreamError>> {
        Box::pin(self.call(call))
    }

    fn count_tokens<'a>(&'a self, call: &'a ModelCall) -> BoxFuture<'a, Option<u64>> {
        Box::pin(self.tokenize(call))
    }

    fn forward(
        &self,
        request: ForwardRequest,
    ) -> BoxFuture<'_, Result<ForwardResponse, UpstreamError>> {
        Box::pin(self.forward_request(request))
    }
}

#[cfg(test)]
mod tests;
