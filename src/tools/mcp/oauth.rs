//! Access tokens of MCP servers that require OAuth client credentials.

mod client;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource,
    ClientCredentialsConfig,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

use self::client::{TokenClient, WatchedClient};
use super::failure::RequestFailure;
use crate::settings::mcp::McpOAuth;
use web::SetupError;

/// Longest time until there is a token, discovery included. After it the call fails.
const TOKEN_LIMIT: Duration = Duration::from_secs(8);
/// Longest time for which a token is taken to be valid.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Why an authorization server refuses, as RFC 6749 and RFC 8707 name it.
const REFUSALS: [&str; 7] = [
    "invalid_client",
    "unauthorized_client",
    "invalid_scope",
    "invalid_target",
    "invalid_grant",
    "unsupported_grant_type",
    "invalid_request",
];
/// How long before its end a token is replaced, or after half of its time if that is less.
/// Tried by `oauth::a_token_is_replaced_before_it_expires`.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);
/// How long no token is asked for after a failure. Calls fail meanwhile.
const FAILED_PAUSE: Duration = Duration::from_secs(2);

/// The access tokens for one server. All its connections share one token.
pub(super) struct Tokens {
    settings: McpOAuth,
    /// The server, for which tokens are asked.
    resource: Url,
    http: Arc<TokenClient>,
    state: Mutex<TokenState>,
    /// The last token, also while another is asked for.
    last: parking_lot::Mutex<Option<SecretString>>,
}

#[derive(Default)]
enum TokenState {
    #[default]
    None,
    Valid {
        token: SecretString,
        /// When it has to be replaced; never if its server does not say when it expires.
        until: Option<Instant>,
    },
    Failed(Instant, RequestFailure),
}

/// The answer of the token endpoint, as far as it is used.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    /// In seconds.
    expires_in: Option<u64>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// # Errors
    /// When the client for authorization servers cannot be set up.
    pub(super) fn new(settings: McpOAuth, server: &Url, named: Client) -> Result<Self, SetupError> {
        let mut resource = server.clone();
        resource.set_query(None);
        resource.set_fragment(None);
        let urls = [Some(&resource), settings.token_url.as_ref()];
        let origins = urls.into_iter().flatten().map(Url::origin);
        let http = TokenClient::new(named, origins.collect())?;
        Ok(Self {
            http: Arc::new(http),
            settings,
            resource,
            state: Mutex::default(),
            last: parking_lot::Mutex::default(),
        })
    }

    /// A token that has not expired.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn current(&self) -> Result<String, RequestFailure> {
        let mut state = self.state.lock().await;
        match &*state {
            TokenState::Valid { token, until }
                if until.is_none_or(|until| Instant::now() < until) =>
            {
                Ok(token.expose_secret().to_owned())
            }
            TokenState::Failed(when, failure) if when.elapsed() < FAILED_PAUSE => {
                Err(failure.clone())
            }
            TokenState::Valid { .. } | TokenState::Failed(..) | TokenState::None => {
                self.renew(&mut state).await
            }
        }
    }

    /// Another token than the one that the server has refused.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn after_refusal(&self, refused: &str) -> Result<String, RequestFailure> {
        let mut state = self.state.lock().await;
        match &*state {
            // Another request has replaced it meanwhile.
            TokenState::Valid { token, .. } if token.expose_secret() != refused => {
                Ok(token.expose_secret().to_owned())
            }
            TokenState::Failed(when, failure) if when.elapsed() < FAILED_PAUSE => {
                Err(failure.clone())
            }
            TokenState::Valid { .. } | TokenState::Failed(..) | TokenState::None => {
                self.renew(&mut state).await
            }
        }
    }

    /// The last token.
    pub(super) fn last(&self) -> Option<String> {
        let last = self.last.lock();
        last.as_ref().map(|token| token.expose_secret().to_owned())
    }

    async fn renew(&self, state: &mut TokenState) -> Result<String, RequestFailure> {
        let asked = Instant::now();
        let watched = Arc::new(WatchedClient::new(self.http.clone()));
        let granted = timeout(TOKEN_LIMIT, Box::pin(self.ask(watched.clone()))).await;
        let granted = granted.unwrap_or_else(|_elapsed| {
            let seconds = TOKEN_LIMIT.as_secs();
            Err(format!("it did not answer within {seconds} s"))
        });
        match granted.map_err(|problem| watched.problem().unwrap_or(problem)) {
            Ok(granted) => {
                *self.last.lock() = Some(granted.access_token.clone().into());
                let lasts = granted.expires_in.map(Duration::from_secs);
                *state = TokenState::Valid {
                    token: granted.access_token.clone().into(),
                    until: lasts.map(|lasts| {
                        let margin = EXPIRY_MARGIN.min(lasts / 2);
                        asked + lasts.saturating_sub(margin).min(MAX_LIFETIME)
                    }),
                };
                Ok(granted.access_token)
            }
            Err(problem) => {
                let text = format!("its authorization server gives no access token: {problem}");
                let failure = RequestFailure::Unreachable(text);
                *state = TokenState::Failed(Instant::now(), failure.clone());
                Err(failure)
            }
        }
    }

    /// Finds the token endpoint and asks it for a token.
    async fn ask(&self, http: Arc<WatchedClient>) -> Result<Granted, String> {
        let resource = self.resource.clone();
        let manager = AuthorizationManager::new_with_oauth_http_client(resource, http);
        let mut manager = manager.await.map_err(|error| problem(&error))?;
        let metadata = match &self.settings.token_url {
            Some(url) => {
                let mut metadata = AuthorizationMetadata::default();
                metadata.token_endpoint = url.to_string();
                // The SDK requires an endpoint; it is not used for client credentials.
                metadata.authorization_endpoint = url.to_string();
                metadata
            }
            None => {
                let found = manager.resolve_metadata().await;
                let found = found.map_err(|error| problem(&error))?;
                if found.source == AuthorizationMetadataSource::LegacyEndpointFallback {
                    let text = "the server does not name one; set `oauth.token_url`";
                    return Err(text.to_owned());
                }
                found.metadata
            }
        };
        manager.set_metadata(metadata);
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: self.settings.client_id.clone(),
            client_secret: self.settings.client_secret.expose_secret().to_owned(),
            scopes: self.settings.scopes.clone(),
            resource: Some(self.resource.to_string()),
        };
        let prepared = manager
            .validate_client_credentials_metadata(&config)
            .and_then(|()| manager.configure_client_credentials(&config));
        prepared.map_err(|error| problem(&error))?;
        let exchanged = manager.exchange_client_credentials(&config).await;
        let response = exchanged.map_err(|error| problem(&error))?;
        let granted = serde_json::to_value(&response).and_then(serde_json::from_value);
        granted.map_err(|_| "its answer holds no access token".to_owned())
    }
}

/// The problem, in words that hold nothing that an authorization server has sent.
fn problem(error: &AuthError) -> String {
    let text = error.to_string();
    let refusal = REFUSALS.iter().find(|refusal| text.contains(**refusal));
    match (error, refusal) {
        (AuthError::ClientCredentialsError(_), Some(refusal)) => {
            format!("it refuses the request ({refusal})")
        }
        (AuthError::ClientCredentialsError(_), None) => {
            "its answer to the request for a token cannot be used".to_owned()
        }
        (_, _) => "what describes it cannot be used; set `oauth.token_url`".to_owned(),
    }
}
