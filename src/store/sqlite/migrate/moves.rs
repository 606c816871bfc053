//! The steps of migrations that are not SQL alone.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use serde_json::value::RawValue;

use super::super::super::sessions::{INSTRUCTIONS_START, message_bytes};
use super::super::connections::StatementError;

/// The owner of hidden sessions, as earlier versions made them: what forks shared, and what was being written or deleted.
const HIDDEN: &str = "\u{1}hidden";
/// How often the log says how far a long migration is.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Moves the instructions of all sessions from their column to rows of `messages`, one at a time.
pub(super) fn instructions_to_rows(connection: &Connection) -> Result<(), StatementError> {
    let mut statement = connection.prepare(
        "SELECT id, instructions FROM sessions
         WHERE instructions NOT IN ('', '[]')
           AND (owner <> ?1 OR id IN (SELECT trunk FROM shared_messages WHERE first_seq = -1))",
    )?;
    let mut insert = connection
        .prepare("INSERT INTO messages (session, seq, json, hidden) VALUES (?1, ?2, ?3, 0)")?;
    let mut rows = statement.query([HIDDEN])?;
    while let Some(row) = rows.next()? {
        let session: i64 = row.get(0)?;
        let bytes = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
        let json = String::from_utf8_lossy(bytes);
        for (seq, one) in (INSTRUCTIONS_START..).zip(elements(&json)) {
            insert.execute(params![session, seq, one])?;
        }
    }
    drop(rows);
    let bytes = message_bytes!();
    connection.execute_batch(&format!(
        "UPDATE sessions SET
            instruction_bytes = moved.bytes,
            bytes = sessions.bytes + moved.bytes - octet_length(instructions)
         FROM (SELECT s.id, coalesce((SELECT sum({bytes}) FROM messages WHERE session = s.id AND seq < 0), 0) AS bytes
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

/// The text of a column of `messages m`, whose pieces have a number if it is long.
macro_rules! whole {
    ($column:literal, $field:literal) => {
        concat!(
            "CASE m.long_bytes WHEN 0 THEN m.",
            $column,
            " ELSE coalesce((
                SELECT group_concat(CAST(p.piece AS TEXT), '' ORDER BY p.part) FROM message_pieces p
                WHERE p.session = m.session AND p.seq = m.seq AND p.field = ",
            $field,
            "), m.",
            $column,
            ") END"
        )
    };
}

/// Copies messages of a session.
macro_rules! copy_messages {
    ($from:literal) => {
        concat!(
            "INSERT INTO whole_messages (session, seq, json, hidden, view, full_text, sources)
             SELECT ?1, m.seq, ",
            whole!("json", "0"),
            ", m.hidden, ",
            whole!("view", "1"),
            ", ",
            whole!("full_text", "2"),
            ", ",
            whole!("sources", "3"),
            $from
        )
    };
}

/// Gives each session rows of all its messages, with whole texts.
pub(super) fn messages_to_sessions(connection: &Connection) -> Result<(), StatementError> {
    let of_session = copy_messages!(
        " FROM messages m JOIN sessions s ON s.id = m.session
          WHERE m.session = ?1 AND (m.seq < 0 OR m.seq >= s.shared)"
    );
    let of_others = copy_messages!(
        " FROM shared_messages r JOIN messages m ON m.session = r.trunk AND m.seq >= r.first_seq AND m.seq < r.end_seq
          WHERE r.session = ?1"
    );
    let (mut own, mut shared) = (
        connection.prepare(of_session)?,
        connection.prepare(of_others)?,
    );
    let mut statement =
        connection.prepare("SELECT id FROM sessions WHERE owner <> ?1 ORDER BY id")?;
    let sessions = statement.query_map([HIDDEN], |row| row.get::<_, i64>(0))?;
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    let (total, mut reported) = (sessions.len(), Instant::now());
    for (done, session) in sessions.into_iter().enumerate() {
        if reported.elapsed() >= REPORT_INTERVAL {
            tracing::info!(
                done,
                total,
                "the sessions of an older version are brought up to date"
            );
            reported = Instant::now();
        }
        own.execute([session])?;
        shared.execute([session])?;
    }
    drop((own, shared));
    connection.execute_batch(
        "DROP TABLE message_pieces;
         DROP TABLE shared_messages;
         DROP TABLE messages;
         DELETE FROM sessions WHERE owner = char(1) || 'hidden';
         ALTER TABLE whole_messages RENAME TO messages;
         ALTER TABLE sessions DROP COLUMN shared;
         ALTER TABLE sessions DROP COLUMN shared_instructions;
         ALTER TABLE sessions RENAME COLUMN id TO num;
         ALTER TABLE sessions RENAME COLUMN nameless TO origin;",
    )?;
    Ok(())
}
