//! The records of runs and idempotency keys. Each operation is that of the store with the same name.

use std::time::Duration;

use super::Sessions;
use crate::ids::{Owner, RunId, SessionId};
use crate::session::SessionError;
use crate::store::{KeyClaim, RunRecord, StoredAnswer};

impl Sessions {
    /// See [`Store::begin_run`](crate::store::Store::begin_run).
    ///
    /// # Errors
    /// `Exists` when the id belongs to another owner; else when the store fails.
    pub async fn begin_run(
        &self,
        run: &RunId,
        owner: &Owner,
        session: Option<&SessionId>,
    ) -> Result<(), SessionError> {
        Ok(self.store.begin_run(run, owner, session).await?)
    }

    /// See [`Store::end_run`](crate::store::Store::end_run).
    ///
    /// # Errors
    /// When the store fails; the record is kept as it is.
    pub async fn end_run(
        &self,
        run: &RunId,
        owner: &Owner,
        answer: StoredAnswer,
    ) -> Result<(), SessionError> {
        Ok(self.store.end_run(run, owner, answer).await?)
    }

    /// See [`Store::run`](crate::store::Store::run).
    ///
    /// # Errors
    /// When the store fails or the stored data is damaged.
    pub async fn recorded_run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<RunRecord>, SessionError> {
        Ok(self.store.run(owner, run).await?)
    }

    /// See [`Store::delete_run`](crate::store::Store::delete_run).
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_run(&self, owner: &Owner, run: &RunId) -> Result<bool, SessionError> {
        Ok(self.store.delete_run(owner, run).await?)
    }

    /// See [`Store::claim_key`](crate::store::Store::claim_key).
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim_key(
        &self,
        owner: &Owner,
        key: &str,
        fingerprint: &[u8; 32],
        run: &RunId,
    ) -> Result<KeyClaim, SessionError> {
        Ok(self.store.claim_key(owner, key, fingerprint, run).await?)
    }

    /// See [`Store::release_key`](crate::store::Store::release_key).
    ///
    /// # Errors
    /// When the store fails.
    pub async fn release_key(
        &self,
        owner: &Owner,
        key: &str,
        run: &RunId,
    ) -> Result<(), SessionError> {
        Ok(self.store.release_key(owner, key, run).await?)
    }

    /// See [`Store::reclaim_key`](crate::store::Store::reclaim_key).
    ///
    /// # Errors
    /// When the store fails.
    pub async fn reclaim_key(
        &self,
        owner: &Owner,
        key: &str,
        from: &RunId,
        to: &RunId,
    ) -> Result<bool, SessionError> {
        Ok(self.store.reclaim_key(owner, key, from, to).await?)
    }

    /// See [`Store::expire_runs`](crate::store::Store::expire_runs).
    ///
    /// # Errors
    /// When the store fails; some records may have been deleted.
    pub async fn expire_runs(&self, age: Duration) -> Result<u64, SessionError> {
        Ok(self.store.expire_runs(age).await?)
    }
}
