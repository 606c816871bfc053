//! Messages that forks share.
//!
//! The rows of a session's messages lie in segments: first those of trunks, which other sessions may use too, then its
//! own. A trunk is a hidden session. Every session refers to its trunks directly, so reads never follow a chain. A
//! trunk gets rows only once, when a fork makes it, and loses the last ones when no session uses them.

use rusqlite::{Connection, OptionalExtension, params};

use super::connections::StatementError;
use super::messages::MessageRange;
use super::pieces;
use super::size::{CHUNK, Extent};
use super::write::{HIDDEN, SessionRow, hide_session};

/// Consecutive messages whose rows belong to one row of `sessions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// The session or trunk that has the rows.
    pub(super) row: i64,
    pub(super) from: i64,
    /// The first message after them; `i64::MAX` for all.
    pub(super) to: i64,
}

impl Segment {
    /// The own rows of a session from the index `from`.
    pub(super) fn own(row: i64, from: i64) -> Self {
        let to = i64::MAX;
        Self { row, from, to }
    }

    /// The part between two indexes; `None` if it is empty.
    pub(super) fn between(self, from: i64, to: i64) -> Option<Self> {
        let part = Self {
            row: self.row,
            from: self.from.max(from),
            to: self.to.min(to),
        };
        (part.from < part.to).then_some(part)
    }
}

/// The segments of a session from the index `from`, of whose messages `shared` are in trunks. The last segment is its
/// own rows.
pub(super) fn segments(
    connection: &Connection,
    row: i64,
    shared: i64,
    from: i64,
) -> Result<Vec<Segment>, StatementError> {
    if from >= shared {
        return Ok(vec![Segment::own(row, from)]);
    }
    let mut statement = connection.prepare_cached(
        "SELECT trunk, first_seq, end_seq FROM shared_messages
         WHERE session = ?1 AND first_seq >= 0 AND end_seq > ?2 ORDER BY first_seq",
    )?;
    let found = statement.query_map([row, from], |found| {
        Ok(Segment {
            row: found.get(0)?,
            from: from.max(found.get(1)?),
            to: found.get(2)?,
        })
    });
    let mut segments = found?.collect::<Result<Vec<_>, _>>()?;
    segments.push(Segment::own(row, shared));
    Ok(segments)
}

/// The instructions of a session as JSON.
pub(super) fn instructions(connection: &Connection, row: i64) -> Result<String, StatementError> {
    let mut statement =
        connection.prepare_cached("SELECT instructions FROM sessions WHERE id = ?1")?;
    let own: String = statement.query_row([row], |found| found.get(0))?;
    if !own.is_empty() {
        return Ok(own);
    }
    let mut of_trunk = connection.prepare_cached(
        "SELECT instructions FROM sessions
         WHERE id = (SELECT trunk FROM shared_messages WHERE session = ?1 AND first_seq = -1)",
    )?;
    Ok(of_trunk.query_row([row], |found| found.get(0))?)
}

/// The bytes of instructions whose own text has this length.
pub(super) fn instructions_bytes(
    connection: &Connection,
    head: &SessionRow,
) -> Result<i64, StatementError> {
    if head.instructions_bytes > 0 {
        return Ok(head.instructions_bytes);
    }
    let mut statement = connection.prepare_cached(
        "SELECT octet_length(instructions) FROM sessions
         WHERE id = (SELECT trunk FROM shared_messages WHERE session = ?1 AND first_seq = -1)",
    )?;
    Ok(statement.query_row([head.row], |found| found.get(0))?)
}

/// Lets a session use the trunks of another one for its first `keep` messages.
pub(super) fn share(
    connection: &Connection,
    [source, target]: [i64; 2],
    keep: i64,
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO shared_messages (session, first_seq, end_seq, trunk)
         SELECT ?2, first_seq, min(end_seq, ?3), trunk FROM shared_messages
         WHERE session = ?1 AND first_seq >= 0 AND first_seq < ?3",
    )?;
    statement.execute([source, target, keep])?;
    Ok(())
}

/// Lets a session use the trunk of another one for its instructions.
pub(super) fn share_instructions(
    connection: &Connection,
    [source, target]: [i64; 2],
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO shared_messages (session, first_seq, end_seq, trunk)
         SELECT ?2, first_seq, end_seq, trunk FROM shared_messages WHERE session = ?1 AND first_seq = -1",
    )?;
    statement.execute([source, target])?;
    Ok(())
}

/// Ends the use of trunks for the instructions.
pub(super) fn release_instructions(
    connection: &Connection,
    row: i64,
) -> Result<(), StatementError> {
    let mut statement = connection
        .prepare_cached("DELETE FROM shared_messages WHERE session = ?1 AND first_seq = -1")?;
    statement.execute([row])?;
    Ok(())
}

/// Ends the use of trunks for the messages from the index `keep`.
pub(super) fn truncate(connection: &Connection, row: i64, keep: i64) -> Result<(), StatementError> {
    let mut statement = connection
        .prepare_cached("DELETE FROM shared_messages WHERE session = ?1 AND first_seq >= ?2")?;
    statement.execute([row, keep])?;
    let mut statement = connection.prepare_cached(
        "UPDATE shared_messages SET end_seq = ?2 WHERE session = ?1 AND first_seq >= 0 AND end_seq > ?2",
    )?;
    statement.execute([row, keep])?;
    Ok(())
}

/// A trunk that was released, if there is one.
pub(super) fn released(connection: &Connection) -> Result<Option<i64>, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM sessions WHERE owner = ?1 AND session_id >= 'released-' AND session_id < 'released.' LIMIT 1",
    )?;
    Ok(statement.query_row([HIDDEN], |row| row.get(0)).optional()?)
}

/// Removes messages of a released trunk that no session uses, up to a chunk. A trunk without users is marked for removal.
pub(super) fn trim(connection: &Connection, row: i64) -> Result<Extent, StatementError> {
    let mut statement =
        connection.prepare_cached("SELECT max(end_seq) FROM shared_messages WHERE trunk = ?1")?;
    let used: Option<i64> = statement.query_row([row], |found| found.get(0))?;
    let Some(used) = used else {
        hide_session(connection, row)?;
        return Ok(Extent { rows: 1, bytes: 0 });
    };
    if let Some(shortened) = pieces::shorten(connection, row, used)? {
        return Ok(shortened);
    }
    let range = MessageRange::of(connection, &[Segment::own(row, used)], CHUNK)?;
    let mut statement = connection
        .prepare_cached("DELETE FROM messages WHERE session = ?1 AND seq >= ?2 AND seq < ?3")?;
    statement.execute([row, used, range.to])?;
    if range.whole {
        mark_trunk(connection, row)?;
    }
    Ok(range.extent.plus(Extent { rows: 1, bytes: 0 }))
}

/// Makes the session with this row a trunk.
pub(super) fn mark_trunk(connection: &Connection, row: i64) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "UPDATE sessions SET owner = ?2, session_id = 'trunk-' || id WHERE id = ?1",
    )?;
    statement.execute(params![row, HIDDEN])?;
    Ok(())
}
