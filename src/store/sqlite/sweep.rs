//! Removes hidden sessions, and the messages of trunks that no session uses any more.

use rusqlite::{Connection, OptionalExtension, params};

use super::connections::StatementError;
use super::messages::MessageRange;
use super::pieces;
use super::shared::{Segment, released, trim};
use super::size::{CHUNK, Extent};
use super::write::{HIDDEN, begin, count};

/// Removes one chunk of the hidden sessions and of what released trunks have too much; returns whether there may be more.
pub(super) fn sweep(connection: &mut Connection) -> Result<bool, StatementError> {
    let transaction = begin(connection)?;
    let mut removed = Extent::default();
    while removed.fits(CHUNK) {
        let mut statement = transaction.prepare_cached(
            "SELECT id FROM sessions WHERE owner = ?1 AND session_id >= 'deleted-' AND session_id < 'deleted.' LIMIT 1",
        )?;
        let found = statement.query_row([HIDDEN], |row| row.get::<_, i64>(0));
        let extent = match (found.optional()?, released(&transaction)?) {
            (Some(row), _) => sweep_session(&transaction, row)?,
            (None, Some(trunk)) => trim(&transaction, trunk)?,
            (None, None) => {
                drop(statement);
                transaction.commit()?;
                return Ok(false);
            }
        };
        removed = removed.plus(extent);
    }
    transaction.commit()?;
    Ok(true)
}

/// Removes files and messages of a hidden session, up to a chunk; removes the session when none are left.
fn sweep_session(connection: &Connection, row: i64) -> Result<Extent, StatementError> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM session_files WHERE session = ?1 AND file IN
         (SELECT file FROM session_files WHERE session = ?1 LIMIT ?2)",
    )?;
    let files = statement.execute(params![row, count(CHUNK.rows)])?;
    let mut statement = connection
        .prepare_cached("SELECT coalesce(min(seq), 0) FROM messages WHERE session = ?1")?;
    let from: i64 = statement.query_row([row], |row| row.get(0))?;
    if let Some(shortened) = pieces::shorten(connection, row, from)? {
        return Ok(shortened);
    }
    let range = MessageRange::of(connection, &[Segment::own(row, from)], CHUNK)?;
    let mut statement =
        connection.prepare_cached("DELETE FROM messages WHERE session = ?1 AND seq < ?2")?;
    statement.execute(params![row, range.to])?;
    if range.whole && files < CHUNK.rows {
        let mut statement = connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?;
        statement.execute([row])?;
    }
    Ok(range.extent.plus(Extent {
        rows: files + 1,
        bytes: 0,
    }))
}
