//! Why a request to an MCP server failed, in words without URLs, headers and bodies.

use std::error::Error;

use rmcp::model::ErrorData;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;

use super::http::HttpError;
use crate::net::certificate_remedy;

/// Longest error text of a server that is passed on, in bytes.
const MAX_TEXT_BYTES: usize = 2048;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RequestFailure {
    /// The server answered with an error.
    #[error("the MCP server answered with an error: {0}")]
    Answered(String),
    /// The server surely has not seen the request.
    #[error("the MCP server cannot be reached: {0}")]
    Unreachable(String),
    /// The connection ended; the server may have seen the request.
    #[error("the connection to the MCP server ended: {0}")]
    Ended(String),
    /// The server's answer cannot be used.
    #[error("the MCP server's answer cannot be used: {0}")]
    Unusable(String),
    /// The server answered with another HTTP status than the protocol has.
    #[error("the MCP server's answer cannot be used: HTTP {0}")]
    Status(u16),
}

impl RequestFailure {
    /// Whether the connection can be used no more.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Ended(_) => true,
            Self::Answered(_) | Self::Unusable(_) | Self::Status(_) => false,
        }
    }

    /// Whether a server that refuses the handshake may have the transport of 2024-11-05 instead.
    pub(super) fn may_be_older(&self) -> bool {
        matches!(self, Self::Status(400 | 404..=406 | 415 | 422))
    }

    /// Of an HTTP request.
    pub(super) fn of_http(error: HttpError) -> Self {
        http(error)
    }

    /// Of a request.
    pub(super) fn of_request(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => Self::Answered(answered(&error)),
            ServiceError::TransportSend(error) => transport(error),
            ServiceError::TransportClosed => Self::Ended("it was closed".to_owned()),
            ServiceError::Cancelled { .. } => Self::Ended("the request was cancelled".to_owned()),
            ServiceError::Timeout { .. } => Self::Ended("it is silent".to_owned()),
            _ => Self::Unusable("it has another form than asked for".to_owned()),
        }
    }

    /// Of the handshake.
    pub(super) fn of_handshake(error: ClientInitializeError) -> Self {
        match error {
            ClientInitializeError::TransportError { error, .. } => transport(error),
            ClientInitializeError::JsonRpcError(error) => Self::Answered(answered(&error)),
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => {
                Self::Ended("it was closed before the handshake".to_owned())
            }
            _ => Self::Unusable("the handshake has another form than asked for".to_owned()),
        }
    }
}

fn answered(error: &ErrorData) -> String {
    let end = error.message.floor_char_boundary(MAX_TEXT_BYTES);
    let message = error.message.get(..end).unwrap_or_default();
    format!("{message} ({})", error.code.0)
}

fn transport(error: DynamicTransportError) -> RequestFailure {
    let error = match error.error.downcast::<HttpError>() {
        Ok(error) => return http(*error),
        Err(error) => error,
    };
    match error.downcast::<RequestFailure>() {
        Ok(failure) => *failure,
        // Standard input of a process.
        Err(_) => RequestFailure::Ended("it takes no messages".to_owned()),
    }
}

fn http(error: HttpError) -> RequestFailure {
    let unusable = |text: &str| RequestFailure::Unusable(text.to_owned());
    match error {
        HttpError::Client(error) => {
            if let Some(status) = error.status() {
                return RequestFailure::Status(status.as_u16());
            }
            let unreachable = error.is_connect();
            let error = error.without_url();
            let first: &dyn Error = &error;
            let sources = std::iter::successors(Some(first), |&error| error.source());
            let mut text = sources.last().map(ToString::to_string).unwrap_or_default();
            if let Some(remedy) = certificate_remedy(&error) {
                text = format!("{remedy} ({text})");
            }
            match unreachable {
                true => RequestFailure::Unreachable(text),
                false => RequestFailure::Ended(text),
            }
        }
        HttpError::HttpStatus(error) => RequestFailure::Status(error.status),
        HttpError::AuthRequired(_) => unusable("HTTP 401: it asks for other credentials"),
        HttpError::InsufficientScope(_) => unusable("HTTP 403: its credentials do not suffice"),
        HttpError::ResponseBodyTooLarge { max_size } => {
            unusable(&format!("the answer is larger than {max_size} bytes"))
        }
        HttpError::UnexpectedServerResponse(text) => {
            // The text begins with the status, if there is one; the body follows.
            let status = text.strip_prefix("HTTP ").and_then(|rest| rest.get(..3));
            match status.and_then(|code| code.parse().ok()) {
                Some(status) => RequestFailure::Status(status),
                None => unusable("it is no answer of the protocol"),
            }
        }
        // Of the access token, before anything was sent to the server.
        HttpError::Io(error) => match error.downcast::<RequestFailure>() {
            Ok(failure) => failure,
            Err(_) => RequestFailure::Ended("it was closed".to_owned()),
        },
        HttpError::UnexpectedContentType(_) => unusable("it has an unexpected content type"),
        HttpError::SessionExpired | HttpError::SessionRecoveryTimeout => {
            RequestFailure::Ended("its session has ended".to_owned())
        }
        HttpError::TransportChannelClosed | HttpError::UnexpectedEndOfStream => {
            RequestFailure::Ended("it was closed".to_owned())
        }
        _ => unusable("it breaks off or is malformed"),
    }
}
