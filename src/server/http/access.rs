//! Who may call, and what: everything that follows from the API keys. It can be replaced while the server runs.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::AppState;
use super::auth::Authenticator;
use super::forward::ForwardRules;
use super::settings::{ApiKey, Settings};
use agent::turn::KeyDefaults;
use protocol::ids::Owner;

/// What follows from the API keys.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) authenticator: Authenticator,
    pub(super) forward_rules: ForwardRules,
    /// What the keys give the drafts of their callers.
    defaults: HashMap<Owner, KeyDefaults>,
    /// Whether there are several keys, which share connections and memory.
    pub(super) is_shared: bool,
}

/// The present [`Access`].
#[derive(Debug)]
pub(super) struct CurrentAccess(RwLock<Arc<Access>>);

/// Why API keys could not be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyChangeError {
    /// The server was started with keys, and there are none now.
    #[error(
        "the server was started with API keys, and the settings have none now; to serve without keys, restart"
    )]
    AllRemoved,
    /// The server was started without keys.
    #[error("the server was started without API keys; to begin with keys, restart")]
    NoneBefore,
}

impl Access {
    fn new(settings: &Settings, keys: &[ApiKey]) -> Self {
        Self {
            authenticator: Authenticator::new(keys, &settings.allowed_hosts),
            forward_rules: ForwardRules::new(keys, &settings.forward),
            defaults: keys
                .iter()
                .map(|key| (Owner::key(&key.name), key.defaults.clone()))
                .collect(),
            is_shared: keys.len() > 1,
        }
    }

    /// Whether requests of an owner can come: there is a key with its name, or there are no keys and it has none.
    pub(super) fn knows(&self, owner: &Owner) -> bool {
        match self.defaults.is_empty() {
            true => owner.name().is_none(),
            false => self.defaults.contains_key(owner),
        }
    }

    /// What an owner's key gives its drafts.
    pub(super) fn defaults(&self, owner: &Owner) -> KeyDefaults {
        self.defaults.get(owner).cloned().unwrap_or_default()
    }
}

impl CurrentAccess {
    pub(super) fn new(settings: &Settings) -> Self {
        let access = Access::new(settings, &settings.api_keys);
        Self(RwLock::new(Arc::new(access)))
    }

    pub(super) fn get(&self) -> Arc<Access> {
        Arc::clone(&self.0.read())
    }
}

impl AppState {
    /// Replaces the API keys for all later requests. Running requests continue, also the requests of removed keys.
    ///
    /// # Errors
    /// When this would begin or end the time in which keys are needed: other settings depend on that. Nothing is changed.
    pub(crate) fn replace_keys(&self, keys: &[ApiKey]) -> Result<(), KeyChangeError> {
        match (self.settings.api_keys.is_empty(), keys.is_empty()) {
            (true, false) => return Err(KeyChangeError::NoneBefore),
            (false, true) => return Err(KeyChangeError::AllRemoved),
            (true, true) | (false, false) => {}
        }
        let access = Access::new(&self.settings, keys);
        self.bodies.share(access.is_shared);
        self.reads.share(access.is_shared);
        self.turns.share(access.is_shared);
        self.sessions.store.share_connections(access.is_shared);
        *self.access.0.write() = Arc::new(access);
        Ok(())
    }
}
