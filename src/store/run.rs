//! The records of runs and idempotency keys, and the operations of a store on them.

use std::time::Duration;

use super::{Store, StoreError};
use crate::ids::{Owner, RunId, SessionId};
use crate::parted::PartedText;

/// How long an idempotency key is kept, if its owner does not have too many. Then a request under it is a new one.
/// Tried by `suite::keys::keys_expire`.
pub(super) const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// Its owner.
    pub owner: Owner,
    /// The session that it writes. It may have been deleted.
    pub session_id: Option<SessionId>,
    /// When it was first recorded, in seconds since 1970.
    pub created_at: i64,
    /// What is known of it.
    pub state: RunRecordState,
}

/// What is known of a recorded run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunRecordState {
    /// It has not ended.
    Running,
    /// It has not ended, and another process that shares the store runs it.
    RunningElsewhere,
    /// The process ended before the run.
    Interrupted,
    /// It has ended.
    Ended {
        /// The bytes of its answer.
        bytes: u64,
    },
}

/// The answer of a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers that belong to the answer.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: PartedText,
    /// It is kept as long as the session of its run.
    pub kept: bool,
}

/// Who has an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyClaim {
    /// The key was free; now the run has it.
    New,
    /// A run of the same request has it. If there is no record of that run, it has not been recorded yet, or its answer
    /// is no longer stored. The key is kept even then, so that the calls of the run are not repeated.
    Held {
        /// The run.
        run: RunId,
    },
    /// A run of another request has it.
    Reused,
}

/// How much of the answers of runs is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerLimits {
    /// Most bytes of one answer, headers included.
    pub(super) answer: usize,
    /// Most bytes of all answers and of the texts of all idempotency keys, with [`AnswerLimits::ROW`] for each.
    pub(super) total: u64,
}

impl Default for AnswerLimits {
    fn default() -> Self {
        Self::within(u64::MAX)
    }
}

impl AnswerLimits {
    /// Largest answer that is kept, in bytes.
    pub(super) const ANSWER: usize = 64 * 1024 * 1024;
    /// Memory that an answer or a key counts besides its bytes, so that small ones are bounded too.
    pub(super) const ROW: u64 = 1024;

    /// The limits where all answers may have so many bytes.
    pub(super) fn within(total: u64) -> Self {
        let of_one = usize::try_from(total).unwrap_or(usize::MAX);
        Self {
            answer: Self::ANSWER.min(of_one),
            total,
        }
    }
}

impl Store {
    /// Limits the bytes of all answers. Without this call there is no limit but that of one answer.
    pub fn limit_answers(&self, total: u64) {
        match self {
            Self::Sqlite(sqlite) => sqlite.limit_answers(AnswerLimits::within(total)),
            Self::Postgres(postgres) => postgres.limit_answers(AnswerLimits::within(total)),
        }
    }

    /// Sets whether several owners share the connections to the database, as they do without this call.
    pub fn share_connections(&self, shared: bool) {
        match self {
            Self::Sqlite(sqlite) => sqlite.share_connections(shared),
            Self::Postgres(postgres) => postgres.share_connections(shared),
        }
    }

    /// Records a run as running. A record that exists is kept: it gets the session, if one is given, and is running
    /// again if it was interrupted. A run that has ended stays so.
    ///
    /// # Errors
    /// `Exists` when the id belongs to another owner; else when the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn begin_run(
        &self,
        run: &RunId,
        owner: &Owner,
        session: Option<&SessionId>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.begin_run(run, owner, session).await,
            Self::Postgres(postgres) => Box::pin(postgres.begin_run(run, owner, session)).await,
        }
    }

    /// Stores the answer of a run. Without a record, or if there is already an answer, nothing is changed.
    ///
    /// The record of an answer of more than 64 MiB is deleted. If all answers together exceed their limit, the oldest ones
    /// of the owner with the most bytes are deleted first, with their records. Their idempotency keys are kept.
    ///
    /// # Errors
    /// When the store fails; the record is kept as it is.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn end_run(
        &self,
        run: &RunId,
        owner: &Owner,
        answer: StoredAnswer,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.end_run(run, owner, answer).await,
            Self::Postgres(postgres) => Box::pin(postgres.end_run(run, owner, answer)).await,
        }
    }

    /// The record of a run, or `None` if the owner has no run with this id.
    ///
    /// # Errors
    /// When the store fails or the stored data is damaged.
    pub async fn run(&self, owner: &Owner, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.run(owner, run).await,
            Self::Postgres(postgres) => Box::pin(postgres.run(owner, run)).await,
        }
    }

    /// The answer of a run that has ended, or `None` if there is none.
    ///
    /// # Errors
    /// As [`Store::run`].
    pub async fn answer(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<StoredAnswer>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.answer(owner, run).await,
            Self::Postgres(postgres) => Box::pin(postgres.answer(owner, run)).await,
        }
    }

    /// Deletes the record of a run and its idempotency keys; returns whether there was a record.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn delete_run(&self, owner: &Owner, run: &RunId) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.delete_run(owner, run).await,
            Self::Postgres(postgres) => Box::pin(postgres.delete_run(owner, run)).await,
        }
    }

    /// Claims an idempotency key for a run, unless the key was claimed within the last 24 hours. `fingerprint` is a hash
    /// of the request.
    ///
    /// If the process ends before the run is recorded, the key is free again.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the key may have been claimed; release it.
    pub async fn claim_key(
        &self,
        owner: &Owner,
        key: &str,
        fingerprint: &[u8; 32],
        run: &RunId,
    ) -> Result<KeyClaim, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.claim_key(owner, key, fingerprint, run).await,
            Self::Postgres(postgres) => {
                Box::pin(postgres.claim_key(owner, key, fingerprint, run)).await
            }
        }
    }

    /// Releases an idempotency key, if this run has it. The record of the run is kept.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn release_key(
        &self,
        owner: &Owner,
        key: &str,
        run: &RunId,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.release_key(owner, key, run).await,
            Self::Postgres(postgres) => Box::pin(postgres.release_key(owner, key, run)).await,
        }
    }

    /// Passes an idempotency key from the run `from` to the run `to`, which continues it; returns whether `from` had the
    /// key and did not end. A run whose record is gone has ended; a run that was never recorded has not.
    ///
    /// The same transaction records `to` as running, with the session of `from`. The key expires when it would have.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn reclaim_key(
        &self,
        owner: &Owner,
        key: &str,
        from: &RunId,
        to: &RunId,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.reclaim_key(owner, key, from, to).await,
            Self::Postgres(postgres) => Box::pin(postgres.reclaim_key(owner, key, from, to)).await,
        }
    }

    /// Deletes the records of runs that ended, or were found interrupted, more than `age` ago; returns how many. Deletes
    /// expired idempotency keys too.
    ///
    /// # Errors
    /// When the store fails; some records may have been deleted.
    ///
    /// # Cancel safety
    /// As [`Store::expire`].
    pub async fn expire_runs(&self, age: Duration) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.expire_runs(age).await,
            Self::Postgres(postgres) => Box::pin(postgres.expire_runs(age)).await,
        }
    }
}
