//! Asks a running loopwright over HTTP, for the commands that do so.
//!
//! What a server says may come from a model or from a stranger: before it is printed it goes through `plain`.

pub(crate) mod plain;

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use serde::Deserialize;
use tokio::time::timeout;

use self::plain::plain;
use crate::config::ServerAddress;
use net::{CappedBody, ClientError, ClientOptions, HttpClient, RequestBody, cause_of};
use protocol::ids::shown;

/// Largest answer that is read, in bytes: a thousand calls with their arguments. A larger one is an error.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// The value of the `user-agent` header.
const USER_AGENT: &str = concat!("loopwright/", env!("CARGO_PKG_VERSION"));

/// Asks one server.
#[derive(Debug)]
pub(crate) struct ServerClient<'a> {
    address: &'a ServerAddress,
    http: HttpClient,
    /// The URL of the server, without a slash at its end.
    server: String,
    /// How long one request may take, its answer included.
    limit: Duration,
}

/// Why a server has not answered. The text is one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The HTTP client cannot be made, usually because the machine has no root certificates.
    #[error("the HTTP client cannot be created: {0}")]
    Client(String),
    /// There is no connection, or it broke.
    #[error(
        "cannot reach {server}: {cause}; start the server, or name its address with {named_by}"
    )]
    Unreachable {
        /// The server.
        server: String,
        /// What went wrong.
        cause: String,
        /// What names the server.
        named_by: &'static str,
    },
    /// The server says nothing.
    #[error("{server} does not answer within {seconds} s; try again")]
    Silent {
        /// The server.
        server: String,
        /// How long it had.
        seconds: f64,
    },
    /// The server requires a key, and there is none.
    #[error("{server} wants an API key; set the environment variable {variable} to one")]
    NoKey {
        /// The server.
        server: String,
        /// The variable of the key.
        variable: String,
    },
    /// The server refuses the key.
    #[error(
        "{server} refuses the API key in the environment variable {variable}; set it to a key of this server"
    )]
    WrongKey {
        /// The server.
        server: String,
        /// The variable of the key.
        variable: String,
    },
    /// The server says no, for this reason.
    #[error("{server} says no (status {status}): {reason}")]
    Refused {
        /// The server.
        server: String,
        /// The HTTP status.
        status: u16,
        /// Its message.
        reason: String,
    },
    /// The answer does not come from a loopwright.
    #[error(
        "{server} does not answer as loopwright does; name the address of a loopwright with {named_by}"
    )]
    Foreign {
        /// The server.
        server: String,
        /// What names the server.
        named_by: &'static str,
    },
}

/// An error of the server.
#[derive(Deserialize)]
struct RefusalBody {
    error: RefusalDetail,
}

#[derive(Deserialize)]
struct RefusalDetail {
    message: String,
    code: Option<String>,
}

impl<'a> ServerClient<'a> {
    /// The client of this server; opens no connection.
    pub(crate) fn new(address: &'a ServerAddress, limit: Duration) -> Result<Self, ExchangeError> {
        let options = ClientOptions {
            user_agent: Some(HeaderValue::from_static(USER_AGENT)),
            tls: address.url.scheme() == "https",
            ..ClientOptions::default()
        };
        let http = options.build_http();
        Ok(Self {
            address,
            http: http.map_err(|error| ExchangeError::Client(plain(&cause_of(&error))))?,
            server: address.url.as_str().trim_end_matches('/').to_owned(),
            limit,
        })
    }

    /// The URL of the server, without a slash at its end.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends a request, and reads the whole answer.
    pub(crate) async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), ExchangeError> {
        let exchange = async {
            let uri = Uri::try_from(format!("{}{path}", self.server));
            let uri = uri.map_err(|_| self.unreachable(&ClientError::Uri))?;
            let mut request = Request::new(RequestBody::from(body));
            *request.method_mut() = method;
            *request.uri_mut() = uri;
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(CONTENT_TYPE, json);
            if let Some(key) = &self.address.authorization {
                request.headers_mut().insert(AUTHORIZATION, key.clone());
            }
            let response = self.http.execute(request).await;
            let response = response.map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            let refused = |reason| self.refused_for(status, reason);
            let body = CappedBody::new(response.into_body(), MAX_ANSWER_BYTES);
            let body = body.map_err(|error| refused(error.to_string()))?;
            let body = body.whole().await;
            let body = body.map_err(|error| refused(error.to_string()))?;
            Ok((status, body))
        };
        let silent = |_| ExchangeError::Silent {
            server: self.server.clone(),
            seconds: self.limit.as_secs_f64(),
        };
        timeout(self.limit, exchange).await.map_err(silent)?
    }

    pub(crate) fn foreign(&self) -> ExchangeError {
        ExchangeError::Foreign {
            server: self.server.clone(),
            named_by: self.address.named_by,
        }
    }

    /// Why the server has refused a request.
    pub(crate) fn refused(&self, status: StatusCode, body: &[u8]) -> ExchangeError {
        let server = self.server.clone();
        if status == StatusCode::UNAUTHORIZED {
            let variable = plain(&self.address.key_variable);
            return match self.address.authorization {
                None => ExchangeError::NoKey { server, variable },
                Some(_) => ExchangeError::WrongKey { server, variable },
            };
        }
        let said = serde_json::from_slice::<RefusalBody>(body);
        let said = said.map(|body| plain(&body.error.message));
        let whole = || shown(&plain(&String::from_utf8_lossy(body)));
        self.refused_for(status, said.unwrap_or_else(|_| whole()))
    }

    fn refused_for(&self, status: StatusCode, reason: String) -> ExchangeError {
        ExchangeError::Refused {
            server: self.server.clone(),
            status: status.as_u16(),
            reason,
        }
    }

    fn unreachable(&self, error: &ClientError) -> ExchangeError {
        ExchangeError::Unreachable {
            server: self.server.clone(),
            cause: plain(&cause_of(error)),
            named_by: self.address.named_by,
        }
    }
}

/// The code of an error of the server.
pub(crate) fn error_code(body: &[u8]) -> Option<String> {
    let body = serde_json::from_slice::<RefusalBody>(body);
    body.ok().and_then(|body| body.error.code)
}
