//! Idempotency keys: which run has which.

use super::clock::micros;
use super::run::{KEY_TTL, KeyClaim};
use super::shares::StatementSize;
use super::tx::{SqlValue, run_id, values};
use super::{Store, StoreError, retrying};
use protocol::ids::{Owner, RunId};

/// Most attempts to claim a key that expires or is released meanwhile. After them the request fails.
const CLAIMS: usize = 5;

impl Store {
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
        let claim = "INSERT INTO idempotency_keys (owner, key, fingerprint, run, created_at, recorded, replica)
            SELECT $1, $2, $3, $4, micros_1(), EXISTS (SELECT 1 FROM runs WHERE id = $4 AND owner = $1), $5 WHERE true
            ON CONFLICT (owner, key) DO UPDATE SET fingerprint = excluded.fingerprint, run = excluded.run,
                created_at = excluded.created_at, recorded = excluded.recorded, replica = excluded.replica
            WHERE idempotency_keys.created_at < expiry_time_4() - $6 OR idempotency_keys.run = excluded.run
            RETURNING 1";
        let find = "SELECT fingerprint, run FROM idempotency_keys WHERE owner = $1 AND key = $2";
        let mut tx = self.single(owner, StatementSize::Small).await?;
        for _ in 0..CLAIMS {
            let (name, value) = (owner.as_str(), SqlValue::any(key));
            let replica = self.engine.replica();
            let values = values![
                name,
                value,
                &fingerprint[..],
                run.as_str(),
                replica,
                micros(KEY_TTL)
            ];
            if tx.row(claim, values).await?.is_some() {
                // The check against the limit is made when the run ends.
                let _full = self.shared.answers.count_added(key.len(), self.is_shared());
                return Ok(KeyClaim::New);
            }
            if let Some(mut held) = tx.row(find, values![name, value]).await? {
                if held.column::<bytes::Bytes>(0)? != fingerprint[..] {
                    return Ok(KeyClaim::Reused);
                }
                let run = run_id(&held.column::<String>(1)?)?;
                return Ok(KeyClaim::Held { run });
            }
        }
        Err(StoreError::failed(
            "an idempotency key changed its holder again and again",
        ))
    }

    /// Releases an idempotency key, if this run has it. The record of the run stays.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn release_key(
        &self,
        owner: &Owner,
        key: &str,
        run: &RunId,
    ) -> Result<(), StoreError> {
        let sql = "DELETE FROM idempotency_keys WHERE owner = $1 AND key = $2 AND run = $3";
        let mut tx = self.single(owner, StatementSize::Small).await?;
        let values = values![owner.as_str(), SqlValue::any(key), run.as_str()];
        tx.rows(sql, values).await.map(drop)
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
        let sql = "UPDATE idempotency_keys SET run = $4, replica = $6
            WHERE owner = $1 AND key = $2 AND run = $3 AND created_at >= expiry_time_4() - $5
              AND ((NOT recorded AND (replica = $6 OR NOT is_alive_1(replica)))
                   OR EXISTS (SELECT 1 FROM runs r WHERE r.id = $3 AND r.owner = $1 AND r.status <> 'ended'
                                AND (r.status = 'interrupted' OR r.replica = $6 OR NOT is_alive_1(r.replica))))
            RETURNING 1";
        let passed = "SELECT 1 FROM idempotency_keys WHERE owner = $1 AND key = $2 AND run = $3";
        let session = "SELECT session_id FROM runs WHERE id = $1 AND owner = $2";
        retrying(|| async move {
            let mut tx = self.begin(owner, StatementSize::Small).await?;
            let (name, ttl, replica) = (owner.as_str(), micros(KEY_TTL), self.engine.replica());
            let (old, new) = (from.as_str(), to.as_str());
            let values = values![name, SqlValue::any(key), old, new, ttl, replica];
            if tx.row(sql, values).await?.is_none() {
                // It may have been passed by an attempt whose answer was lost.
                let values = values![name, SqlValue::any(key), new];
                let passed = tx.row(passed, values).await?.is_some();
                tx.commit().await?;
                return Ok(passed);
            }
            let session = tx.row(session, values![old, name]).await?;
            let session: Option<String> = match session {
                Some(mut row) => row.column(0)?,
                None => None,
            };
            self.record_run(&mut tx, to, owner, session.as_deref())
                .await?;
            tx.commit().await?;
            Ok(true)
        })
        .await
    }
}
