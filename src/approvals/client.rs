//! Asks the server, and says what is wrong and what helps if it does not do as it is asked.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::plain::plain;
use crate::config::cli::RememberChoice;
use crate::config::{ApprovalsConfig, DecisionArguments};
use crate::ids::{ApprovalId, shown};
use crate::net::{
    BodyError, CappedBody, ClientError, ClientOptions, HttpClient, RequestBody, cause_of,
};

/// Longest time of one request, its answer included. After it the command fails.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer that is read, in bytes: a thousand calls with their arguments. A larger one is an error.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// The value of the `user-agent` header.
const USER_AGENT: &str = concat!("loopwright/", env!("CARGO_PKG_VERSION"));
const PATH: &str = "/v1/agent/approvals";

/// Asks a server about approvals.
#[derive(Debug)]
pub(super) struct ApprovalsClient<'a> {
    config: &'a ApprovalsConfig,
    http: HttpClient,
    /// The URL of the server, without a slash at its end.
    server: String,
}

/// Why the server has not done what it was asked for. The text is one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalsError {
    /// The HTTP client cannot be made, usually because the machine has no root certificates.
    #[error("the HTTP client cannot be created: {0}")]
    Client(String),
    /// There is no connection, or it broke.
    #[error(
        "cannot reach {server}: {cause}; start the server, or name its address with --server or the variable LOOPWRIGHT_SERVER"
    )]
    Unreachable {
        /// The server.
        server: String,
        /// What went wrong.
        cause: String,
    },
    /// The server says nothing.
    #[error("{0} does not answer within {limit} s; try again", limit = REQUEST_TIMEOUT.as_secs())]
    Silent(String),
    /// The server wants a key, and there is none.
    #[error("{server} wants an API key; set the environment variable {variable} to one")]
    NoKey {
        /// The server.
        server: String,
        /// The variable of the key.
        variable: String,
    },
    /// The server does not know the key.
    #[error(
        "{server} refuses the API key in the environment variable {variable}; set it to a key of this server"
    )]
    WrongKey {
        /// The server.
        server: String,
        /// The variable of the key.
        variable: String,
    },
    /// The call is not in the list.
    #[error(
        "{0} is not among the calls that wait: it is decided or expired, or of another key; `loopwright approvals list` shows what \
         waits"
    )]
    NotWaiting(ApprovalId),
    /// There is no such approval.
    #[error(
        "there is no approval {0} for this key; `loopwright approvals list` shows what waits, and a key with operator = true \
         decides for all keys"
    )]
    NotFound(ApprovalId),
    /// Nothing is left to decide.
    #[error(
        "{0} was decided before, has expired, or its conversation went on without it; `loopwright approvals list` shows what waits"
    )]
    Decided(ApprovalId),
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
    /// The answer is not that of loopwright.
    #[error(
        "{0} does not answer as loopwright does; name the address of a loopwright with --server or the variable LOOPWRIGHT_SERVER"
    )]
    Foreign(String),
}

/// The list of the server.
#[derive(Deserialize)]
struct WaitingList {
    data: Vec<Box<RawValue>>,
}

/// The body of a decision.
#[derive(Serialize)]
struct DecisionBody<'a> {
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remember_for_session: Option<RememberWord>,
}

/// Which later calls run, as the server reads it.
#[derive(Serialize)]
#[serde(untagged)]
enum RememberWord {
    Same(bool),
    Tool(&'static str),
}

/// The answer to a decision.
#[derive(Deserialize)]
struct StoredDecision {
    status: String,
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

impl<'a> ApprovalsClient<'a> {
    /// The client of these settings; opens no connection.
    pub(super) fn new(config: &'a ApprovalsConfig) -> Result<Self, ApprovalsError> {
        let options = ClientOptions {
            user_agent: Some(HeaderValue::from_static(USER_AGENT)),
            tls: config.server.scheme() == "https",
            ..ClientOptions::default()
        };
        let http = options.build_http();
        Ok(Self {
            config,
            http: http.map_err(|error| ApprovalsError::Client(plain(&cause_of(&error))))?,
            server: config.server.as_str().trim_end_matches('/').to_owned(),
        })
    }

    /// The list of what waits, as the server has sent it.
    pub(super) async fn list(&self) -> Result<Box<RawValue>, ApprovalsError> {
        let (status, body) = self.exchange(Method::GET, PATH, Vec::new()).await?;
        match status {
            StatusCode::OK => {
                let list: Box<RawValue> = self.read_bytes(&body)?;
                self.read::<WaitingList>(list.get())?;
                Ok(list)
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Err(self.foreign()),
            status => Err(self.refused(status, &body)),
        }
    }

    /// The calls that wait, the newest last.
    pub(super) async fn waiting(&self) -> Result<Vec<Box<RawValue>>, ApprovalsError> {
        let list = self.list().await?;
        Ok(self.read::<WaitingList>(list.get())?.data)
    }

    /// Decides about a call; returns what becomes of its turn.
    pub(super) async fn decide(
        &self,
        id: &ApprovalId,
        decision: &DecisionArguments,
    ) -> Result<String, ApprovalsError> {
        let body = DecisionBody {
            decision: match decision.approves {
                true => "approve",
                false => "deny",
            },
            message: decision.message.as_deref(),
            arguments: decision.arguments.as_deref(),
            remember_for_session: decision.remember.map(|choice| match choice {
                RememberChoice::Same => RememberWord::Same(true),
                RememberChoice::Tool => RememberWord::Tool("tool"),
            }),
        };
        let body = serde_json::to_vec(&body).map_err(|_| self.foreign())?;
        let path = format!("{PATH}/{id}");
        let (status, body) = self.exchange(Method::POST, &path, body).await?;
        let code = serde_json::from_slice::<RefusalBody>(&body);
        let code = code.ok().and_then(|body| body.error.code);
        match (status, code.as_deref()) {
            (StatusCode::OK, _) => Ok(self.read_bytes::<StoredDecision>(&body)?.status),
            (StatusCode::NOT_FOUND, Some("not_found")) => Err(ApprovalsError::NotFound(id.clone())),
            (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => Err(self.foreign()),
            (StatusCode::CONFLICT, Some("approval_decided")) => {
                Err(ApprovalsError::Decided(id.clone()))
            }
            (status, _) => Err(self.refused(status, &body)),
        }
    }

    /// Reads JSON of the server.
    pub(super) fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, ApprovalsError> {
        serde_json::from_str(text).map_err(|_| self.foreign())
    }

    fn read_bytes<T: DeserializeOwned>(&self, bytes: &Bytes) -> Result<T, ApprovalsError> {
        serde_json::from_slice(bytes).map_err(|_| self.foreign())
    }

    /// Sends a request, and reads the whole answer.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), ApprovalsError> {
        let exchange = async {
            let uri = Uri::try_from(format!("{}{path}", self.server));
            let uri = uri.map_err(|_| self.unreachable(&ClientError::Uri))?;
            let mut request = Request::new(RequestBody::from(body));
            *request.method_mut() = method;
            *request.uri_mut() = uri;
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(CONTENT_TYPE, json);
            if let Some(key) = &self.config.authorization {
                request.headers_mut().insert(AUTHORIZATION, key.clone());
            }
            let response = self.http.execute(request).await;
            let response = response.map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            let body = CappedBody::new(response.into_body(), MAX_ANSWER_BYTES);
            let body = body.map_err(|error| self.unread(status, &error))?;
            let body = body.whole().await;
            let body = body.map_err(|error| self.unread(status, &error))?;
            Ok((status, body))
        };
        let silent = |_| ApprovalsError::Silent(self.server.clone());
        timeout(REQUEST_TIMEOUT, exchange).await.map_err(silent)?
    }

    fn foreign(&self) -> ApprovalsError {
        ApprovalsError::Foreign(self.server.clone())
    }

    fn unreachable(&self, error: &ClientError) -> ApprovalsError {
        ApprovalsError::Unreachable {
            server: self.server.clone(),
            cause: plain(&cause_of(error)),
        }
    }

    fn unread(&self, status: StatusCode, error: &BodyError) -> ApprovalsError {
        ApprovalsError::Refused {
            server: self.server.clone(),
            status: status.as_u16(),
            reason: error.to_string(),
        }
    }

    /// Why the server has refused a request.
    fn refused(&self, status: StatusCode, body: &[u8]) -> ApprovalsError {
        let server = self.server.clone();
        if status == StatusCode::UNAUTHORIZED {
            let variable = plain(&self.config.key_variable);
            return match self.config.authorization {
                None => ApprovalsError::NoKey { server, variable },
                Some(_) => ApprovalsError::WrongKey { server, variable },
            };
        }
        let said = serde_json::from_slice::<RefusalBody>(body);
        let said = said.map(|body| plain(&body.error.message));
        ApprovalsError::Refused {
            server,
            status: status.as_u16(),
            reason: said.unwrap_or_else(|_| shown(&plain(&String::from_utf8_lossy(body)))),
        }
    }
}
