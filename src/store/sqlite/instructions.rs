//! The instructions of a session: rows of `messages` with indexes before those of the messages.
//!
//! They are either all the session's own rows or all in one trunk.

use std::borrow::Cow;

use rusqlite::Connection;
use serde_json::value::RawValue;

use super::super::record::StoredMessage;
use super::connections::StatementError;
use super::messages::{MESSAGE_BYTES, message_bytes};
use super::pieces;
use super::size::Extent;
use super::write::{HIDDEN, SessionRow};
use crate::openai::message::Message;

/// Number of the first instruction. The others follow it; the first message has the number 0.
pub(super) const INSTRUCTIONS_START: i64 = -(1 << 32);

/// New instructions as they are stored.
pub(super) fn as_messages(instructions: &[Message]) -> Vec<StoredMessage> {
    let stored = instructions.iter().cloned().map(StoredMessage::visible);
    stored.collect()
}

/// What new instructions delete.
pub(super) fn removed(head: &SessionRow) -> Extent {
    match head.layout.shared_instructions {
        true => Extent { rows: 1, bytes: 0 },
        false => Extent {
            rows: usize::try_from(head.instruction_count).unwrap_or_default(),
            ..Extent::of_row(head.instruction_bytes)
        },
    }
}

/// Deletes the instructions of a session; returns whether a trunk was released.
pub(super) fn remove(connection: &Connection, head: &SessionRow) -> Result<bool, StatementError> {
    let shared = head.layout.shared_instructions;
    let mut statement = connection.prepare_cached(match shared {
        true => "DELETE FROM shared_messages WHERE session = ?1 AND first_seq < 0",
        false => "DELETE FROM messages WHERE session = ?1 AND seq < 0",
    })?;
    statement.execute([head.layout.row])?;
    Ok(shared)
}

/// The bytes of the first instructions.
pub(super) fn bytes_of_first(
    connection: &Connection,
    head: &SessionRow,
    kept: i64,
) -> Result<i64, StatementError> {
    if kept == head.instruction_count {
        return Ok(head.instruction_bytes);
    }
    let segments = head.layout.segments(connection, INSTRUCTIONS_START)?;
    message_bytes(connection, &segments, INSTRUCTIONS_START + kept)
}

/// Moves the instructions of all sessions from their column to rows of `messages`, one at a time. Part of a migration.
pub(super) fn move_to_rows(connection: &Connection) -> Result<(), StatementError> {
    let mut statement = connection.prepare(
        "SELECT id, instructions FROM sessions
         WHERE instructions NOT IN ('', '[]')
           AND (owner <> ?1 OR id IN (SELECT trunk FROM shared_messages WHERE first_seq = -1))",
    )?;
    let mut rows = statement.query([HIDDEN])?;
    while let Some(row) = rows.next()? {
        let session = row.get(0)?;
        let bytes = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
        let json = String::from_utf8_lossy(bytes);
        for (seq, one) in (INSTRUCTIONS_START..).zip(elements(&json)) {
            pieces::insert_json(connection, (session, seq), &one)?;
        }
    }
    drop(rows);
    drop(statement);
    connection.execute_batch(&format!(
        "UPDATE sessions SET
            instruction_bytes = moved.bytes,
            bytes = sessions.bytes + moved.bytes - octet_length(instructions)
         FROM (SELECT s.id, coalesce((SELECT sum({MESSAGE_BYTES}) FROM messages WHERE session = s.id AND seq < 0), 0)
                    AS bytes
               FROM sessions s) AS moved
         WHERE moved.id = sessions.id AND instructions <> '';
         UPDATE sessions SET
            shared_instructions = 1,
            instruction_bytes = trunk.instruction_bytes,
            bytes = sessions.bytes + trunk.instruction_bytes - octet_length(trunk.instructions)
         FROM shared_messages r JOIN sessions trunk ON trunk.id = r.trunk
         WHERE r.session = sessions.id AND r.first_seq = -1;
         UPDATE shared_messages SET
            first_seq = {INSTRUCTIONS_START},
            end_seq = {INSTRUCTIONS_START} + (SELECT instruction_count FROM sessions WHERE id = session)
         WHERE first_seq = -1;
         ALTER TABLE sessions DROP COLUMN instructions;"
    ))?;
    Ok(())
}

/// The elements of a JSON array. A damaged text stays whole, so that it is an error to read the session, not to open the
/// database.
fn elements(json: &str) -> Vec<Cow<'_, str>> {
    match serde_json::from_str::<Vec<&RawValue>>(json) {
        Ok(list) => list.into_iter().map(|one| one.get().into()).collect(),
        Err(_) => vec![json.into()],
    }
}
