//! What is deleted because of its age.

use std::time::Duration;

use sqlx::query;

use super::super::StoreError;
use super::Postgres;
use super::connect::Statement;
use super::runs::micros;
use crate::ids::Owner;

/// Most rows deleted with one statement; others follow.
/// Tried by `suite::keys::keys_expire`.
pub(super) const BATCH: i64 = 500;

impl Postgres {
    pub(in crate::store) async fn expire(
        &self,
        ttl: Option<Duration>,
        nameless_ttl: Option<Duration>,
    ) -> Result<u64, StoreError> {
        let sql = "DELETE FROM sessions WHERE num IN (
                SELECT num FROM sessions WHERE (origin = 1) = $1 AND updated_at < expiry_time_4() - $2
                ORDER BY updated_at LIMIT $3)
            RETURNING 1";
        self.advance_expiry().await?;
        let mut expired = 0;
        for (nameless, ttl) in [(false, ttl), (true, nameless_ttl)] {
            let Some(ttl) = ttl else { continue };
            let delete = || query(sql).bind(nameless).bind(micros(ttl)).bind(BATCH);
            expired += self.in_batches(delete).await?;
        }
        Ok(expired)
    }

    pub(in crate::store) async fn expire_files(&self, ttl: Duration) -> Result<u64, StoreError> {
        let sql = "DELETE FROM files WHERE num IN (
                SELECT f.num FROM files f WHERE f.last_used_at < expiry_time_4() - $1
                  AND NOT EXISTS (SELECT 1 FROM session_files l WHERE l.file = f.num)
                ORDER BY f.last_used_at LIMIT $2)
            RETURNING 1";
        self.advance_expiry().await?;
        self.in_batches(|| query(sql).bind(micros(ttl)).bind(BATCH))
            .await
    }

    /// Repeats a statement that deletes at most [`BATCH`] rows until there are fewer; returns how many were deleted.
    pub(super) async fn in_batches<'q>(
        &self,
        delete: impl Fn() -> Statement<'q>,
    ) -> Result<u64, StoreError> {
        let mut total = 0;
        loop {
            let deleted = self
                .0
                .connections
                .large(&Owner::server())
                .rows(&delete)
                .await?
                .len() as u64;
            total += deleted;
            if deleted < BATCH.unsigned_abs() {
                return Ok(total);
            }
        }
    }
}
