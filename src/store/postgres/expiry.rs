//! The time by which things expire. The processes share it, and count the time that passes together.

use std::time::Instant;

use parking_lot::Mutex;
use sqlx::query;

use super::super::StoreError;
use super::super::clock::{ExpiryTime, micros_between};
use super::Postgres;
use super::connect::column;

/// What the database had counted when this process looked last, and when that was.
#[derive(Debug, Default)]
pub(super) struct ElapsedTime(Mutex<Option<(i64, Instant)>>);

impl ElapsedTime {
    /// What is to be counted now, where the database has counted `stored`. Time that two processes see counts once.
    fn advance(&self, stored: i64) -> i64 {
        let now = Instant::now();
        let mut seen = self.0.lock();
        let own = seen.map_or(stored, |(elapsed, at)| elapsed + micros_between(at, now));
        let elapsed = own.max(stored);
        *seen = Some((elapsed, now));
        elapsed
    }
}

impl Postgres {
    /// Sets the expiry time of a store in which nothing is, which trusts the clock, and begins to count.
    pub(super) async fn begin_expiry(&self) -> Result<(), StoreError> {
        let sql =
            "UPDATE expiry_time SET trusted = micros_1() WHERE NOT EXISTS (SELECT 1 FROM sessions)
            AND NOT EXISTS (SELECT 1 FROM files) AND NOT EXISTS (SELECT 1 FROM runs)
            AND NOT EXISTS (SELECT 1 FROM idempotency_keys)";
        self.0.connections.server().rows(|| query(sql)).await?;
        self.advance_expiry().await.map(drop)
    }

    pub(crate) async fn expiry_time(&self) -> Result<ExpiryTime, StoreError> {
        let sql = "SELECT trusted, credit FROM expiry_time";
        let row = self.0.connections.server().one(|| query(sql)).await?;
        Ok(ExpiryTime {
            trusted: column(&row, 0)?,
            credit: column(&row, 1)?,
        })
    }

    pub(crate) async fn set_expiry_time(&self, time: ExpiryTime) -> Result<(), StoreError> {
        let sql = "UPDATE expiry_time SET trusted = $1, credit = $2";
        let set = || query(sql).bind(time.trusted).bind(time.credit);
        self.0.connections.server().rows(set).await.map(drop)
    }

    /// Advances the expiry time by the time that passed since the last call of any process.
    pub(crate) async fn advance_expiry(&self) -> Result<(), StoreError> {
        let sql = "SELECT trusted, credit, elapsed, micros_1() FROM expiry_time";
        let row = self.0.connections.server().one(|| query(sql)).await?;
        let kept = ExpiryTime {
            trusted: column(&row, 0)?,
            credit: column(&row, 1)?,
        };
        let (stored, wall): (i64, i64) = (column(&row, 2)?, column(&row, 3)?);
        let elapsed = self.0.elapsed.advance(stored);
        let time = kept.advance(elapsed.saturating_sub(stored), wall);
        time.report(wall);
        // Another process may have advanced it since.
        let sql = "UPDATE expiry_time SET trusted = $1, credit = $2, elapsed = $3 WHERE trusted = $4 AND elapsed = $5";
        let update = || {
            let statement = query(sql).bind(time.trusted).bind(time.credit);
            statement.bind(elapsed).bind(kept.trusted).bind(stored)
        };
        self.0.connections.server().rows(update).await.map(drop)
    }
}
