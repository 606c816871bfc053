//! Sends the requests of the command to the server, and names the problem and the remedy if one fails.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::commands::client::{ExchangeError, ServerClient, error_code};
use crate::config::cli::RememberChoice;
use crate::config::{DecisionArguments, ServerAddress};
use protocol::ids::ApprovalId;

/// Longest time of one request, its answer included. After it the command fails.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const PATH: &str = "/v1/agent/approvals";

/// Asks a server about approvals.
#[derive(Debug)]
pub(super) struct ApprovalsClient<'a>(ServerClient<'a>);

/// Why the server has not done the request. The text is one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalsError {
    /// The server has not answered, or says no.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
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
    /// The question is closed.
    #[error(
        "{0} was decided before, has expired, or its conversation went on without it; `loopwright approvals list` shows what waits"
    )]
    Decided(ApprovalId),
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

impl<'a> ApprovalsClient<'a> {
    /// The client of this server; opens no connection.
    pub(super) fn new(server: &'a ServerAddress) -> Result<Self, ApprovalsError> {
        Ok(Self(ServerClient::new(server, REQUEST_TIMEOUT)?))
    }

    /// The list of waiting calls, as the server has sent it.
    pub(super) async fn list(&self) -> Result<Box<RawValue>, ApprovalsError> {
        let (status, body) = self.0.exchange(Method::GET, PATH, Vec::new()).await?;
        match status {
            StatusCode::OK => {
                let list: Box<RawValue> = self.read_bytes(&body)?;
                self.read::<WaitingList>(list.get())?;
                Ok(list)
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Err(self.0.foreign().into()),
            status => Err(self.0.refused(status, &body).into()),
        }
    }

    /// The calls that wait, the newest last.
    pub(super) async fn waiting(&self) -> Result<Vec<Box<RawValue>>, ApprovalsError> {
        let list = self.list().await?;
        Ok(self.read::<WaitingList>(list.get())?.data)
    }

    /// Decides about a call; returns what happens to its turn.
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
        let body = serde_json::to_vec(&body).map_err(|_| self.0.foreign())?;
        let path = format!("{PATH}/{id}");
        let (status, body) = self.0.exchange(Method::POST, &path, body).await?;
        match (status, error_code(&body).as_deref()) {
            (StatusCode::OK, _) => Ok(self.read_bytes::<StoredDecision>(&body)?.status),
            (StatusCode::NOT_FOUND, Some("not_found")) => Err(ApprovalsError::NotFound(id.clone())),
            (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => {
                Err(self.0.foreign().into())
            }
            (StatusCode::CONFLICT, Some("approval_decided")) => {
                Err(ApprovalsError::Decided(id.clone()))
            }
            (status, _) => Err(self.0.refused(status, &body).into()),
        }
    }

    /// Reads JSON of the server.
    pub(super) fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, ApprovalsError> {
        serde_json::from_str(text).map_err(|_| self.0.foreign().into())
    }

    fn read_bytes<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, ApprovalsError> {
        serde_json::from_slice(bytes).map_err(|_| self.0.foreign().into())
    }
}
