//! Instructions and messages that forks share.
//!
//! The rows of a session's messages lie in segments: first those of trunks, which other sessions may use too, then its
//! own. Its instructions are one segment before them. A trunk is a hidden session. Every session refers to its trunks
//! directly, so reads never follow a chain. A trunk gets rows only once, when a fork makes it, and loses the last
//! instructions and messages when no session uses them.

use rusqlite::{Connection, OptionalExtension, params};

use super::connections::StatementError;
use super::instructions::INSTRUCTIONS_START;
use super::messages::MessageRange;
use super::pieces;
use super::size::{CHUNK, Extent};
use super::sweep::hide_session;
use super::write::HIDDEN;

/// Which rows of a session are in trunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowLayout {
    /// The row of `sessions`.
    pub(super) row: i64,
    /// Whether the instructions are in a trunk.
    pub(super) shared_instructions: bool,
    /// How many of the messages are in trunks.
    pub(super) shared: i64,
}

/// Consecutive instructions or messages whose rows belong to one row of `sessions`.
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

impl RowLayout {
    /// The segments from the index `from`. The last one is own rows.
    pub(super) fn segments(
        self,
        connection: &Connection,
        from: i64,
    ) -> Result<Vec<Segment>, StatementError> {
        let instructions = from < 0 && self.shared_instructions;
        if !instructions && from.max(0) >= self.shared {
            return Ok(vec![Segment::own(self.row, from)]);
        }
        let mut statement = connection.prepare_cached(
            "SELECT trunk, first_seq, end_seq FROM shared_messages
             WHERE session = ?1 AND end_seq > ?2 ORDER BY first_seq",
        )?;
        let found = statement.query_map([self.row, from], |found| {
            Ok(Segment {
                row: found.get(0)?,
                from: from.max(found.get(1)?),
                to: found.get(2)?,
            })
        });
        let own_instructions = Segment {
            to: 0,
            ..Segment::own(self.row, from)
        };
        let own_instructions = (from < 0 && !instructions).then_some(Ok(own_instructions));
        let mut segments = own_instructions
            .into_iter()
            .chain(found?)
            .collect::<Result<Vec<_>, _>>()?;
        segments.push(Segment::own(self.row, self.shared));
        Ok(segments)
    }

    /// The first own row and the end of those before it, for the instructions and for the messages. Both end at the given
    /// indexes.
    pub(super) fn own_before(self, [instructions, messages]: [i64; 2]) -> [[i64; 2]; 2] {
        let first = match self.shared_instructions {
            true => instructions,
            false => INSTRUCTIONS_START,
        };
        let first_message = self.shared.min(messages);
        [[first, instructions], [first_message, messages]]
    }
}

/// Lets a session use the trunks of another one for the instructions and the messages that end at the given indexes.
pub(super) fn share(
    connection: &Connection,
    [source, target]: [i64; 2],
    [instructions, messages]: [i64; 2],
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO shared_messages (session, first_seq, end_seq, trunk)
         SELECT ?2, first_seq, min(end_seq, kept), trunk
         FROM (SELECT *, CASE WHEN first_seq < 0 THEN ?3 ELSE ?4 END AS kept FROM shared_messages WHERE session = ?1)
         WHERE first_seq < kept",
    )?;
    statement.execute([source, target, instructions, messages])?;
    Ok(())
}

/// Ends the use of trunks for the messages from the index `keep`.
pub(super) fn truncate(connection: &Connection, row: i64, keep: i64) -> Result<(), StatementError> {
    let mut statement = connection
        .prepare_cached("DELETE FROM shared_messages WHERE session = ?1 AND first_seq >= ?2")?;
    statement.execute([row, keep])?;
    let mut statement = connection.prepare_cached(
        "UPDATE shared_messages SET end_seq = ?2 WHERE session = ?1 AND end_seq > ?2",
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

/// Removes instructions and messages of a released trunk that no session uses, up to a chunk. A trunk without users is
/// marked for removal.
pub(super) fn trim(connection: &Connection, row: i64) -> Result<Extent, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT (SELECT max(end_seq) FROM shared_messages WHERE trunk = ?1),
                (SELECT max(end_seq) FROM shared_messages WHERE trunk = ?1 AND end_seq < 0)",
    )?;
    let (used, instructions): (Option<i64>, Option<i64>) =
        statement.query_row([row], |found| Ok((found.get(0)?, found.get(1)?)))?;
    let Some(used) = used else {
        hide_session(connection, row)?;
        return Ok(Extent { rows: 1, bytes: 0 });
    };
    let unused_instructions = Segment {
        row,
        from: instructions.unwrap_or(INSTRUCTIONS_START),
        to: 0,
    };
    let unused = [unused_instructions, Segment::own(row, used.max(0))];
    for segment in unused {
        if let Some(shortened) = pieces::shorten(connection, segment)? {
            return Ok(shortened);
        }
    }
    let range = MessageRange::of(connection, &unused, CHUNK)?;
    let mut statement = connection
        .prepare_cached("DELETE FROM messages WHERE session = ?1 AND seq >= ?2 AND seq < ?3")?;
    for part in unused {
        if let Some(part) = part.between(part.from, range.to) {
            statement.execute([row, part.from, part.to])?;
        }
    }
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
