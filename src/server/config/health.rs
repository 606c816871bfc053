//! The arguments of `health`.

use std::time::Duration;

use super::cli::HealthArguments;
use super::server::{GivenKey, ServerAddress};
use super::{ConfigError, Environment, Origin, parse};

/// Default wait for the answer. `/readyz` looks for 5 s itself.
const DEFAULT_TIMEOUT: &str = "6s";

/// What `loopwright health` asks.
#[derive(Debug, Clone)]
pub struct HealthConfig {
    /// The server.
    pub server: ServerAddress,
    /// Whether the server is asked if it can serve, not only if it is alive.
    pub(crate) ready: bool,
    /// Longest wait for the answer.
    pub(crate) timeout: Duration,
}

impl HealthConfig {
    /// Reads the arguments, and the settings that say where the server listens.
    ///
    /// # Errors
    /// When the URL is no URL, the key no key, or the time no time.
    pub fn load(arguments: &HealthArguments, env: Environment<'_>) -> Result<Self, ConfigError> {
        let key = GivenKey::read(None, "", env)?;
        let text = arguments.timeout.as_deref().unwrap_or(DEFAULT_TIMEOUT);
        let refused =
            |problem: String| ConfigError::invalid(Origin::Flag("timeout".to_owned()), problem);
        let timeout = parse::duration(text).map_err(refused)?;
        if timeout.is_zero() {
            return Err(refused("is no time to wait; write 1 or more".to_owned()));
        }
        Ok(Self {
            server: ServerAddress::of(&arguments.server, &key, env)?,
            ready: arguments.ready,
            timeout,
        })
    }
}
