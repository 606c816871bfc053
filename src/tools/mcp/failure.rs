//! Why a request to an MCP server failed, in words without credentials.

use std::error::Error;

use rmcp::model::{ErrorData, ProtocolVersion};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::error_body::MOST_BYTES;
use net::certificate_remedy;

/// Why a request over HTTP failed, as the SDK has it.
pub(super) type HttpError = StreamableHttpError<reqwest::Error>;

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
    /// The server does not support the version that was offered, and names one that loopwright supports.
    #[error("the MCP server answered with an error: {text}")]
    Version {
        /// Its words.
        text: String,
        /// The newest version that both support.
        known: ProtocolVersion,
    },
    /// The server answered with another HTTP status than the protocol has.
    #[error("the MCP server's answer cannot be used: HTTP {code}{}", words(*.code, .said))]
    Status {
        /// The status.
        code: u16,
        /// What the server says beside it.
        said: String,
    },
}

impl RequestFailure {
    /// The HTTP status that the protocol does not have.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the connection can be used no more.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Ended(_) => true,
            Self::Answered(_) | Self::Unusable(_) | Self::Version { .. } | Self::Status { .. } => {
                false
            }
        }
    }

    /// Whether the server may have refused a request because it has lost the session. It has done nothing then.
    pub(super) fn may_have_lost_session(&self) -> bool {
        matches!(self.status(), Some(400 | 401 | 404))
    }

    /// Whether a server that refuses the handshake may have the transport of 2024-11-05 instead.
    pub(super) fn may_be_older(&self) -> bool {
        matches!(self.status(), Some(400 | 404..=406 | 415 | 422))
    }

    pub(super) fn of_http(error: HttpError) -> Self {
        http(error)
    }

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

    pub(super) fn of_handshake(error: ClientInitializeError) -> Self {
        match error {
            ClientInitializeError::TransportError { error, .. } => transport(error),
            ClientInitializeError::JsonRpcError(error) => match known_version(&error) {
                Some(known) => Self::Version {
                    text: answered(&error),
                    known,
                },
                None => Self::Answered(answered(&error)),
            },
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => {
                Self::Ended("it was closed before the handshake".to_owned())
            }
            _ => Self::Unusable("the handshake has another form than asked for".to_owned()),
        }
    }
}

/// The newest version in the list of a server that refuses another one, if it is known here.
fn known_version(error: &ErrorData) -> Option<ProtocolVersion> {
    let supported = error.data.as_ref()?.get("supported")?.as_array()?;
    let offered = |version: &&ProtocolVersion| {
        let name = version.as_str();
        version.has_initialize() && supported.iter().any(|supported| supported == name)
    };
    let known = ProtocolVersion::KNOWN_VERSIONS.iter().filter(offered);
    known.max_by_key(|version| version.as_str()).cloned()
}

/// The meaning of a status, with the server's own text.
fn words(status: u16, said: &str) -> String {
    let meaning = match status {
        401 => ": it asks for other credentials",
        403 => ": its credentials do not suffice",
        _ => "",
    };
    match said {
        "" => meaning.to_owned(),
        said => format!("{meaning}; it says: {said}"),
    }
}

fn bare(code: u16) -> RequestFailure {
    RequestFailure::Status {
        code,
        said: String::new(),
    }
}

fn answered(error: &ErrorData) -> String {
    let end = error.message.floor_char_boundary(MOST_BYTES);
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
                return bare(status.as_u16());
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
        HttpError::HttpStatus(error) => bare(error.status),
        HttpError::AuthRequired(_) => bare(401),
        HttpError::InsufficientScope(_) => bare(403),
        HttpError::ResponseBodyTooLarge { max_size } => {
            unusable(&format!("the answer is larger than {max_size} bytes"))
        }
        HttpError::UnexpectedServerResponse(text) => {
            // The text begins with the status, if there is one; the body follows.
            let status = text.strip_prefix("HTTP ").and_then(|rest| rest.get(..3));
            match status.and_then(|code| code.parse().ok()) {
                Some(status) => bare(status),
                None => unusable("it is no answer of the protocol"),
            }
        }
        // An error of the access token, before anything was sent to the server.
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
