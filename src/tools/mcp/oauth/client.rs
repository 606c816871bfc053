//! Requests to authorization servers, within bounds and to permitted addresses.

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Client;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};
use url::{Origin, Url};

use net::CappedBody;
use protocol::ids::Owner;
use web::SetupError;
use web::fetch::GuardedHosts;

/// Longest answer, in bytes. A longer one is an error.
/// Tried by `oauth::what_an_authorization_server_does_wrong_is_named_within_bounds`.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Numbers of the ports of authorization servers that MCP servers name.
const PORTS: [u16; 2] = [443, 8443];

type Request = http::Request<Vec<u8>>;
type Response = http::Response<Vec<u8>>;

/// The client for authorization servers. It follows no redirects.
#[derive(Debug)]
pub(super) struct TokenClient {
    /// For addresses that the operator named: the server itself and the token endpoint of the settings.
    named: Client,
    origins: Vec<Origin>,
    /// For addresses that servers name: hosts of the public internet, encrypted.
    discovered: GuardedHosts,
}

/// The client during one attempt to get a token. It records the error, which the SDK does not pass on.
pub(super) struct WatchedClient {
    client: Arc<TokenClient>,
    problem: Mutex<Option<String>>,
}

impl TokenClient {
    /// # Errors
    /// When the client cannot be set up.
    pub(super) fn new(named: Client, origins: Vec<Origin>) -> Result<Self, SetupError> {
        Ok(Self {
            named,
            origins,
            discovered: GuardedHosts::new(&["*".to_owned()], &[], &PORTS)?,
        })
    }

    async fn execute(&self, request: Request) -> Result<Response, String> {
        let url = Url::parse(&request.uri().to_string());
        let url = url.map_err(|_| "its address is no URL".to_owned())?;
        let client = match self.origins.contains(&url.origin()) {
            true => self.named.clone(),
            false => {
                let checked = self.discovered.check(url.as_str());
                let checked = checked.map_err(|_| {
                    "the server names one that is not on the public internet; set `oauth.token_url`"
                })?;
                let client = self.discovered.client(&Owner::everybody(), &checked);
                client.map_err(|error| error.to_string())?
            }
        };
        let unreachable = |_| "it cannot be reached".to_owned();
        let request = reqwest::Request::try_from(request).map_err(unreachable)?;
        let answered = client.execute(request).await.map_err(unreachable)?;
        let (status, headers) = (answered.status(), answered.headers().clone());
        let body = CappedBody::new(answered, MAX_ANSWER_BYTES);
        let body = async { body?.whole().await }.await;
        let body = body.map_err(|error| format!("its answer cannot be read: {error}"))?;
        let mut response = Response::new(body.to_vec());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

impl WatchedClient {
    pub(super) fn new(client: Arc<TokenClient>) -> Self {
        Self {
            client,
            problem: Mutex::default(),
        }
    }

    /// What went wrong last.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().take()
    }
}

impl OAuthHttpClient for WatchedClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let response = self.client.execute(request.request).await;
            response.map_err(|problem| {
                *self.problem.lock() = Some(problem.clone());
                problem.into()
            })
        })
    }
}
