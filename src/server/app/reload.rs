//! Settings that change while the server runs: the API keys.

use crate::config::{Config, ConfigError};
use crate::http::AppState;

/// Takes over changed settings.
#[derive(Debug)]
pub struct Reloader {
    state: AppState,
    /// The settings with which the server was started, without secrets.
    started: serde_json::Value,
}

impl Reloader {
    pub(super) fn new(state: AppState, started: serde_json::Value) -> Self {
        Self { state, started }
    }

    /// Takes over the API keys of settings that were read again, and says so in the log. After an error, or if the keys cannot
    /// be taken over, everything stays as it is.
    pub fn reload(&self, config: Result<Config, ConfigError>) {
        match config {
            Ok(config) => self.take_over(&config),
            Err(error) => {
                tracing::error!(%error, "the settings cannot be read again; the API keys stay as they were");
            }
        }
    }

    fn take_over(&self, config: &Config) {
        let keys = config.http.api_keys.len();
        match self.state.replace_keys(&config.http.api_keys) {
            Ok(()) => tracing::info!(keys, "the API keys were read again"),
            Err(error) => tracing::error!(%error, "the API keys stay as they were"),
        }
        let changed = changed(&self.started, &config.effective_values());
        if !changed.is_empty() {
            let settings = changed.join(", ");
            tracing::warn!(
                settings,
                "changed settings other than [[api_keys]] need a restart"
            );
        }
    }
}

/// The keys of the top level with other values, but for the API keys.
fn changed(before: &serde_json::Value, after: &serde_json::Value) -> Vec<String> {
    let keys = after.as_object().into_iter().flatten();
    let changed = keys.filter(|(key, value)| *key != "api_keys" && before.get(key) != Some(value));
    changed.map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_needs_a_restart_is_named() {
        let before =
            json!({"api_keys": [1], "listen": "a", "retry": {"max_attempts": 3}, "search": null});
        let after =
            json!({"api_keys": [2], "listen": "a", "retry": {"max_attempts": 4}, "search": {}});
        assert_eq!(changed(&before, &after), ["retry", "search"]);
        assert!(changed(&before, &before).is_empty());
    }
}
