//! What the answer of an upstream to a request for its models says of it.

use ::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::UpstreamError;
use super::refusal::refuses_key;
use super::settings::KeySource;

/// What a look at an upstream has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    /// It lists its models.
    Ok,
    /// There is no connection, or no answer.
    Unreachable,
    /// It fails, or is not ready yet.
    ServerError,
    /// It wants a key, and loopwright has none.
    AsksForKey,
    /// It refuses the key that loopwright has.
    RefusedKey,
    /// It lists no models. It may answer other requests.
    NoModelsEndpoint,
    /// It refuses the request for another reason.
    Refused,
    /// Its answer is no list of models.
    NoModelList,
}

impl UpstreamState {
    /// Whether the server answers and does not fail.
    pub fn is_reachable(self) -> bool {
        match self {
            Self::Ok
            | Self::AsksForKey
            | Self::RefusedKey
            | Self::NoModelsEndpoint
            | Self::Refused => true,
            Self::Unreachable | Self::ServerError | Self::NoModelList => false,
        }
    }

    pub(super) fn of(error: &UpstreamError, key: &KeySource) -> Self {
        match error {
            UpstreamError::Status { status, .. } => match *status {
                status if refuses_key(status) && key.is_own() => Self::RefusedKey,
                status if refuses_key(status) => Self::AsksForKey,
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Self::NoModelsEndpoint,
                status if status.is_server_error() => Self::ServerError,
                _ => Self::Refused,
            },
            UpstreamError::Malformed { .. } => Self::NoModelList,
            _ => Self::Unreachable,
        }
    }
}
