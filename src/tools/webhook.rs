//! Tools behind HTTP: the dispatch URL and the `[[tools]]` entries.
//!
//! Owns what a call looks like on the wire, its signature, what an answer means and when a call is made again. Does not
//! bound a call's whole time: [`super::batch`] does that by dropping it, which closes the connection.

mod answer;
mod parts;
mod reader;
mod request;
mod retry;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Method};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};
use url::Url;

use self::request::{Outgoing, Signer};
use self::retry::{Failure, RetryCondition, RetryDelays};
use super::settings::{DispatchSettings, EndpointSettings, HttpToolSettings, Settings};
use super::{Tool, ToolError, ToolInvocation, ToolKind, ToolOutput, ToolPolicy, ToolSource};
use crate::net::ClientOptions;
use crate::openai::tool::ToolDefinition;

/// How long an unused connection is kept. Common servers close theirs after 5 s, and a call that meets such a closing
/// connection could not be made again unless the tool is idempotent.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// Names the program to the endpoints.
const USER_AGENT: &str = concat!("loopwright/", env!("CARGO_PKG_VERSION"));

/// The HTTP client that all tools share; cheap to clone.
#[derive(Debug, Clone)]
pub struct WebhookClient(reqwest::Client);

/// Where calls go and how; made once, whatever the number of tools behind it.
pub struct Endpoint {
    client: WebhookClient,
    url: Url,
    method: Method,
    /// What goes with every call, the operator's own headers included.
    headers: HeaderMap,
    signer: Option<Signer>,
    max_answer_bytes: usize,
    max_retries: u32,
    policy: ToolPolicy,
}

/// Why an endpoint cannot be used. The texts hold neither the URL nor the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Neither `http` nor `https`, or no host.
    #[error("its URL must be an http or https URL")]
    Url,
    /// A user name or a password in the URL, which would end up in logs.
    #[error("its URL must not hold credentials; give them as a header")]
    Credentials,
    /// A method that no tool is called with.
    #[error("the method '{0}' is not possible; use GET, POST, PUT, PATCH or DELETE")]
    Method(Method),
    /// A secret that no signature can be made with.
    #[error("its secret is no Standard Webhooks secret: 'whsec_' and base64")]
    Secret,
}

/// A tool that is run by an HTTP endpoint.
#[derive(Debug)]
pub struct HttpTool {
    definition: ToolDefinition,
    endpoint: Arc<Endpoint>,
}

impl WebhookClient {
    /// Makes the client; connects to nothing yet.
    ///
    /// # Errors
    /// When the client cannot be made, most likely for want of root certificates.
    pub fn new(settings: &Settings) -> Result<Self, reqwest::Error> {
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
            ..ClientOptions::default()
        };
        options.build().map(Self)
    }
}

impl Endpoint {
    /// The endpoint behind the dispatch URL.
    ///
    /// # Errors
    /// When the URL, the method or the secret cannot be used.
    pub fn dispatch(
        client: &WebhookClient,
        settings: &DispatchSettings,
    ) -> Result<Self, EndpointError> {
        let policy = ToolPolicy {
            timeout: settings.endpoint.timeout,
            sequential: settings.sequential,
            idempotent: settings.idempotent,
            source: ToolSource::Dispatch,
            kind: ToolKind::Custom,
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
        Ok(Self {
            client: client.clone(),
            url: url.clone(),
            method: settings.method.clone(),
            headers: request::fixed_headers(&settings.method, &settings.headers),
            signer: settings.secret.as_ref().map(Signer::new).transpose()?,
            max_answer_bytes: settings.max_answer_bytes,
            max_retries: settings.max_retries,
            policy,
        })
    }

    /// Makes a call, and makes it again where that is safe and may help.
    async fn call(&self, invocation: &ToolInvocation) -> Result<ToolOutput, ToolError> {
        let give_up = Instant::now().checked_add(self.policy.timeout);
        let outgoing = Outgoing::new(self, invocation)?;
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
            let left = give_up.map(|moment| moment.saturating_duration_since(Instant::now()));
            match delays.next(failure.retry_after, left) {
                Some(delay) if may_retry => sleep(delay).await,
                Some(_) | None => return Err(failure.problem.into()),
            }
        }
    }

    async fn attempt(
        &self,
        outgoing: &Outgoing,
        invocation: &ToolInvocation,
    ) -> Result<ToolOutput, Failure> {
        let request = outgoing.request(self)?;
        let sent = self.client.0.execute(request).await;
        let response = sent.map_err(Failure::no_head)?;
        if !response.status().is_success() {
            return Err(Failure::status(response.status(), response.headers()));
        }
        reader::read(response, self.max_answer_bytes, &invocation.progress).await
    }
}

impl HttpTool {
    /// Makes the tool of a `[[tools]]` entry.
    ///
    /// # Errors
    /// When the URL, the method or the secret cannot be used.
    pub fn from_settings(
        client: &WebhookClient,
        settings: &HttpToolSettings,
    ) -> Result<Self, EndpointError> {
        let policy = ToolPolicy {
            timeout: settings.endpoint.timeout,
            sequential: settings.sequential,
            idempotent: settings.idempotent,
            source: ToolSource::Http,
            kind: ToolKind::Custom,
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

    /// Makes a declared tool that an endpoint runs.
    pub fn dispatched(endpoint: &Arc<Endpoint>, definition: ToolDefinition) -> Self {
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
    /// Leaves out the URL and the headers, which may hold secrets.
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
