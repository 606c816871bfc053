//! The other processes that share a store: which of them runs what, and where it can be reached.

use super::{Engine, Store, StoreError};
use protocol::ids::{Owner, RunId, SessionId};

/// Another living process that shares the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherReplica {
    /// The URL at which it answers other replicas, if it has announced one.
    pub address: Option<String>,
    /// The run has ended; the process may have its events still.
    pub ended: bool,
}

impl Store {
    /// Publishes to the other processes the URL of this one, until this process ends.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn announce(&self, address: &str) -> Result<(), StoreError> {
        match &self.engine {
            // No other process can use the store.
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(postgres) => Box::pin(postgres.announce(address)).await,
        }
    }

    /// The other living process that runs a run, or has run it; `None` also for a run without a record.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn replica_of_run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<OtherReplica>, StoreError> {
        match &self.engine {
            Engine::Sqlite(_) => Ok(None),
            Engine::Postgres(postgres) => Box::pin(postgres.replica_of_run(owner, run)).await,
        }
    }

    /// The other living process that holds the lease of a session.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn replica_of_session(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<OtherReplica>, StoreError> {
        match &self.engine {
            Engine::Sqlite(_) => Ok(None),
            Engine::Postgres(postgres) => Box::pin(postgres.replica_of_session(owner, id)).await,
        }
    }
}
