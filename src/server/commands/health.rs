//! `loopwright health`: asks a running server whether it is alive, or whether it can serve. A container has no other program
//! that could ask.

use futures_util::future::LocalBoxFuture;
use http::{Method, StatusCode};
use serde_json::{Map, Value};

use crate::commands::client::plain::plain;
use crate::commands::client::{ExchangeError, ServerClient};
use crate::config::HealthConfig;

/// The member with the word for the whole, and its value where all is well.
const STATUS: &str = "status";
const OK: &str = "ok";

/// Why a server counts as unhealthy. The text is one line.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// It has not answered.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// It cannot serve at this moment.
    #[error("{server} is not ready: {reason}; its log has the cause")]
    NotReady {
        /// The server.
        server: String,
        /// What it lacks, in its own words.
        reason: String,
    },
}

/// Asks the server; returns the line to print if it is well.
///
/// # Errors
/// When it does not answer, or says that it is not ready.
pub fn check(config: &HealthConfig) -> LocalBoxFuture<'_, Result<String, HealthError>> {
    // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
    Box::pin(ask(config))
}

async fn ask(config: &HealthConfig) -> Result<String, HealthError> {
    let client = ServerClient::new(&config.server, config.timeout)?;
    let path = match config.ready {
        true => "/readyz",
        false => "/healthz",
    };
    let (status, body) = client.exchange(Method::GET, path, Vec::new()).await?;
    let said: Option<Map<String, Value>> = serde_json::from_slice(&body).ok();
    let said = said.filter(|said| said.get(STATUS).is_some_and(Value::is_string));
    match (status, said) {
        (StatusCode::OK, Some(said)) if said[STATUS] == OK => {
            Ok(format!("{}{path}: {OK}\n", client.server()))
        }
        (StatusCode::SERVICE_UNAVAILABLE, Some(said)) => Err(HealthError::NotReady {
            server: client.server().to_owned(),
            reason: plain(&lacking(&said)),
        }),
        (StatusCode::OK | StatusCode::NOT_FOUND, _) => Err(client.foreign().into()),
        (status, _) => Err(client.refused(status, &body).into()),
    }
}

/// What is not well: the word for the whole, and the parts that the server names.
fn lacking(said: &Map<String, Value>) -> String {
    let word = said[STATUS].as_str().unwrap_or_default();
    let parts = said
        .iter()
        .filter_map(|(part, value)| match value.as_str() {
            Some(state)
                if part != STATUS && state != OK && part != "version" && part != "commit" =>
            {
                Some(format!("{part} {state}"))
            }
            _ => None,
        });
    let parts: Vec<String> = parts.collect();
    match parts.is_empty() {
        true => word.to_owned(),
        false => format!("{word} ({})", parts.join(", ")),
    }
}
