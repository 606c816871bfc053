//! Changes of sessions, each in one transaction.

use rusqlite::Connection;
use rusqlite::types::Value as SqliteValue;

use super::super::StoreError;
use super::super::clock::MICROS_PER_SECOND;
use super::super::leases::Fence;
use super::super::limits::Growth;
use super::super::record::{Change, Replaced, StoredMessage};
use super::super::runs::BEGIN_RUN;
use super::super::sessions::{INSTRUCTIONS_START, message_bytes};
use super::super::tx::{SqlValue, signed, unsigned, values};
use super::connections::StatementError;
use super::statements::{begin, rows};
use protocol::ids::RunId;

/// How long the later writes of a run leave the indexed time of its session as it is, in microseconds. A write that
/// changes it rewrites a page of each of four indexes.
/// Tried by `sqlite::runs::the_later_writes_of_a_run_leave_the_indexed_time_for_a_while`.
const TOUCH_INTERVAL: i64 = 10 * MICROS_PER_SECOND;

/// A change to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionWrite<'a> {
    pub(super) fence: &'a Fence,
    pub(super) change: &'a Change,
    /// The time of creation in seconds since 1970, 0 for now, if the session is replaced.
    pub(super) created_at: Option<i64>,
}

/// The row of a session.
struct Head {
    num: i64,
    instruction_count: i64,
    /// Number of messages, without the instructions.
    messages: i64,
    title_seq: Option<i64>,
    instruction_bytes: i64,
    bytes: i64,
    updated_at: i64,
    has_run: bool,
    metadata_bytes: i64,
}

/// A message as it is stored.
struct EncodedMessage<'a> {
    stored: &'a StoredMessage,
    view: Option<String>,
    sources: Option<String>,
}

impl Head {
    fn find(connection: &Connection, fence: &Fence) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare_cached(
            "SELECT num, instruction_count, message_count - instruction_count, title_seq, instruction_bytes, bytes,
                    updated_at, last_run IS NOT NULL, coalesce(octet_length(metadata), 0)
             FROM sessions WHERE owner = ?1 AND session_id = ?2",
        )?;
        let mut rows = statement.query([fence.owner.as_str(), fence.id.as_str()])?;
        let head = |row: &rusqlite::Row<'_>| {
            Ok(Self {
                num: row.get(0)?,
                instruction_count: row.get(1)?,
                messages: row.get(2)?,
                title_seq: row.get(3)?,
                instruction_bytes: row.get(4)?,
                bytes: row.get(5)?,
                updated_at: row.get(6)?,
                has_run: row.get(7)?,
                metadata_bytes: row.get(8)?,
            })
        };
        rows.next()?.map(head).transpose()
    }
}

impl<'a> EncodedMessage<'a> {
    fn of(stored: &'a StoredMessage) -> Result<Self, StoreError> {
        let view = stored.view.as_ref().map(serde_json::to_string).transpose();
        let sources = match &*stored.sources {
            [] => Ok(None),
            sources => serde_json::to_string(sources).map(Some),
        };
        Ok(Self {
            stored,
            view: view.map_err(StoreError::failed)?,
            sources: sources.map_err(StoreError::failed)?,
        })
    }

    fn bytes(&self) -> usize {
        let texts = [&self.view, &self.stored.full_text, &self.sources];
        let texts = texts.into_iter().flatten().map(String::len);
        self.stored.message.json_str().len() + texts.sum::<usize>()
    }

    fn insert(&self, connection: &Connection, session: i64, seq: i64) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        statement.execute(rusqlite::params![
            session,
            seq,
            self.stored.message.json_str(),
            self.stored.hidden,
            self.view,
            self.stored.full_text,
            self.sources,
        ])?;
        Ok(())
    }
}

/// Makes a change. If its growth is not admitted, nothing is changed, and the inner error says how many bytes it would add.
pub(super) fn write(
    connection: &Connection,
    write: SessionWrite<'_>,
    admit: impl Fn(Growth) -> Result<bool, StoreError>,
    now: i64,
) -> Result<Result<Replaced, u64>, StatementError> {
    let SessionWrite { fence, change, .. } = write;
    let messages = change.append.iter().map(EncodedMessage::of);
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    begin(connection)?;
    let mut head = Head::find(connection, fence)?;
    let before = head.as_ref().map(|head| unsigned(head.bytes));
    if let Some(head) = &mut head {
        head.bytes -= write.drop_turn(connection, head.num)?;
    }
    let stored = head.as_ref().map_or(0, |head| head.messages);
    let keep = match write.created_at {
        Some(_) => 0,
        None => stored.min(signed(change.keep)),
    };
    let mut sizes = sizes(connection, write, head.as_ref(), keep, &messages)?;
    sizes.bytes += write.turn_bytes(connection)?;
    let growth = Growth {
        before,
        after: unsigned(sizes.bytes),
    };
    if !admit(growth)? {
        return Ok(Err(growth.added()));
    }
    let num = match &head {
        None => insert_session(connection, write, &sizes, now)?,
        Some(head) => {
            if keep < stored {
                let sql = "DELETE FROM messages WHERE session = $1 AND seq >= $2";
                rows(connection, sql, values![head.num, keep])?;
            }
            if sizes.replaces_instructions && head.instruction_count > 0 {
                let sql = "DELETE FROM messages WHERE session = $1 AND seq < 0";
                rows(connection, sql, values![head.num])?;
            }
            update_session(connection, write, head, (keep, now), &sizes)?;
            head.num
        }
    };
    for (seq, instruction) in (INSTRUCTIONS_START..).zip(change.instructions.iter().flatten()) {
        let sql = "INSERT INTO messages (session, seq, json, hidden) VALUES ($1, $2, $3, 0)";
        rows(connection, sql, values![num, seq, instruction.json_str()])?;
    }
    for (seq, message) in (keep..).zip(&messages) {
        message.insert(connection, num, seq)?;
    }
    write.suspend_turn(connection, num)?;
    for call in &change.client_calls {
        let sql = "INSERT INTO client_calls (owner, call_id, session) VALUES ($1, $2, $3)
            ON CONFLICT (owner, call_id) DO UPDATE SET session = excluded.session";
        rows(connection, sql, values![fence.owner.as_str(), &**call, num])?;
    }
    if let Some(run) = &change.run {
        let (owner, id) = (fence.owner.as_str(), fence.id.as_str());
        let begun = rows(connection, BEGIN_RUN, values![run.as_str(), owner, id, ""])?;
        if begun.is_empty() {
            return Err(StoreError::Exists.into());
        }
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(Ok(match head {
        Some(_) => Replaced::Replaced,
        None => Replaced::Created,
    }))
}

/// The computed columns of a session's row.
struct Sizes {
    replaces_instructions: bool,
    instruction_bytes: i64,
    bytes: i64,
}

fn sizes(
    connection: &Connection,
    write: SessionWrite<'_>,
    head: Option<&Head>,
    keep: i64,
    messages: &[EncodedMessage<'_>],
) -> Result<Sizes, StatementError> {
    let SessionWrite {
        change, created_at, ..
    } = write;
    let replaces_instructions = created_at.is_some() || change.instructions.is_some();
    let instructions = change.instructions.iter().flatten();
    let new_instructions = signed(instructions.map(|one| one.json_str().len()).sum::<usize>());
    let metadata = change.metadata.as_ref().map(|text| signed(text.len()));
    let added = signed(messages.iter().map(EncodedMessage::bytes).sum::<usize>());
    let Some(head) = head else {
        return Ok(Sizes {
            replaces_instructions,
            instruction_bytes: new_instructions,
            bytes: added + new_instructions + metadata.unwrap_or(0),
        });
    };
    let mut bytes = head.bytes + added;
    if keep < head.messages {
        let sql = concat!(
            "SELECT coalesce(sum(",
            message_bytes!(),
            "), 0) FROM messages WHERE session = $1 AND seq >= $2"
        );
        let removed = rows(connection, sql, values![head.num, keep])?;
        if let Some([SqliteValue::Integer(removed)]) = removed.first().map(Vec::as_slice) {
            bytes -= removed;
        }
    }
    let instruction_bytes = match replaces_instructions {
        true => new_instructions,
        false => head.instruction_bytes,
    };
    bytes += instruction_bytes - head.instruction_bytes;
    // A change without metadata leaves them as they are.
    if created_at.is_some() || metadata.is_some() {
        bytes += metadata.unwrap_or(0) - head.metadata_bytes;
    }
    Ok(Sizes {
        replaces_instructions,
        instruction_bytes,
        bytes,
    })
}

/// The time of creation of a session that is written, in microseconds.
fn created(write: SessionWrite<'_>, now: i64) -> i64 {
    match write.created_at {
        None | Some(0) => now,
        Some(seconds) => seconds.saturating_mul(MICROS_PER_SECOND),
    }
}

fn insert_session(
    connection: &Connection,
    write: SessionWrite<'_>,
    sizes: &Sizes,
    now: i64,
) -> Result<i64, StatementError> {
    let SessionWrite { fence, change, .. } = write;
    let instructions = change.instructions.as_ref().map_or(0, Vec::len);
    let title = change.title.as_ref();
    let sql = "INSERT INTO sessions (owner, session_id, instruction_bytes, instruction_count, message_count, title_seq,
                                     title, bytes, created_at, updated_at, last_run, origin, metadata)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    rows(
        connection,
        sql,
        values![
            fence.owner.as_str(),
            fence.id.as_str(),
            sizes.instruction_bytes,
            signed(instructions),
            signed(instructions + change.append.len()),
            SqlValue::Integer(title.map(|title| signed(title.index))),
            title.and_then(|title| title.text.as_deref()),
            sizes.bytes,
            created(write, now),
            now,
            change.run.as_ref().map(RunId::as_str),
            change.id_origin.as_number(),
            change.metadata.as_deref(),
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

fn update_session(
    connection: &Connection,
    write: SessionWrite<'_>,
    head: &Head,
    (keep, now): (i64, i64),
    sizes: &Sizes,
) -> Result<(), StatementError> {
    let SessionWrite { change, .. } = write;
    let replaces = write.created_at.is_some();
    let instructions = match sizes.replaces_instructions {
        true => signed(change.instructions.as_ref().map_or(0, Vec::len)),
        false => head.instruction_count,
    };
    let title = change.title.as_ref();
    // If the title message is deleted, the title is taken from the new messages.
    let stays = !replaces && head.title_seq.is_some_and(|seq| seq < keep);
    // Only the first write of a run names it.
    let is_later_write = !replaces && change.run.is_none() && head.has_run;
    let is_recent = now.saturating_sub(head.updated_at) < TOUCH_INTERVAL;
    let sql = "UPDATE sessions SET instruction_bytes = $2, instruction_count = $3, message_count = $4,
            title_seq = CASE WHEN $5 THEN title_seq ELSE $6 END, title = CASE WHEN $5 THEN title ELSE $7 END, bytes = $8,
            written_at = $9, last_run = coalesce($10, last_run), metadata = coalesce($11, metadata) WHERE num = $1";
    rows(
        connection,
        sql,
        values![
            head.num,
            sizes.instruction_bytes,
            instructions,
            instructions + keep + signed(change.append.len()),
            stays,
            SqlValue::Integer(title.map(|title| keep + signed(title.index))),
            title.and_then(|title| title.text.as_deref()),
            sizes.bytes,
            now,
            change.run.as_ref().map(RunId::as_str),
            change.metadata.as_deref(),
        ],
    )?;
    if replaces {
        let sql = "UPDATE sessions SET created_at = $2, last_run = $3, origin = $4, metadata = $5 WHERE num = $1";
        let run = change.run.as_ref().map(RunId::as_str);
        let origin = change.id_origin.as_number();
        let (created, metadata) = (created(write, now), change.metadata.as_deref());
        rows(
            connection,
            sql,
            values![head.num, created, run, origin, metadata],
        )?;
        let sql = "DELETE FROM client_calls WHERE session = $1";
        rows(connection, sql, values![head.num])?;
    }
    if !(is_later_write && is_recent) {
        let sql = "UPDATE sessions SET updated_at = $2 WHERE num = $1";
        rows(connection, sql, values![head.num, now])?;
    }
    Ok(())
}
