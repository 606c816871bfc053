//! The time by which things expire, as the database keeps it.

use rusqlite::{Connection, OptionalExtension, params};

use super::super::StoreError;
use super::super::clock::{Clock, ExpiryTime};
use super::super::shares::StatementSize;
use super::Sqlite;
use protocol::ids::Owner;

impl Sqlite {
    /// The time by which things expire.
    pub(crate) fn expiry_time(&self) -> ExpiryTime {
        self.0.clock.kept_expiry_time()
    }

    /// Continues from the expiry time of another store.
    pub(crate) async fn set_expiry_time(&self, time: ExpiryTime) -> Result<(), StoreError> {
        self.0.clock.continue_from(time);
        self.keep_expiry_time().await
    }

    /// Keeps the time by which things expire for the next start.
    pub(crate) async fn keep_expiry_time(&self) -> Result<(), StoreError> {
        let time = self.expiry_time();
        let server = Owner::server();
        let checkout = self.0.writer.checkout(&server, StatementSize::Small).await;
        checkout?
            .run(|connection| Ok(keep(connection, time)?))
            .await
    }
}

/// Keeps the time by which things expire in a database.
pub(super) fn keep(connection: &Connection, time: ExpiryTime) -> rusqlite::Result<()> {
    let sql = "INSERT INTO expiry_time (id, trusted, credit) VALUES (1, ?1, ?2)
        ON CONFLICT (id) DO UPDATE SET trusted = excluded.trusted, credit = excluded.credit";
    connection.execute(sql, params![time.trusted, time.credit])?;
    Ok(())
}

/// The expiry time from which an opened store continues. An empty store trusts the clock; one that has not stored its
/// expiry time yet trusts its newest write.
pub(super) fn kept(connection: &Connection) -> rusqlite::Result<ExpiryTime> {
    // Each is the end of an index.
    let sql = "SELECT nullif(max(
        coalesce((SELECT max(updated_at) FROM sessions), 0),
        coalesce((SELECT max(last_used_at) FROM files), 0)), 0)";
    let newest: Option<i64> = connection.query_row(sql, [], |row| row.get(0))?;
    let empty =
        "SELECT NOT EXISTS (SELECT 1 FROM runs) AND NOT EXISTS (SELECT 1 FROM idempotency_keys)";
    let empty = newest.is_none() && connection.query_row(empty, [], |row| row.get(0))?;
    let sql = "SELECT trusted, credit FROM expiry_time";
    let kept = connection.query_row(sql, [], |row| {
        Ok(ExpiryTime {
            trusted: row.get(0)?,
            credit: row.get(1)?,
        })
    });
    let now = Clock::default().stamp();
    Ok(match kept.optional()? {
        Some(kept) if !empty => kept,
        Some(_) | None => ExpiryTime::trusting(newest.unwrap_or(now)),
    })
}
