//! Tools behind HTTP: the dispatch URL and the `[[tools]]` entries.
//!
//! Defines the request of a call, its signature, the meaning of a response and the retries. The total time of a call is
//! not bounded here: [`super::batch`] drops a call that takes too long, which closes its connection.

pub(crate) mod parts;
mod refusal;
mod request;
mod response;
mod result;
mod retry;
mod schema;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Method, StatusCode};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};
use url::Url;

use self::request::PreparedCall;
use self::retry::{AttemptError, RetryCondition, RetryDelays, WebhookError};
use super::settings::{DispatchSettings, EndpointSettings, HttpToolSettings, Settings};
use super::{Tool, ToolError, ToolInvocation, ToolOutput, ToolPolicy, ToolSource};
use net::{ClientOptions, HttpClient, SigningKey};
use protocol::openai::tool::ToolDefinition;

pub use self::request::WebhookCall;
pub use self::schema::WebhookResult;

/// How long an idle connection is kept. Common servers close idle connections after 5 s. A call sent on a connection
/// that the server is closing fails, and only idempotent tools could be retried.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// The value of the `user-agent` header.
const USER_AGENT: &str = concat!("loopwright/", env!("CARGO_PKG_VERSION"));

/// The HTTP client that all tools share; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct WebhookClient(HttpClient);

/// An HTTP endpoint and how it is called; shared by all tools that it runs.
pub struct Endpoint {
    client: WebhookClient,
    url: Url,
    method: Method,
    /// The headers of every call, those from the configuration included.
    headers: HeaderMap,
    signer: Option<SigningKey>,
    max_answer_bytes: usize,
    max_retries: u32,
    policy: ToolPolicy,
}

/// Why an endpoint's configuration is invalid. The texts contain neither the URL nor the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The URL's scheme is neither `http` nor `https`, or it has no host.
    #[error("its URL must be an http or https URL")]
    Url,
    /// The URL holds a user name or a password, which would appear in logs.
    #[error("its URL must not hold credentials; give them as a header")]
    Credentials,
    /// The HTTP method is not supported.
    #[error("the method '{0}' is not supported; use GET, POST, PUT, PATCH or DELETE")]
    Method(Method),
    /// The secret is not a Standard Webhooks secret.
    #[error("its secret must be a Standard Webhooks secret: 'whsec_' followed by base64")]
    Secret,
}

/// A tool that is run by an HTTP endpoint.
#[derive(Debug)]
pub(crate) struct HttpTool {
    definition: ToolDefinition,
    endpoint: Arc<Endpoint>,
}

impl WebhookClient {
    /// Creates the client. No connection is opened.
    ///
    /// # Errors
    /// When the client cannot be created.
    pub(crate) fn new(settings: &Settings) -> Result<Self, reqwest::Error> {
        let mut urls = settings
            .http_tools
            .iter()
            .map(|tool| &tool.endpoint)
            .chain(settings.dispatch.iter().map(|dispatch| &dispatch.endpoint))
            .map(|endpoint| &endpoint.url);
        let options = ClientOptions {
            user_agent: Some(HeaderValue::from_static(USER_AGENT)),
            connect_timeout: settings.connect_timeout,
            pool_idle_timeout: POOL_IDLE,
            tls: urls.any(|url| url.scheme() == "https"),
            certificates: settings.certificates.clone(),
            ..ClientOptions::default()
        };
        options.build_http().map(Self)
    }
}

impl Endpoint {
    /// Creates the endpoint of the dispatch URL.
    ///
    /// # Errors
    /// When the URL, the method or the secret cannot be used.
    pub(crate) fn dispatch(
        client: &WebhookClient,
        settings: &DispatchSettings,
    ) -> Result<Self, EndpointError> {
        let policy = ToolPolicy {
            sequential: settings.sequential,
            idempotent: settings.idempotent,
            ..ToolPolicy::new(ToolSource::Dispatch, settings.endpoint.timeout)
        };
        Self::new(client, &settings.endpoint, policy)
    }

    fn new(
        client: &WebhookClient,
        settings: &EndpointSettings,
        policy: ToolPolicy,
    ) -> Result<Self, EndpointError> {
        let url = &settings.url;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(EndpointError::Url);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        let methods = [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ];
        if !methods.contains(&settings.method) {
            return Err(EndpointError::Method(settings.method.clone()));
        }
        let signer = settings.secret.as_ref();
        let signer = signer.map(|secret| SigningKey::new(secret).ok_or(EndpointError::Secret));
        Ok(Self {
            client: client.clone(),
            url: url.clone(),
            method: settings.method.clone(),
            headers: request::base_headers(&settings.method, &settings.headers),
            signer: signer.transpose()?,
            max_answer_bytes: settings.max_answer_bytes,
            max_retries: settings.max_retries,
            policy,
        })
    }

    /// Makes a call and retries it where [`RetryCondition`] allows it.
    async fn call(&self, invocation: &ToolInvocation) -> Result<ToolOutput, ToolError> {
        let deadline = Instant::now().checked_add(self.policy.timeout);
        let outgoing = PreparedCall::new(self, invocation)?;
        let mut delays = RetryDelays::new(self.max_retries);
        loop {
            let failure = match self.attempt(&outgoing, invocation).await {
                Ok(output) => return Ok(output),
                Err(failure) => failure,
            };
            let may_retry = match failure.retry {
                RetryCondition::Always => true,
                RetryCondition::IfIdempotent => self.policy.idempotent,
                RetryCondition::Never => false,
            };
            let remaining = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match delays.next(failure.retry_after, remaining) {
                Some(delay) if may_retry => sleep(delay).await,
                Some(_) | None => {
                    self.note_unknown_tool(&failure.error, &invocation.name);
                    return Err(failure.error.into());
                }
            }
        }
    }

    /// Logs which setting matters if the dispatch URL does not have a tool that the request declared.
    fn note_unknown_tool(&self, error: &WebhookError, tool: &str) {
        let unknown = matches!(
            error,
            WebhookError::Status {
                status: StatusCode::NOT_FOUND,
                ..
            }
        );
        if unknown && self.policy.source == ToolSource::Dispatch {
            tracing::warn!(
                tool,
                "the dispatch URL answered 404 for a tool that the request declared; if the tool is the client's, leave it \
                 out of `dispatch_tools` (--dispatch-tools)"
            );
        }
    }

    async fn attempt(
        &self,
        outgoing: &PreparedCall,
        invocation: &ToolInvocation,
    ) -> Result<ToolOutput, AttemptError> {
        let request = outgoing.request(self)?;
        let sent = self.client.0.execute(request).await;
        let response = sent.map_err(AttemptError::no_response)?;
        if !response.status().is_success() {
            let mut failure = AttemptError::from_status(response.status(), response.headers());
            if let WebhookError::Status { words, .. } = &mut failure.error {
                *words = refusal::words(response).await;
            }
            return Err(failure);
        }
        response::read(response, self.max_answer_bytes, invocation).await
    }
}

impl HttpTool {
    /// Creates the tool of a `[[tools]]` entry.
    ///
    /// # Errors
    /// When the URL, the method or the secret cannot be used.
    pub(crate) fn from_settings(
        client: &WebhookClient,
        settings: &HttpToolSettings,
    ) -> Result<Self, EndpointError> {
        let policy = ToolPolicy {
            sequential: settings.sequential,
            idempotent: settings.idempotent,
            read_only: settings.read_only,
            destructive: settings.destructive,
            open_world: settings.open_world,
            repeatable: settings.repeatable,
            ..ToolPolicy::new(ToolSource::Http, settings.endpoint.timeout)
        };
        let definition = ToolDefinition::function(
            &settings.name,
            &settings.description,
            &settings.parameters_json,
        );
        Ok(Self {
            definition,
            endpoint: Arc::new(Endpoint::new(client, &settings.endpoint, policy)?),
        })
    }

    /// Creates a tool that the client declared and that the endpoint runs.
    pub(crate) fn dispatched(endpoint: &Arc<Endpoint>, definition: ToolDefinition) -> Self {
        Self {
            definition,
            endpoint: endpoint.clone(),
        }
    }
}

impl Tool for HttpTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn policy(&self) -> &ToolPolicy {
        &self.endpoint.policy
    }

    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.endpoint.call(invocation))
    }
}

impl fmt::Debug for Endpoint {
    /// Omits the URL and the headers, which may contain secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("method", &self.method)
            .field("signed", &self.signer.is_some())
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
