//! The statements on idempotency keys. Each runs in the transaction of its caller.

use rusqlite::{Connection, OptionalExtension, params};

use super::super::super::run::KeyClaim;
use super::super::connections::StatementError;
use super::super::size::CHUNK;
use super::super::write::count;
use super::rows::run_id;
use crate::ids::{Owner, RunId};

/// Claims a key at the time `now`. Claims before `since` have expired.
pub(super) fn claim(
    connection: &Connection,
    (now, since): (i64, i64),
    (owner, key): (&Owner, &str),
    fingerprint: &[u8; 32],
    run: &RunId,
) -> Result<KeyClaim, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT fingerprint, run FROM idempotency_keys WHERE owner = ?1 AND key = ?2 AND created_at >= ?3",
    )?;
    let held = statement.query_row(params![owner.as_str(), key, since], |row| {
        let found: (Vec<u8>, String) = (row.get(0)?, row.get(1)?);
        Ok(found)
    });
    if let Some((of_request, holder)) = held.optional()? {
        if of_request != fingerprint {
            return Ok(KeyClaim::Reused);
        }
        let run = run_id(&holder)?;
        return Ok(KeyClaim::Held { run });
    }
    let mut statement = connection.prepare_cached(
        "INSERT INTO idempotency_keys (owner, key, fingerprint, run, created_at, recorded)
         VALUES (?1, ?2, ?3, ?4, ?5, EXISTS (SELECT 1 FROM runs WHERE id = ?4 AND owner = ?1))
         ON CONFLICT (owner, key) DO UPDATE SET fingerprint = excluded.fingerprint, run = excluded.run,
             created_at = excluded.created_at, recorded = excluded.recorded",
    )?;
    let fingerprint = fingerprint.as_slice();
    statement.execute(params![owner.as_str(), key, fingerprint, run.as_str(), now])?;
    Ok(KeyClaim::New)
}

/// Notes that the run that has these keys is recorded.
pub(super) fn mark_recorded(
    connection: &Connection,
    owner: &Owner,
    run: &RunId,
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "UPDATE idempotency_keys SET recorded = 1 WHERE owner = ?1 AND run = ?2 AND recorded = 0",
    )?;
    statement.execute([owner.as_str(), run.as_str()])?;
    Ok(())
}

pub(super) fn release(
    connection: &Connection,
    owner: &Owner,
    key: &str,
    run: &RunId,
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM idempotency_keys WHERE owner = ?1 AND key = ?2 AND run = ?3",
    )?;
    statement.execute([owner.as_str(), key, run.as_str()])?;
    Ok(())
}

/// Releases every key of a run.
pub(super) fn release_all(
    connection: &Connection,
    owner: &Owner,
    run: &RunId,
) -> Result<(), StatementError> {
    let mut statement =
        connection.prepare_cached("DELETE FROM idempotency_keys WHERE owner = ?1 AND run = ?2")?;
    statement.execute([owner.as_str(), run.as_str()])?;
    Ok(())
}

/// Gives the key of the run `from` to the run `to`; returns whether `from` had it and did not end. Claims before `since`
/// have expired.
pub(super) fn reassign(
    connection: &Connection,
    since: i64,
    (owner, key): (&Owner, &str),
    from: &RunId,
    to: &RunId,
) -> Result<bool, StatementError> {
    let mut statement = connection.prepare_cached(
        "UPDATE idempotency_keys SET run = ?4
         WHERE owner = ?1 AND key = ?2 AND run = ?3 AND created_at >= ?5
           AND (recorded = 0 OR EXISTS (SELECT 1 FROM runs WHERE id = ?3 AND owner = ?1 AND status <> 'ended'))",
    )?;
    let changed = statement.execute(params![
        owner.as_str(),
        key,
        from.as_str(),
        to.as_str(),
        since
    ])?;
    Ok(changed > 0)
}

/// Deletes some of the keys claimed before `cutoff`; returns whether there may be more.
pub(super) fn expire_some(connection: &Connection, cutoff: i64) -> Result<bool, StatementError> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM idempotency_keys WHERE (owner, key) IN
         (SELECT owner, key FROM idempotency_keys WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)",
    )?;
    Ok(statement.execute([cutoff, count(CHUNK.rows)])? == CHUNK.rows)
}
