//! A service that hooks ask: how a request is sent, signed and timed, and what counts as its failure.
//!
//! The operator has chosen the URL, so requests do not go through the guarded client of the web. Neither the URL nor a
//! header is in an error or in the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, Method, Request, Uri};
use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::event::{HookCall, HookEvent};
use super::failure::HookFailure;
use super::record::HookedTurn;
use super::settings::HookServiceSettings;
use super::{HookMeter, OnFailure};
use net::{
    BodyError, CaCertificates, CappedBody, ClientError, ClientOptions, HttpClient, RequestBody,
    SigningKey, with_configured,
};
use protocol::ids::{SessionId, WorkspaceId, fresh_delivery_id};

/// How long an idle connection is kept. Common servers close idle connections after 5 s, and a request on one that is being
/// closed fails.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// The value of the `user-agent` header.
const USER_AGENT: &str = concat!("loopwright/", env!("CARGO_PKG_VERSION"));

/// A service that hooks ask.
pub(super) struct HookService {
    /// What it is called in notices and in the log.
    pub(super) name: Arc<str>,
    /// What a failure means.
    pub(super) on_failure: OnFailure,
    client: HttpClient,
    uri: Uri,
    /// The headers of every request, those from the settings included.
    headers: HeaderMap,
    key: Option<SigningKey>,
    timeout: Duration,
    max_answer_bytes: usize,
    meter: Arc<dyn HookMeter>,
}

/// Why hooks cannot be set up. The texts contain neither a URL nor a secret.
#[derive(Debug, thiserror::Error)]
pub enum HookSetupError {
    /// The HTTP client cannot be created, most likely because there are no root certificates.
    #[error("the HTTP client for hooks cannot be created")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The URL cannot be requested.
    #[error("{0}: its URL must be an http or https URL without credentials")]
    Url(Arc<str>),
    /// The secret is not a Standard Webhooks secret.
    #[error("{0}: its secret must be a Standard Webhooks secret: 'whsec_' followed by base64")]
    Secret(Arc<str>),
    /// The patterns for tools cannot be used.
    #[error("{0}: its patterns in 'tools' cannot be used")]
    Tools(Arc<str>),
}

/// The client that all services share. It follows no redirects and uses no proxy.
pub(super) fn client(
    tls: bool,
    certificates: &CaCertificates,
) -> Result<HttpClient, HookSetupError> {
    let options = ClientOptions {
        user_agent: Some(HeaderValue::from_static(USER_AGENT)),
        pool_idle_timeout: POOL_IDLE,
        tls,
        certificates: certificates.clone(),
        ..ClientOptions::default()
    };
    let client = options.build_http();
    client.map_err(|error| HookSetupError::Client(error.into()))
}

impl HookService {
    /// The service of these settings, with a client of its own.
    pub(super) fn alone(
        name: &str,
        settings: &HookServiceSettings,
        certificates: &CaCertificates,
        meter: &Arc<dyn HookMeter>,
    ) -> Result<Self, HookSetupError> {
        let client = client(settings.url.scheme() == "https", certificates)?;
        Self::new(name.into(), &client, settings, meter)
    }

    pub(super) fn new(
        name: Arc<str>,
        client: &HttpClient,
        settings: &HookServiceSettings,
        meter: &Arc<dyn HookMeter>,
    ) -> Result<Self, HookSetupError> {
        let url = &settings.url;
        let is_usable = matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none();
        let uri = Uri::try_from(url.as_str()).ok().filter(|_| is_usable);
        let uri = uri.ok_or_else(|| HookSetupError::Url(name.clone()))?;
        let key = settings.secret.as_ref().map(|secret| {
            SigningKey::new(secret).ok_or_else(|| HookSetupError::Secret(name.clone()))
        });
        Ok(Self {
            key: key.transpose()?,
            name,
            on_failure: settings.on_failure,
            client: client.clone(),
            uri,
            headers: base_headers(&settings.headers),
            timeout: settings.timeout,
            max_answer_bytes: settings.max_answer_bytes,
            meter: meter.clone(),
        })
    }

    /// Asks the service about an event, and reads its answer. A failure is counted and logged.
    ///
    /// # Errors
    /// When there is no answer in time, or none that can be used.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub(super) async fn ask<T>(
        &self,
        turn: &HookedTurn<'_>,
        event: HookEvent<'_>,
        read: impl FnOnce(&[u8]) -> Result<T, HookFailure> + Send,
    ) -> Result<T, HookFailure> {
        let began = Instant::now();
        let left = turn.deadline.map(|at| at.saturating_duration_since(began));
        let limit = left.map_or(self.timeout, |left| left.min(self.timeout));
        let answer = match self.request(turn, event) {
            Ok(request) => self.exchange_within(limit, request).await,
            Err(failure) => Err(failure),
        };
        let answer = answer.and_then(|body| read(&body));
        self.note(event.name(), began, answer.as_ref().err());
        answer
    }

    /// Tells the service something that it need not answer. A failure is counted and logged.
    ///
    /// # Errors
    /// When it does not answer with success in time.
    ///
    /// # Cancel safety
    /// As [`Self::ask`].
    pub(super) async fn send(&self, event: &'static str, body: Vec<u8>) -> Result<(), HookFailure> {
        let began = Instant::now();
        let answer = match self.signed(body) {
            Ok(request) => self.exchange_within(self.timeout, request).await,
            Err(failure) => Err(failure),
        };
        self.note(event, began, answer.as_ref().err());
        answer.map(drop)
    }

    fn note(&self, event: &'static str, began: Instant, failure: Option<&HookFailure>) {
        let reason = failure.map(HookFailure::reason);
        self.meter.hook_asked(event, began.elapsed(), reason);
        if let Some(failure) = failure {
            let (hook, hook_event) = (&*self.name, event);
            tracing::warn!(hook, hook_event, %failure, "a hook failed");
        }
    }

    async fn exchange_within(
        &self,
        limit: Duration,
        request: Request<RequestBody>,
    ) -> Result<Bytes, HookFailure> {
        let exchanged = timeout(limit, self.exchange(request)).await;
        exchanged.unwrap_or(Err(HookFailure::TimedOut(limit)))
    }

    fn request(
        &self,
        turn: &HookedTurn<'_>,
        event: HookEvent<'_>,
    ) -> Result<Request<RequestBody>, HookFailure> {
        let session_id = turn.session_id;
        let session_key = session_id.map(|session| WorkspaceId::of(turn.owner, session));
        let call = HookCall {
            session_id: session_id.map(SessionId::as_str),
            event,
            owner: turn.owner.name(),
            session_key: session_key.as_ref().map(WorkspaceId::as_str),
            request_id: turn.request_id.as_str(),
            run_id: Some(turn.run_id.as_str()),
            round: Some(turn.round),
            model: Some(turn.model),
        };
        let body = serde_json::to_vec(&call).map_err(|_| HookFailure::Unwritten)?;
        let mut request = self.signed(body)?;
        request.headers_mut().extend(turn.trace.clone());
        Ok(request)
    }

    fn signed(&self, body: Vec<u8>) -> Result<Request<RequestBody>, HookFailure> {
        let mut headers = self.headers.clone();
        if let Some(key) = &self.key {
            let id = fresh_delivery_id();
            key.sign(&id, &body, &mut headers)
                .ok_or(HookFailure::Unwritten)?;
        }
        let mut request = Request::new(RequestBody::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn exchange(&self, request: Request<RequestBody>) -> Result<Bytes, HookFailure> {
        // The texts of these errors have no address.
        let broken = |error: ClientError| HookFailure::Connection(error.to_string());
        let response = self.client.execute(request).await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(HookFailure::Status(response.status().as_u16()));
        }
        let encoding = response.headers().get(CONTENT_ENCODING);
        if encoding.is_some_and(|value| !value.is_empty() && value != "identity") {
            return Err(HookFailure::Compressed);
        }
        let unread = |error| match error {
            BodyError::TooLarge(limit) => HookFailure::TooLarge(limit),
            BodyError::Broken(error) => broken(error),
        };
        let body = CappedBody::new(response.into_body(), self.max_answer_bytes).map_err(unread)?;
        body.whole().await.map_err(unread)
    }
}

impl fmt::Debug for HookService {
    /// Omits the URL and the headers, which may contain secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HookService")
            .field("name", &self.name)
            .field("signed", &self.key.is_some())
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}

/// The headers that are the same for every request.
fn base_headers(configured: &HeaderMap) -> HeaderMap {
    let json = HeaderValue::from_static("application/json");
    let headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
    with_configured(headers, configured)
}
